"""The protocol that every sandbox backend implements, its limits and its evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from threading import Event
from typing import Protocol

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one script may use. The defaults are a laptop's; the paper's are wall_s=1200 and a 40 GB GPU."""

    wall_s: float = 30.0
    cpu_s: float | None = None  # processor seconds; null: only the wall clock counts
    memory_bytes: int = 2 * GIB
    processes: int = 256
    cpus: float = 1.0
    file_bytes: int = 1 * GIB  # one file
    disk_bytes: int = 2 * GIB  # the whole work folder
    files: int = 100_000
    tmp_bytes: int = 256 * MIB
    shm_bytes: int = 256 * MIB
    output_head_bytes: int = 16 << 10
    output_tail_bytes: int = 48 << 10
    output_kill_bytes: int = 8 * GIB
    submission_bytes: int = 512 * MIB


@dataclass(frozen=True, kw_only=True)
class Job:
    """One script and the only data it may see (`data_dir`, read-only, as ./input)."""

    job_id: str
    script: str
    data_dir: Path
    limits: Limits
    seed: int = 0  # PYTHONHASHSEED and WMRL_SEED
    submission: str = "submission.csv"
    gpu: str | None = None  # UUID of the only device that the script may see; null: none
    env: Mapping[str, str] = field(default_factory=dict)


class Ending(StrEnum):
    """How a run ended, by evidence alone; first match wins."""

    LOST = "lost"  # could not create or start, engine lost, kill not confirmed
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    RESOURCE_LIMIT = "resource_limit"
    OUT_OF_MEMORY = "out_of_memory"
    FAILED = "failed"  # exit code not 0
    EXITED = "exited"  # exit code 0


class SubmissionState(StrEnum):
    """What lay where the submission belongs, once everything was dead."""

    PRESENT = "present"
    MISSING = "missing"
    REFUSED = "refused"  # a link, FIFO, folder, device, hard link, or too large


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """Evidence of one run. Times in seconds; queueing is not run time; null = not measured."""

    ending: Ending
    exit_code: int | None = None
    signal: int | None = None
    queue_s: float = 0.0
    wall_s: float | None = None
    cpu_s: float | None = None
    peak_memory_bytes: int | None = None
    stdout: str = ""  # head and tail, with a line that counts what was left out
    stderr: str = ""
    output_bytes: int = 0  # all that was printed
    submission: bytes | None = None
    submission_state: SubmissionState = SubmissionState.MISSING
    detail: str = ""
    backend: str = ""
    enforcement: Mapping[str, str] = field(default_factory=dict)  # e.g. memory=cgroup-v1, network=none


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What a backend will really enforce here, found by probes and not by assumption."""

    backend: str
    available: bool
    reason: str = ""  # why not, or why limits are best effort only, and what to do about it
    enforcement: Mapping[str, str] = field(default_factory=dict)


class Sandbox(Protocol):
    """Runs scripts, one fresh sandbox each. `run` may be called from several threads; it never raises for a script."""

    @property
    def name(self) -> str: ...

    @property
    def identity(self) -> str:
        """Changes when what runs the scripts does: the backend, its interpreter or image, the packages."""
        ...

    @property
    def packages(self) -> tuple[str, ...]:
        """What a script can import, as `name==version`, read from the environment that runs it."""
        ...

    def preflight(self) -> Capabilities: ...

    def run(self, job: Job, cancel: Event | None = None) -> RunResult: ...

    def sweep(self) -> int:
        """Remove what dead owners left behind; returns how many things were removed."""
        ...
