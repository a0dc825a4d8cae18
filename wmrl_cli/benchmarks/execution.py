"""Scripts scored for real: compiled, run in a sandbox, graded outside it. The counterpart of the world model."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from typing import Literal

from wmrl_cli.benchmarks.grading import grade
from wmrl_cli.environment import Attempt, Outcome
from wmrl_cli.errors import UnavailableError, WmrlError
from wmrl_cli.maths.outcomes import RewardLadder, Status
from wmrl_cli.prompts.observation import sandbox_observation
from wmrl_cli.sandbox.admission import check_limits
from wmrl_cli.sandbox.base import Ending, Job, Limits, RunResult, Sandbox, SubmissionState
from wmrl_cli.sandbox.cache import CONFIRMED, DISAGREED, ResultCache
from wmrl_cli.sandbox.gate import gate
from wmrl_cli.sandbox.gpu.leases import GpuLease, LeaseTable
from wmrl_cli.sandbox.interrupt import end_with_process
from wmrl_cli.sandbox.traces import error_hint
from wmrl_cli.seeds import digest
from wmrl_cli.task import Task

RETRIES = 2  # of a run that was lost by our own failure
_BACKOFF_S = (0.5, 2.0)
_STOP_S = 15.0  # how long an interrupted step waits for its runs to end

_STATUS = {
    Ending.LOST: Status.LOST,
    Ending.CANCELLED: Status.LOST,
    Ending.TIMEOUT: Status.TIMEOUT,
    Ending.RESOURCE_LIMIT: Status.RESOURCE_LIMIT,
    Ending.OUT_OF_MEMORY: Status.OUT_OF_MEMORY,
    Ending.FAILED: Status.RUNTIME_ERROR,
}


class SandboxEnvironment:
    """Real execution as an environment; `slots` scripts run at once, however many threads call `step`."""

    scorer: Literal["sandbox"] = "sandbox"

    def __init__(
        self,
        sandbox: Sandbox,
        limits: Limits,
        ladder: RewardLadder,
        slots: int = 2,
        *,
        cache: ResultCache | None = None,
        leases: LeaseTable | None = None,
        show_score: bool = True,
        count_unfinished: bool = False,
    ) -> None:
        """`cache` answers scripts that ran before; `leases` gives each run a GPU, its wait being queue time;
        `show_score`: whether the agent reads its score; `count_unfinished`: whether a submission that was written
        before a time-out or a crash earns what it is worth, instead of being noted only. Raises ConfigError for
        limits that this machine cannot keep."""
        self.sandbox, self.limits, self.ladder = sandbox, limits, ladder
        self.show_score, self.count_unfinished = show_score, count_unfinished
        check_limits(limits, slots)
        self.cache, self.leases = cache, leases
        self._identity = sandbox.identity if cache is not None else ""
        self._slots = threading.BoundedSemaphore(slots)
        self._width = slots
        self._active: set[threading.Event] = set()
        self._cancelled = False
        self._running = 0
        self._lock = threading.RLock()  # a signal's handler may come while the same thread holds it
        sandbox.sweep()
        end_with_process(self)

    def step(self, attempts: Sequence[Attempt]) -> list[Outcome]:
        """The outcomes, in order. Ctrl-C ends every run within seconds and is passed on.

        What other threads ask for after a cancel is lost too; the main thread, which saw the Ctrl-C, may go on.
        """
        outcomes: list[Outcome | None] = [gate(attempt.script, self.ladder) for attempt in attempts]
        pending = deque(index for index, outcome in enumerate(outcomes) if outcome is None)
        cancel, faults, asked = self._cancel_event(), list[BaseException](), time.monotonic()

        def work() -> None:
            while pending and not faults:
                try:
                    index = pending.popleft()
                    outcomes[index] = self._score(attempts[index], cancel, asked)
                except IndexError:
                    return
                except BaseException as fault:  # carried to the caller's thread, and raised there
                    faults.append(fault)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(min(self._width, len(pending)))]
        self._follow(threads, cancel)
        if faults:
            raise faults[0]
        return [outcome for outcome in outcomes if outcome is not None]

    def cancel(self) -> None:
        """End all runs now; their rows become `lost`."""
        with self._lock:
            self._cancelled = True
            for event in self._active:
                event.set()

    def close(self) -> None:
        """End all runs and wait, some seconds at most, until nothing of them is left."""
        self.cancel()
        deadline = time.monotonic() + _STOP_S
        while self._running and time.monotonic() < deadline:
            time.sleep(0.02)

    def _cancel_event(self) -> threading.Event:
        event = threading.Event()
        with self._lock:
            if threading.current_thread() is threading.main_thread():
                self._cancelled = False
            if self._cancelled:
                event.set()
            self._active.add(event)
        return event

    def _follow(self, threads: list[threading.Thread], cancel: threading.Event) -> None:
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except BaseException:
            cancel.set()
            deadline = time.monotonic() + _STOP_S
            for thread in threads:
                thread.join(max(0.0, deadline - time.monotonic()))
            raise
        finally:
            with self._lock:
                self._active.discard(cancel)

    def _score(self, attempt: Attempt, cancel: threading.Event, asked: float) -> Outcome:
        if self.cache is None:
            return self._run(attempt, cancel, asked)
        how = f"{self._identity} {asdict(self.ladder)} {self.count_unfinished} {self.show_score}"
        key = self.cache.key(self._job(attempt), attempt.task, how)
        stored = self.cache.find(key)
        if stored is None:
            outcome = self._run(attempt, cancel, asked)
            self.cache.store(key, outcome)
            return outcome
        if not self.cache.wants_proof():
            return stored
        again = self._run(attempt, cancel, asked)
        if again.status is Status.LOST:
            return again
        agreed = (again.status, again.raw_metric) == (stored.status, stored.raw_metric)
        self.cache.store(key, again, stable=agreed)
        seen = CONFIRMED if agreed else f"{DISAGREED}: {stored.status} {stored.raw_metric} before"
        return replace(again, detail=f"{again.detail}; {seen}" if again.detail else seen)

    def _run(self, attempt: Attempt, cancel: threading.Event, asked: float) -> Outcome:
        with self._lock:
            self._running += 1
        try:
            return self._run_in_slot(attempt, cancel, asked)
        finally:
            with self._lock:
                self._running -= 1

    def _run_in_slot(self, attempt: Attempt, cancel: threading.Event, asked: float) -> Outcome:
        job = self._job(attempt)
        with self._slots:
            for retry in range(RETRIES + 1):
                try:
                    with self._gpu(cancel) as held:
                        queued = time.monotonic() - asked
                        result = self.sandbox.run(replace(job, gpu=held.uuid if held else None), cancel)
                except UnavailableError as error:
                    held, queued = None, time.monotonic() - asked
                    result = RunResult(ending=Ending.LOST, detail=str(error), backend=self.sandbox.name)
                if result.ending is not Ending.LOST or retry == RETRIES or cancel.wait(_BACKOFF_S[retry]):
                    break
        outcome = self._outcome(attempt.task, result, queued)
        if held is None:
            return outcome
        enforced = words({**result.enforcement, "gpu": held.uuid, "gpu_memory": held.enforcement})
        return replace(outcome, gpu_s=outcome.wall_s, enforcement=enforced)

    def _gpu(self, cancel: threading.Event) -> AbstractContextManager[GpuLease | None]:
        return nullcontext() if self.leases is None else self.leases.lease(cancel)

    def _job(self, attempt: Attempt) -> Job:
        script = attempt.script or ""
        return Job(
            job_id=digest(attempt.task.task_id, script, attempt.seed),
            script=script,
            data_dir=attempt.task.public_path,
            limits=self.limits,
            seed=attempt.seed,
            submission=attempt.task.contract.file,
        )

    def _outcome(self, task: Task, result: RunResult, queue_s: float) -> Outcome:
        status, raw, q, detail = self._judge(task, result)
        hint = error_hint(result.stderr) if result.ending is Ending.FAILED else None
        return Outcome(
            status=status,
            reward=self.ladder.reward(status, q),
            q=q if status is Status.VALID else None,
            raw_metric=raw,
            error_class=hint.error_class if hint else None,
            error_line=hint.line if hint else None,
            observation=sandbox_observation(
                status,
                stdout=result.stdout,
                stderr=result.stderr,
                detail=detail,
                raw_metric=raw,
                metric=task.metric,
                q=q,
                show_score=self.show_score,
            ),
            queue_s=queue_s,
            wall_s=result.wall_s,
            cpu_s=result.cpu_s,
            peak_memory_bytes=result.peak_memory_bytes,
            backend=result.backend,
            enforcement=words(result.enforcement),
            detail=detail,
        )

    def _judge(self, task: Task, result: RunResult) -> tuple[Status, float | None, float | None, str]:
        """Status, raw metric, position, and why in words; the submission of a failed run is graded but just noted."""
        ended = _STATUS.get(result.ending)
        if ended is Status.LOST:
            return Status.LOST, None, None, result.detail
        if result.submission_state is not SubmissionState.PRESENT or result.submission is None:
            missing = result.submission_state is SubmissionState.MISSING
            return ended or (Status.NO_SUBMISSION if missing else Status.BAD_SUBMISSION), None, None, result.detail
        try:
            graded = grade(task, result.submission)
        except (WmrlError, OSError) as error:  # the answers are not there: our failure, not the script's
            return Status.LOST, None, None, f"could not grade: {error}"
        if ended is None:
            return graded.status, graded.raw_metric, graded.q, graded.reason
        if graded.status is not Status.VALID:
            return ended, None, None, result.detail
        if self.count_unfinished:
            return Status.VALID, graded.raw_metric, graded.q, f"{result.detail}; its submission was counted"
        return ended, graded.raw_metric, None, f"{result.detail}; its submission was graded but not counted"


def words(enforcement: Mapping[str, str]) -> str:
    """What was enforced, as sorted `key=value` words."""
    return " ".join(f"{key}={value}" for key, value in sorted(enforcement.items()))
