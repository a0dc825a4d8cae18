"""What a container used, read from its own control group: an engine reports no refused fork, and Podman with
control groups of version 1 no lack of memory either.

The group is gone some 20 ms after the container's first process, and Docker ends the output later still. So the
last look is taken when that process ends (a pidfd says when), by a thread that waits for nothing else.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

from wmrl_cli.sandbox.cgroups import V1, V2, Group, Usage, _mounts, _own_groups
from wmrl_cli.sandbox.container_engine import FAULTS

ENGINE = "engine"  # the evidence where the group cannot be seen
_SAMPLE_S = 0.25
_JOIN_S = 2.0
_NOTHING = Usage(None, None, 0, 0)


def container_group(pid: int, container_id: str, proc: Path = Path("/proc")) -> Group | None:
    """The group of a container whose first process the engine calls `pid`.

    None where `pid` is no process of this container here: the engine may run elsewhere, or in a virtual machine,
    and mean another machine's process. So the group must carry the container's id in its path.
    """
    try:
        own = _own_groups((proc / str(pid) / "cgroup").read_text())
        mounts = _mounts((proc / "self" / "mountinfo").read_text())
    except OSError:
        return None
    folders = {}
    for controller, path in own.items():
        if container_id in path and ".." not in path and controller in mounts:
            point, root = mounts[controller]
            folder = point / path.removeprefix(root.rstrip("/")).strip("/")
            if folder.is_dir():
                folders[controller] = folder
    if {"memory", "pids"} <= folders.keys():
        return Group(V1, folders)
    if "" in folders and (folders[""] / "memory.events").exists():
        return Group(V2, dict.fromkeys(("memory", "pids", "cpu"), folders[""]))
    return None


class Witness:
    """What was seen so far. `source` says where: `cgroup-v1`, `cgroup-v2` or `engine`."""

    def __init__(self, source: str) -> None:
        self.source, self.used, self.over = source, _NOTHING, Event()

    def look(self, read: Callable[[], Usage], pidfd: int | None) -> None:
        """Look again and again, and for the last time when the process of `pidfd` ends (null: when we say so)."""
        poller = select.poll()
        if pidfd is not None:
            poller.register(pidfd, select.POLLIN)
        while True:
            self.used = _more(self.used, read())
            if pidfd is None:
                if self.over.wait(_SAMPLE_S):
                    return
            elif poller.poll(_SAMPLE_S * 1000):
                self.used = _more(self.used, read())
                return
            elif self.over.is_set():
                return


@contextlib.contextmanager
def witnessed(container: Any, pid: int) -> Iterator[Witness]:
    """Watch a container that was started; what was seen is complete after the block."""
    pidfd = _open_pidfd(pid)  # before the id is looked at: from then on it is that process's or nobody's
    group = container_group(pid, container.id) if pidfd is not None else None
    if pidfd is not None and group is None:
        os.close(pidfd)
        pidfd = None
    witness = Witness(group.version if group else ENGINE)
    read = group.usage if group else functools.partial(_engine_usage, container)
    thread = threading.Thread(target=witness.look, args=(read, pidfd), daemon=True)
    thread.start()
    try:
        yield witness
    finally:
        witness.over.set()
        thread.join(_JOIN_S)  # an engine may take its time over a last question
        if pidfd is not None:
            os.close(pidfd)


def _open_pidfd(pid: int) -> int | None:
    if not pid or not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _engine_usage(container: Any) -> Usage:
    """What the engine's statistics say, which leave out refused forks and, mostly, the peak of memory."""
    try:
        said = container.stats(stream=False, one_shot=True)
    except (*FAULTS, ValueError):  # it ended meanwhile: Podman then answers with nothing
        return _NOTHING
    cpu_ns = said.get("cpu_stats", {}).get("cpu_usage", {}).get("total_usage")
    memory = said.get("memory_stats", {})
    return Usage(cpu_ns / 1e9 if cpu_ns else None, memory.get("max_usage") or memory.get("usage"), 0, 0)


def _more(one: Usage, other: Usage) -> Usage:
    return Usage(
        max(one.cpu_s or 0.0, other.cpu_s or 0.0) or None,
        max(one.memory_peak_bytes or 0, other.memory_peak_bytes or 0) or None,
        max(one.oom_kills, other.oom_kills),
        max(one.refused_processes, other.refused_processes),
    )
