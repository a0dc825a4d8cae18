"""How a run ended, from evidence alone: first match wins, and nothing that the script printed counts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from wmrl_cli.sandbox.base import Ending
from wmrl_cli.sandbox.output import HeadTail

_CPU_TOLERANCE = 0.95  # the kernel counts an rlimit in whole ticks


class Stop(StrEnum):
    """Why we stopped a run."""

    CANCEL = "cancelled"
    WALL = "wall time"
    CPU = "processor time"
    DISK = "disk"
    FILES = "number of files"
    OUTPUT = "output"
    MEMORY = "memory"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What was measured about one run. `failure` is ours: it could not start, or its end could not be confirmed."""

    failure: str = ""
    stop: Stop | None = None
    exit_code: int | None = None  # 128 + n for signal n
    wall_s: float | None = None
    cpu_s: float | None = None
    cpu_limit_s: float | None = None
    peak_memory_bytes: int | None = None
    oom_kills: int = 0
    refused_processes: int = 0  # forks that the process limit refused

    @property
    def signal(self) -> int | None:
        return self.exit_code - 128 if self.exit_code is not None and 128 < self.exit_code < 193 else None


@dataclass(frozen=True, kw_only=True)
class Watched:
    """What was seen of one run, and what it printed."""

    evidence: Evidence
    stdout: HeadTail
    stderr: HeadTail


def ending_of(seen: Evidence) -> tuple[Ending, str]:
    """The ending and, in words, why."""
    if seen.stop is Stop.CANCEL:
        return (Ending.LOST, seen.failure) if seen.failure else (Ending.CANCELLED, "cancelled")
    if seen.failure:
        return Ending.LOST, seen.failure
    if seen.stop in (Stop.WALL, Stop.CPU):
        return Ending.TIMEOUT, f"stopped at its limit of {seen.stop}"
    if seen.exit_code and _used_up_cpu(seen):
        return Ending.TIMEOUT, f"stopped at its limit of {Stop.CPU}"
    if seen.stop in (Stop.DISK, Stop.FILES, Stop.OUTPUT):
        return Ending.RESOURCE_LIMIT, f"stopped at its limit of {seen.stop}"
    if seen.stop is Stop.MEMORY or (seen.exit_code and seen.oom_kills):
        return Ending.OUT_OF_MEMORY, f"stopped at its limit of {Stop.MEMORY}"
    if seen.exit_code and seen.refused_processes:
        return Ending.RESOURCE_LIMIT, "failed at its limit of processes"
    if seen.exit_code is None:
        return Ending.LOST, "ended without an exit code"
    if seen.exit_code:
        return Ending.FAILED, f"exit code {seen.exit_code}"
    return Ending.EXITED, ""


def _used_up_cpu(seen: Evidence) -> bool:
    return seen.cpu_limit_s is not None and seen.cpu_s is not None and seen.cpu_s >= seen.cpu_limit_s * _CPU_TOLERANCE
