"""The processes below one process, read from /proc: for machines without control groups."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def tree_usage(root: int) -> tuple[float, int]:
    """Processor seconds (of the living, and of dead children that were waited for) and resident bytes below `root`."""
    cpu, memory = 0, 0
    stats = _stats()
    for pid in _below(root, {pid: int(fields[1]) for pid, fields in stats.items()}):
        fields = stats[pid]
        cpu += sum(int(value) for value in fields[11:15])
        memory += int(fields[21])
    return cpu / _TICKS, memory * _PAGE


def _stats() -> dict[int, list[str]]:
    """pid -> the words of /proc/pid/stat after the name: 0 state, 1 parent, 11-14 times, 21 resident pages."""
    found = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        return {}
    for name in names:
        if name.isdigit():
            try:
                found[int(name)] = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it ended meanwhile
    return found


def _below(root: int, parents: dict[int, int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found, pending = set(), [root]
    while pending:
        pid = pending.pop()
        if pid in parents and pid not in found:
            found.add(pid)
            pending += children.get(pid, [])
    return found


def marked(variable: str) -> set[int]:
    """Our own processes whose environment holds `variable` (`NAME=value`): also a child that left its session."""
    wanted, found = variable.encode(), set()
    try:
        names = os.listdir("/proc")
    except OSError:
        return set()
    for name in names:
        if name.isdigit() and int(name) != os.getpid():
            try:
                if wanted in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                    found.add(int(name))
            except OSError:
                continue
    return found
