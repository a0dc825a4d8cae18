"""What an agent talks to: the world model and the sandbox implement one protocol, and it cannot tell which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from wmrl_cli.maths.outcomes import Status
from wmrl_cli.task import Task

WORLD_MODEL, SANDBOX = "world_model", "sandbox"
Scorer = Literal["world_model", "sandbox"]


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One script to be scored; `script` is None where the reply held no closed code block."""

    task: Task
    script: str | None
    seed: int


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One expert's opinion on one script; all but the name and `abstained` are null where it abstained."""

    expert: str
    abstained: bool
    fails: float | None = None  # probability in [0, 1] that the script fails in this expert's way; quality: E[q]
    line: int | None = None
    error_class: str | None = None
    output: str | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How one script ended, really or by prediction. A null measure was not taken.

    `reward` is null exactly when `status` is `lost`. A world model's reward is an expectation over
    statuses, so it need not lie on the ladder; its `q` is the expected position given that it is valid.
    """

    status: Status
    reward: float | None
    q: float | None = None
    raw_metric: float | None = None
    error_class: str | None = None
    error_line: int | None = None
    observation: str = ""
    verdicts: tuple[Verdict, ...] = ()
    queue_s: float | None = None
    wall_s: float | None = None
    cpu_s: float | None = None
    gpu_s: float | None = None
    peak_memory_bytes: int | None = None
    backend: str = ""
    enforcement: str = ""  # what was really enforced, as sorted `key=value` words
    cached: bool = False
    detail: str = ""  # for people: why it was lost, why the submission was refused


class Environment(Protocol):
    """Scores scripts in batches; one outcome an attempt, in order. Never raises for a script's or its own failure of one row."""

    @property
    def scorer(self) -> Scorer: ...

    def step(self, attempts: Sequence[Attempt]) -> list[Outcome]: ...
