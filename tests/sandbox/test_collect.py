"""Reading one file and removing all the others, with real files."""

from __future__ import annotations

import os
import socket
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wmrl_cli.sandbox.base import SubmissionState
from wmrl_cli.sandbox.collect import collect_submission, remove_tree


def collect(folder, max_bytes=100):
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        return collect_submission(descriptor, "submission.csv", max_bytes)
    finally:
        os.close(descriptor)


def test_a_plain_file_is_read_whole(tmp_path):
    (tmp_path / "submission.csv").write_bytes(b"x" * 100)
    found = collect(tmp_path)
    assert found.state is SubmissionState.PRESENT and found.data == b"x" * 100


def test_nothing_is_missing(tmp_path):
    assert collect(tmp_path).state is SubmissionState.MISSING


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.symlink_to("/etc/passwd"), "is a link"),
        (lambda path: path.symlink_to("nowhere"), "is a link"),
        (lambda path: os.mkfifo(path), "is a FIFO"),
        (lambda path: path.mkdir(), "is a folder"),
        (lambda path: path.write_bytes(b"x" * 101), "is larger than 100 bytes"),
        (lambda path: (path.touch(), os.truncate(path, 1 << 40)), "is larger than 100 bytes"),
        (
            lambda path: ((path.parent / "other").write_text("x"), os.link(path.parent / "other", path)),
            "is a hard link",
        ),
    ],
)
def test_what_is_no_plain_small_file_is_refused(tmp_path, make, reason):
    make(tmp_path / "submission.csv")
    found = collect(tmp_path)
    assert found.state is SubmissionState.REFUSED and found.data is None
    assert reason in found.reason


def test_a_socket_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("submission.csv")
        assert collect(tmp_path).state is SubmissionState.REFUSED


def test_a_tree_of_3000_folders_is_removed(tmp_path):
    script = "import os\nfor n in range(3000):\n    os.mkdir('f'); os.chdir('f')\n    open('x', 'w').close()"
    (tmp_path / "work").mkdir()
    subprocess.run(["python3", "-c", script], cwd=tmp_path / "work", check=True)
    remove_tree(tmp_path / "work")
    assert list(tmp_path.iterdir()) == []


def test_links_are_removed_and_not_followed(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("x")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "work" / "closed").mkdir(mode=0)
    (tmp_path / "work").chmod(0)
    remove_tree(tmp_path / "work")
    remove_tree(tmp_path / "work")  # gone already: nothing to do
    assert (tmp_path / "kept" / "file").read_text() == "x"
    assert not (tmp_path / "work").exists()


NAMES = st.sampled_from(["a", "b", "c", ".moved-1", "\udcff"])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(NAMES, min_size=1, max_size=4)))
def test_any_tree_is_removed(tmp_path_factory, paths):
    top = tmp_path_factory.mktemp("tree")
    for parts in paths:
        os.makedirs(os.path.join(top, *parts), exist_ok=True)
    remove_tree(top)
    assert not top.exists()
