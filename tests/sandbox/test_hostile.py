"""The hostile suite: every script against every backend; ends as expected, leaves nothing running and nothing on disk."""

from __future__ import annotations

import os
import random
import socket
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.sandbox.boxes import groups, open_box, processes_with, run_folders
from tests.sandbox.scripts import CASES, Case
from wmrl_cli.sandbox.base import Job, RunResult

ENGINES = ("docker", "podman")
KINDS = ["bubblewrap", "bubblewrap-user", *(pytest.param(kind, marks=pytest.mark.docker) for kind in ENGINES)]


class Arena:
    """All cases run in one backend, three at a time, each with a seed that marks its processes."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        folder.chmod(0o755)
        self.data = folder / "task" / "public"
        self.data.mkdir(parents=True)
        (self.data / "train.csv").write_text("a,b\n1,2\n")
        private = folder / "task" / "private"
        private.mkdir()
        (private / "answers.csv").write_text("LEAK")
        self.box = open_box(kind, folder)
        self.first_seed = random.SystemRandom().randrange(1 << 40)
        self.connections = 0
        self.results = self._run_all()

    def _run_all(self) -> dict[str, RunResult]:
        abstract = f"wmrl-test-{self.first_seed}"
        with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as named:
            named.bind(f"\0{abstract}")
            named.listen()
            words = {
                "PORT": str(tcp.getsockname()[1]),
                "ABSTRACT": abstract,
                "TESTPID": str(os.getpid()),
                "DATA": str(self.data),
            }
            with ThreadPoolExecutor(3) as pool:
                found = list(pool.map(lambda pair: self.box.run(self._job(*pair, words)), enumerate(CASES)))
            for server in (tcp, named):
                server.setblocking(False)
                try:
                    server.accept()
                    self.connections += 1
                except BlockingIOError:
                    pass
        return {case.name: result for case, result in zip(CASES, found, strict=True)}

    def _job(self, number: int, case: Case, words: dict[str, str]) -> Job:
        script = case.script
        for name, value in words.items():
            script = script.replace(name, value)
        return Job(
            job_id=case.name, script=script, data_dir=self.data, limits=case.all_limits(), seed=self.first_seed + number
        )


@pytest.fixture(scope="module", params=KINDS)
def arena(request):
    os.environ["WMRL_TEST_SECRET"] = "x"
    # not below pytest's folder, which no other user may enter
    with tempfile.TemporaryDirectory(prefix="wmrl-hostile-") as folder:
        yield Arena(request.param, Path(folder))
    del os.environ["WMRL_TEST_SECRET"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_a_hostile_script_ends_as_it_should(arena, case):
    result = arena.results[case.name]
    allowed = case.endings
    enforced = result.enforcement
    unseen = enforced["memory"] == "rlimit+watchdog" or enforced.get("evidence") == "engine"
    if unseen and case.without_groups:
        allowed = case.without_groups
    shown = f"{result.ending} {result.detail} exit {result.exit_code}\n{result.stdout[-800:]}\n{result.stderr[-800:]}"
    assert result.ending in allowed, shown
    assert result.submission_state in case.states, shown
    assert case.says in result.stdout + result.stderr, shown
    assert case.never not in result.stdout, shown
    if result.submission is not None:
        assert result.submission.startswith((b"mine", b"id")), shown


def test_output_is_bounded_and_counted(arena):
    result = arena.results["much output"]
    assert result.stdout.startswith("first") and result.stdout.endswith("last")
    assert result.output_bytes == (256 << 20) + 9
    assert len(result.stdout) < 100_000


def test_a_time_limit_is_kept_to_a_few_seconds(arena):
    assert 3.0 <= arena.results["endless, with orphans"].wall_s < 6.0


def test_no_connection_came_through(arena):
    assert arena.connections == 0


def test_nothing_is_left(arena):
    left = [pid for number in range(len(CASES)) for pid in processes_with(arena.first_seed + number)]
    assert left == []
    assert list(run_folders(arena.folder)) == []
    assert groups() == []
    if arena.kind in ENGINES:
        from wmrl_cli.sandbox.owner import owner_name

        containers = arena.box.engine.client.containers
        assert containers.list(all=True, filters={"label": f"wmrl.owner={owner_name()}"}) == []


def test_what_was_enforced_is_recorded(arena):
    for result in arena.results.values():
        assert result.enforcement["network"] == "none"
        assert result.enforcement["memory"]
