"""The smaller parts: owners, sweeping, packages, traces, choosing a backend."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.sandbox.boxes import groups, open_box, processes_with
from wmrl_cli.errors import ConfigError, UnavailableError
from wmrl_cli.sandbox import backends, open_sandbox
from wmrl_cli.sandbox.base import MIB, Ending, Job, Limits
from wmrl_cli.sandbox.interpreter import find_interpreter
from wmrl_cli.sandbox.owner import is_dead, owner_name, scratch_root
from wmrl_cli.sandbox.packages import installed_packages, package_lines
from wmrl_cli.sandbox.probe import read_probe
from wmrl_cli.sandbox.traces import error_hint
from wmrl_cli.sandbox.watch import FolderWatch
from wmrl_cli.sandbox.workdir import SCRIPT, sweep_folders, work_folder


def test_an_owner_is_dead_when_its_process_is_gone_or_its_number_used_again():
    namespace, pid, started = owner_name().split("-")
    assert not is_dead(owner_name())
    assert is_dead(f"{namespace}-{pid}-{int(started) + 1}")  # the same pid, another process
    with subprocess.Popen(["true"]) as child:
        child.wait()
    assert is_dead(f"{namespace}-{child.pid}-1")
    assert not is_dead(f"123-{child.pid}-1")  # of another pid namespace: not ours to judge
    assert not is_dead("slots") and not is_dead("probe")


def test_only_the_folders_of_dead_owners_are_swept(tmp_path):
    namespace = owner_name().split("-")[0]
    for owner in (owner_name(), f"{namespace}-4194303-7"):
        (tmp_path / owner / "run-x" / "deep").mkdir(parents=True)
    (tmp_path / "slots").mkdir()
    assert sweep_folders(tmp_path) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([owner_name(), "slots"])


def test_two_that_sweep_at_once_share_the_work(tmp_path):
    """As the ranks of a job do, which start together."""
    namespace = owner_name().split("-")[0]
    for round_ in range(30):
        root = tmp_path / str(round_)
        for started in range(1, 21):
            (root / f"{namespace}-4194303-{started}" / "run-x" / "deep").mkdir(parents=True)
        start = threading.Barrier(4)

        def sweep(_: int, root=root, start=start) -> int:
            start.wait()
            return sweep_folders(root)

        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(sweep, range(4))) == 20
        assert list(root.iterdir()) == []


def test_runs_that_begin_and_end_together_find_their_folders(tmp_path):
    """A run removes the folder of all runs where it is empty; another one may be about to use it."""
    job = Job(job_id="x", script="", data_dir=tmp_path, limits=Limits())

    def begin_and_end(_: int) -> None:
        with work_folder(tmp_path / "scratch", job) as work:
            assert (work.path / SCRIPT).exists()

    (tmp_path / "scratch").mkdir()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(begin_and_end, range(6000)))
    finally:
        sys.setswitchinterval(interval)


def test_a_scratch_folder_of_somebody_else_is_refused(tmp_path):
    (tmp_path / "link").symlink_to("/")
    with pytest.raises(UnavailableError, match="not ours"):
        scratch_root(tmp_path / "link")


def test_packages_are_those_that_are_installed():
    packages = installed_packages()
    names = [line.partition("==")[0] for line in packages]
    assert names == sorted(set(names))
    assert any(line.startswith("numpy==") for line in packages)
    assert not any(line.startswith(("pip==", "wmrl-cli==")) for line in packages)
    assert installed_packages(Path(sys.executable)) == packages
    with pytest.raises(UnavailableError, match="/no/python"):
        installed_packages("/no/python")
    assert package_lines([("B", "2"), ("a", "1"), ("", "3"), ("b", "2")]) == ("a==1", "b==2")


def test_an_interpreter_that_does_not_run_is_refused(tmp_path):
    with pytest.raises(UnavailableError, match="does not run"):
        find_interpreter(tmp_path / "python")


@pytest.mark.parametrize(
    ("stderr", "hint"),
    [
        ("", (None, None)),
        (
            'Traceback (most recent call last):\n  File "/job/solution.py", line 3, in <module>\nValueError: no',
            ("ValueError", 3),
        ),
        (
            'Traceback (most recent call last):\n  File "solution.py", line 3, in f\n  File "/x/pandas.py", line 9, in g\npandas.errors.EmptyDataError',
            ("EmptyDataError", 3),
        ),
        (
            'Traceback (most recent call last):\n  File "solution.py", line 1\nKeyError: 1\n\nDuring handling:\n\n'
            'Traceback (most recent call last):\n  File "solution.py", line 7\nTypeError: x',
            ("TypeError", 7),
        ),
        ("ValueError: printed without a traceback", (None, None)),
    ],
)
def test_a_hint_is_the_last_tracebacks(stderr, hint):
    assert error_hint(stderr) == hint


def test_a_silent_probe_is_a_leak():
    assert read_probe("") and read_probe("nonsense")
    assert read_probe('{"reads /etc/shadow": true, "is root": false}') == ["reads /etc/shadow"]


def test_a_folder_is_measured_by_blocks_and_what_cannot_be_counted_is_too_much(tmp_path):
    watch = FolderWatch(str(tmp_path))
    assert watch.over_limit(Limits()) is None
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    assert watch.over_limit(Limits(disk_bytes=MIB)) is None
    (tmp_path / "real").write_bytes(os.urandom(2 * MIB))
    os.sync()
    assert watch.over_limit(Limits(disk_bytes=MIB)) == "disk"
    for number in range(5):
        (tmp_path / str(number)).touch()
    assert watch.over_limit(Limits(files=4)) == "number of files"


def test_an_unknown_or_absent_backend_is_a_sentence():
    with pytest.raises(ConfigError, match="`podmann`"):
        open_sandbox("podmann")
    with pytest.raises(UnavailableError) as failed:
        open_sandbox("docker", image="no-such-image:1")
    assert failed.value.exit_code == 4 and "Docker Engine" in (failed.value.hint or "")


def test_every_backend_says_what_it_enforces_or_why_it_cannot():
    found = {backend.backend: backend for backend in backends()}
    assert set(found) == {"docker", "bubblewrap", "unsafe-process", "unsafe-fork"}
    for backend in found.values():
        assert backend.enforcement if backend.available else backend.reason
    assert found["unsafe-process"].enforcement["network"] == "open"


def test_the_plain_process_keeps_its_limits_though_it_isolates_nothing(tmp_path):
    box = open_box("unsafe-process", tmp_path / "scratch")
    (tmp_path / "data").mkdir()

    def run(script, seed=1, **limits):
        return box.run(Job(job_id="x", script=script, data_dir=tmp_path / "data", limits=Limits(**limits), seed=seed))

    assert run("1 / 0").ending is Ending.FAILED
    assert 'File "solution.py"' in run("1 / 0").stderr
    orphan = (
        "import os, time\nfor _ in range(2):\n    if os.fork() == 0:\n        os.setsid()\n        time.sleep(200)\n"
    )
    seed = 31_337_000 + os.getpid()
    assert run(orphan, seed=seed).ending is Ending.EXITED
    assert run(orphan + "while True: pass", seed=seed, wall_s=1.0).ending is Ending.TIMEOUT
    assert processes_with(seed) == []
    assert groups() == []


@pytest.mark.parametrize("kind", ["unsafe-process", "unsafe-fork"])
def test_without_isolation_a_script_still_gets_data_of_its_own(kind, tmp_path):
    """Writing through ./input spoils this run's copy only; what the copy takes is not held against the script."""
    box = open_box(kind, tmp_path / "scratch")
    (tmp_path / "data" / "images").mkdir(parents=True)
    (tmp_path / "data" / "train.csv").write_text("id,y\n" * 100_000)
    spoil = (
        "import os, shutil\nassert os.path.getsize('input/train.csv') == 500_000\n"
        "open('input/train.csv', 'w').close()\nshutil.rmtree('input')\nopen('submission.csv', 'w').write('x')"
    )
    tight = Limits(disk_bytes=100_000, files=4)
    job = Job(job_id="x", script=spoil, data_dir=tmp_path / "data", limits=tight)
    for _ in range(2):
        result = box.run(job)
        assert (result.ending, result.submission) == (Ending.EXITED, b"x"), (result.detail, result.stderr)
    assert (tmp_path / "data" / "train.csv").stat().st_size == 500_000


