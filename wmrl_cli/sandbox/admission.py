"""How much this machine can really give: limits that it cannot keep are refused before the first script runs."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from wmrl_cli.errors import ConfigError
from wmrl_cli.sandbox.base import GIB, Limits


def check_limits(limits: Limits, slots: int, *, memory_bytes: int | None = None, cpus: int | None = None) -> None:
    """Refuse limits larger than the machine (or than the given size of one). Raises ConfigError.

    All slots together must fit into memory, because one script's out-of-memory would else be another's fault.
    """
    memory, cores = memory_bytes or machine_memory(), cpus or os.cpu_count() or 1
    if slots < 1:
        raise ConfigError(f"at least one script must run at once: got `slots = {slots}`")
    if limits.memory_bytes > memory:
        raise ConfigError(
            f"one script may use {_gib(limits.memory_bytes)}, but this machine has {_gib(memory)}",
            "lower `memory_gib` in the section `sandbox` of `--config`",
        )
    if limits.memory_bytes * slots > memory:
        fit = memory // limits.memory_bytes
        raise ConfigError(
            f"{slots} scripts at once, {_gib(limits.memory_bytes)} each, need more than this machine's {_gib(memory)}",
            f"at most {fit} fit: `--slots {fit}`, or lower `memory_gib`",
        )
    if limits.cpus > cores:
        raise ConfigError(
            f"one script may use {limits.cpus:g} processors, but this machine has {cores}",
            f"set `cpus = {cores}` in the section `sandbox`",
        )


def machine_memory() -> int:
    """Bytes of memory: the machine's, or less where our own control group allows less."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # absent, or "max"
            total = min(total, int(Path(path).read_text()))
    return total


def _gib(size: int) -> str:
    return f"{size / GIB:.3g} GiB"
