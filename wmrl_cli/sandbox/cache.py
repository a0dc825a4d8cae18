"""Results of scripts that ran before: same script, task, limits, environment and seed give the stored outcome.

A script whose second run disagreed with its first is never answered from the cache again.
"""

from __future__ import annotations

import json
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wmrl_cli.environment import Outcome
from wmrl_cli.errors import UnavailableError
from wmrl_cli.maths.outcomes import Status
from wmrl_cli.sandbox.base import Job
from wmrl_cli.seeds import digest
from wmrl_cli.tables import write_atomically
from wmrl_cli.task import Task

CONFIRMED, DISAGREED = "a second run agreed", "a second run disagreed"
_NEVER_STORED = ("queue_s", "cached", "verdicts", "gpu_s")


@dataclass(frozen=True)
class Entry:
    """A stored outcome; `stable` is False once a second run differed."""

    outcome: Outcome
    stable: bool


class ResultCache:
    """Outcomes in files below `folder`. `verify`: how many hits are run again, to see whether they still hold."""

    def __init__(self, folder: Path, *, verify: int = 0) -> None:
        self.folder = folder
        self._left_to_verify = verify
        self._lock = threading.Lock()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnavailableError(f"could not make the cache folder `{folder}`: {error.strerror}") from error

    @staticmethod
    def key(job: Job, task: Task, identity: str) -> str:
        """What decides an outcome; `identity` is the sandbox's: its kind, interpreter or image, and packages."""
        limits = asdict(job.limits)
        return digest(job.script, task.task_id, task.digest, limits, dict(job.env), job.seed, identity, length=32)

    def find(self, key: str) -> Outcome | None:
        """The stored outcome, marked `cached`; None where there is none, or an unstable or unreadable one."""
        entry = self._read(key)
        return entry.outcome if entry is not None and entry.stable else None

    def wants_proof(self) -> bool:
        """Whether this hit is one of those to run again; counts down."""
        with self._lock:
            wanted = self._left_to_verify > 0
            self._left_to_verify -= wanted
            return wanted

    def store(self, key: str, outcome: Outcome, *, stable: bool = True) -> None:
        """Keep an outcome; a lost one is never kept, and an unstable one stays unstable."""
        if outcome.status is Status.LOST:
            return
        before = self._read(key)
        facts = {name: value for name, value in asdict(outcome).items() if name not in _NEVER_STORED}
        facts["stable"] = stable and (before is None or before.stable)
        write_atomically(self._path(key), lambda scratch: Path(scratch).write_text(json.dumps(facts)))

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.json"

    def _read(self, key: str) -> Entry | None:
        try:
            facts: dict[str, Any] = json.loads(self._path(key).read_text())
            stable = facts.pop("stable")
            return Entry(Outcome(**{**facts, "status": Status(facts["status"]), "cached": True}), stable)
        except (OSError, ValueError, KeyError, TypeError):
            return None  # absent, or written by another version