def test_a_plain_process_may_not_fill_the_disk_through_its_copy_of_the_data(tmp_path):
    box = open_box("unsafe-process", tmp_path / "scratch")
    (tmp_path / "data").mkdir()
    flood = "import time\nopen('input/more', 'w').write('x' * 5_000_000)\ntime.sleep(30)"
    job = Job(job_id="x", script=flood, data_dir=tmp_path / "data", limits=Limits(disk_bytes=1_000_000))
    assert box.run(job).ending is Ending.RESOURCE_LIMIT


KILLED = """
import sys
from pathlib import Path
from wmrl_cli.sandbox import open_sandbox
from wmrl_cli.sandbox.base import Job, Limits
box = open_sandbox(sys.argv[1], image=sys.argv[4], scratch=Path(sys.argv[2]))
print("ready", flush=True)
box.run(Job(job_id="x", script="import time; print(1); time.sleep(500)", data_dir=Path(sys.argv[2]) / "data", limits=Limits(wall_s=600), seed=int(sys.argv[3])))
"""


@pytest.mark.parametrize("kind", ["bubblewrap", pytest.param("docker", marks=pytest.mark.docker)])
def test_what_a_killed_wmrl_leaves_is_gone_after_the_next_start(kind, tmp_path):
    box = open_box(kind, tmp_path)
    (tmp_path / "data").mkdir()  # readable for all, as the folder of pytest's own is not
    seed = 77_000_000 + os.getpid()
    command = [sys.executable, "-c", KILLED, kind, str(tmp_path), str(seed), "wmrl-skeleton:2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        deadline = time.monotonic() + 60
        while not processes_with(seed):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert box.sweep() >= 1
    deadline = time.monotonic() + 20
    while processes_with(seed) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert processes_with(seed) == []
    assert list(tmp_path.rglob("run-*")) == []
