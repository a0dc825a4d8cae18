"""Real execution as an environment: the gate, the sandbox, the grader, retries, the cache, leases, Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sandbox.boxes import open_box
from tests.sandbox.tasks import make_task
from wmrl_cli.benchmarks.execution import SandboxEnvironment
from wmrl_cli.environment import Attempt
from wmrl_cli.errors import ConfigError
from wmrl_cli.maths.outcomes import RewardLadder, Status
from wmrl_cli.sandbox.base import GIB, MIB, Capabilities, Ending, Limits, RunResult, SubmissionState
from wmrl_cli.sandbox.cache import DISAGREED, ResultCache
from wmrl_cli.sandbox.gpu.devices import Device
from wmrl_cli.sandbox.gpu.leases import LeaseTable

LIMITS = Limits(wall_s=60, memory_bytes=512 * MIB)
GOOD = "open('submission.csv', 'w').write('id,y\\n1,1.0\\n2,2.0\\n')"
WORSE = "open('submission.csv', 'w').write('id,y\\n1,9.0\\n2,9.0\\n')"


class Scripted:
    """A sandbox whose results are given; counts its runs."""

    name, identity, packages = "scripted", "scripted", ()

    def __init__(self, *results: RunResult) -> None:
        self.results, self.jobs = list(results), []

    def preflight(self) -> Capabilities:
        return Capabilities(backend=self.name, available=True)

    def run(self, job, cancel=None) -> RunResult:
        self.jobs.append(job)
        return self.results.pop(0) if len(self.results) > 1 else self.results[0]

    def sweep(self) -> int:
        return 0


def ended(ending: Ending, submission: bytes | None = None, **more) -> RunResult:
    state = SubmissionState.MISSING if submission is None else SubmissionState.PRESENT
    return RunResult(ending=ending, submission=submission, submission_state=state, wall_s=1.0, **more)


def step(environment, task, *scripts, seed=0):
    return environment.step([Attempt(task=task, script=script, seed=seed) for script in scripts])


@pytest.fixture
def task(tmp_path):
    return make_task(tmp_path)


def test_every_status_by_real_execution(task, tmp_path):
    environment = SandboxEnvironment(open_box("bubblewrap", tmp_path / "scratch"), LIMITS, RewardLadder())
    outcomes = step(
        environment,
        task,
        GOOD,
        WORSE,
        None,
        "x = (",
        "import nowhere_to_be_found",
        "pass",
        "open('submission.csv', 'w').write('id,z\\n1,2\\n')",
        "import os\nos.symlink('input/train.csv', 'submission.csv')",
    )
    assert [str(outcome.status) for outcome in outcomes] == (
        "valid valid malformed syntax_error runtime_error no_submission bad_submission bad_submission".split()
    )
    assert [outcome.reward for outcome in outcomes] == [1.0, 0.5, 0.0, 0.0, 0.1, 0.2, 0.2, 0.2]
    best, _, _, _, failed = outcomes[:5]
    assert (best.q, best.raw_metric) == (1.0, 0.0)
    assert (failed.error_class, failed.error_line) == ("ModuleNotFoundError", 1)
    assert "ModuleNotFoundError" in failed.observation
    assert best.wall_s > 0 and best.queue_s >= 0 and best.peak_memory_bytes > 0
    assert "network=none" in best.enforcement and best.backend == "bubblewrap"
    assert outcomes[2].wall_s is None and outcomes[2].backend == "gate"


def test_a_lost_run_is_tried_again_and_then_has_no_reward(task, monkeypatch):
    monkeypatch.setattr("wmrl_cli.benchmarks.execution._BACKOFF_S", (0.0, 0.0))
    recovers = Scripted(ended(Ending.LOST), ended(Ending.LOST), ended(Ending.EXITED, b"id,y\n1,1\n2,2\n"))
    assert step(SandboxEnvironment(recovers, LIMITS, RewardLadder()), task, GOOD)[0].status is Status.VALID
    assert len(recovers.jobs) == 3
    gone = Scripted(ended(Ending.LOST, detail="the engine died"))
    outcome = step(SandboxEnvironment(gone, LIMITS, RewardLadder()), task, GOOD)[0]
    assert (outcome.status, outcome.reward, outcome.detail) == (Status.LOST, None, "the engine died")
    assert len(gone.jobs) == 3


def test_a_submission_before_a_time_out_is_noted_and_counts_only_if_asked_for(task):
    late = ended(Ending.TIMEOUT, b"id,y\n1,1\n2,2\n", detail="stopped at its limit of wall time")
    noted = step(SandboxEnvironment(Scripted(late), LIMITS, RewardLadder()), task, GOOD)[0]
    assert (noted.status, noted.reward, noted.raw_metric, noted.q) == (Status.TIMEOUT, 0.1, 0.0, None)
    assert "graded but not counted" in noted.detail
    counted = step(SandboxEnvironment(Scripted(late), LIMITS, RewardLadder(), count_unfinished=True), task, GOOD)[0]
    assert (counted.status, counted.reward) == (Status.VALID, 1.0)


def test_answers_that_are_gone_are_our_failure(task):
    (task.private_path / "answers.csv").unlink()
    outcome = step(
        SandboxEnvironment(Scripted(ended(Ending.EXITED, b"id,y\n1,1\n2,2\n")), LIMITS, RewardLadder()), task, GOOD
    )[0]
    assert outcome.status is Status.LOST and outcome.reward is None


def test_a_traceback_decides_no_status(task):
    lies = ended(Ending.EXITED, stderr="Traceback (most recent call last):\nMemoryError")
    outcome = step(SandboxEnvironment(Scripted(lies), LIMITS, RewardLadder()), task, GOOD)[0]
    assert outcome.status is Status.NO_SUBMISSION and outcome.error_class is None


def test_a_score_can_be_kept_from_the_agent(task):
    graded = Scripted(ended(Ending.EXITED, b"id,y\n1,1\n2,2\n"))
    shown = step(SandboxEnvironment(graded, LIMITS, RewardLadder()), task, GOOD)[0]
    hidden = step(SandboxEnvironment(graded, LIMITS, RewardLadder(), show_score=False), task, GOOD)[0]
    assert "position" in shown.observation and "position" not in hidden.observation
    assert shown.reward == hidden.reward


def test_no_more_scripts_run_at_once_than_there_are_slots(task):
    class Counting(Scripted):
        now = most = 0
        lock = threading.Lock()

        def run(self, job, cancel=None):
            with self.lock:
                self.now += 1
                self.most = max(self.most, self.now)
            time.sleep(0.02)
            with self.lock:
                self.now -= 1
            return ended(Ending.EXITED)

    box = Counting()
    environment = SandboxEnvironment(box, LIMITS, RewardLadder(), slots=2)
    callers = [threading.Thread(target=step, args=(environment, task, *["pass"] * 5)) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert box.most == 2


def test_a_bug_of_ours_is_raised_and_not_turned_into_a_row(task):
    class Broken(Scripted):
        def run(self, job, cancel=None):
            raise AssertionError("a bug")

    with pytest.raises(AssertionError, match="a bug"):
        step(SandboxEnvironment(Broken(ended(Ending.EXITED)), LIMITS, RewardLadder()), task, GOOD)


def test_the_cache_answers_what_ran_before(task, tmp_path):
    box = Scripted(ended(Ending.EXITED, b"id,y\n1,1\n2,2\n"))

    def run(limits=LIMITS, script=GOOD, seed=0, a_task=task):
        environment = SandboxEnvironment(box, limits, RewardLadder(), cache=ResultCache(tmp_path / "cache"))
        return step(environment, a_task, script, seed=seed)[0]

    first, second = run(), run()
    assert (first.cached, second.cached, len(box.jobs)) == (False, True, 1)
    assert replace(second, cached=False, queue_s=first.queue_s) == first
    for changed in (
        {"seed": 1},
        {"script": WORSE},
        {"limits": replace(LIMITS, wall_s=7)},
        {"a_task": replace(task, digest="other")},
    ):
        assert not run(**changed).cached
    box.identity = "another interpreter"
    assert not run().cached


def test_a_lost_result_is_never_cached(task, tmp_path, monkeypatch):
    monkeypatch.setattr("wmrl_cli.benchmarks.execution._BACKOFF_S", (0.0, 0.0))
    cache = ResultCache(tmp_path / "cache")
    assert (
        step(SandboxEnvironment(Scripted(ended(Ending.LOST)), LIMITS, RewardLadder(), cache=cache), task, GOOD)[
            0
        ].reward
        is None
    )
    good = Scripted(ended(Ending.EXITED, b"id,y\n1,1\n2,2\n"))
    assert not step(SandboxEnvironment(good, LIMITS, RewardLadder(), cache=cache), task, GOOD)[0].cached


def test_a_script_whose_second_run_differs_is_not_cached_any_more(task, tmp_path):
    box = Scripted(ended(Ending.EXITED, b"id,y\n1,1\n2,2\n"), ended(Ending.EXITED, b"id,y\n1,9\n2,9\n"))

    def run(verify):
        cache = ResultCache(tmp_path / "cache", verify=verify)
        return step(SandboxEnvironment(box, LIMITS, RewardLadder(), cache=cache), task, GOOD)[0]

    run(0)
    again = run(1)
    assert not again.cached and DISAGREED in again.detail
    assert not run(0).cached and len(box.jobs) == 3


def test_limits_larger_than_the_machine_are_refused(task):
    for limits, slots, words in (
        (Limits(memory_bytes=1 << 50), 1, "may use"),
        (Limits(memory_bytes=1 * GIB), 100_000, "scripts at once"),
        (Limits(cpus=4096.0), 1, "processors"),
    ):
        with pytest.raises(ConfigError, match=words):
            SandboxEnvironment(Scripted(ended(Ending.EXITED)), limits, RewardLadder(), slots=slots)


def test_a_run_gets_a_lease_and_its_gpu_seconds_are_counted(task, tmp_path):
    table = LeaseTable(tmp_path / "gpus.json", [Device("GPU-a", 0, 80 * GIB)], 40 * GIB, lambda uuid: 0)
    box = Scripted(ended(Ending.EXITED, b"id,y\n1,1\n2,2\n"))
    outcome = step(SandboxEnvironment(box, LIMITS, RewardLadder(), leases=table), task, GOOD)[0]
    assert box.jobs[0].gpu == "GPU-a"
    assert outcome.gpu_s == outcome.wall_s == 1.0
    assert "gpu=GPU-a" in outcome.enforcement and "gpu_memory=soft" in outcome.enforcement


def test_cancelling_ends_every_run_within_seconds(task, tmp_path):
    environment = SandboxEnvironment(open_box("bubblewrap", tmp_path / "scratch"), LIMITS, RewardLadder())
    outcomes = []
    caller = threading.Thread(
        target=lambda: outcomes.extend(step(environment, task, *["import time; time.sleep(50)"] * 4))
    )
    started = time.monotonic()
    caller.start()
    time.sleep(1.0)
    environment.cancel()
    caller.join()
    assert time.monotonic() - started < 20
    assert {outcome.status for outcome in outcomes} == {Status.LOST} and len(outcomes) == 4


INTERRUPTED = """
import sys, threading, time
from pathlib import Path
from tests.sandbox.tasks import make_task
from wmrl_cli.benchmarks.execution import SandboxEnvironment
from wmrl_cli.environment import Attempt
from wmrl_cli.maths.outcomes import RewardLadder
from wmrl_cli.sandbox import open_sandbox
from wmrl_cli.sandbox.base import Limits
folder = Path(sys.argv[1])
environment = SandboxEnvironment(open_sandbox("unsafe-process", scratch=folder / "scratch"), Limits(), RewardLadder())
attempts = [Attempt(task=make_task(folder), script="import time; time.sleep(25)", seed=77) for _ in range(4)]
caller = threading.Thread(target=environment.step, args=(attempts,))
caller.start()
print("ready", flush=True)
caller.join()
"""


def test_ctrl_c_reaches_runs_that_another_thread_started(tmp_path):
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=Path(__file__).parents[2]
    ) as process:
        assert process.stdout.readline() == b"ready\n"
        time.sleep(1.0)
        os.kill(process.pid, signal.SIGINT)
        started = time.monotonic()
        process.wait(timeout=30)
    assert time.monotonic() - started < 15
    assert process.returncode != 0
    assert list((tmp_path / "scratch").rglob("run-*")) == []
