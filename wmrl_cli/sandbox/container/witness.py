"""What a container used, read from its own control group: an engine reports no refused fork, and Podman with
control groups of version 1 no lack of memory either.

The group is gone some 20 ms after the container's first process, and Docker ends the output later still. So the
last look is taken when that process ends (a pidfd says when), by a thread that waits for nothing else.
"""

from __future__ import annotations

import os
import select
import threading
from pathlib import Path
from threading import Event
from typing import Any

from wmrl_cli.sandbox.cgroups import V1, V2, Group, Usage, mounts_of, own_groups
from wmrl_cli.sandbox.container.engine import FAULTS

ENGINE = "engine"  # the evidence where the group cannot be seen
_SAMPLE_S = 0.25
_EARLY_S = 0.005
_JOIN_S = 2.0
_NOTHING = Usage(None, None, 0, 0)


def container_group(pid: int, container_id: str, proc: Path = Path("/proc")) -> Group | None:
    """The group of a container whose first process the engine calls `pid`.

    None where `pid` is no process of this container here: the engine may run elsewhere, or in a virtual machine,
    and mean another machine's process. So the group must carry the container's id in its path.
    """
    try:
        own = own_groups((proc / str(pid) / "cgroup").read_text())
        mounts = mounts_of((proc / "self" / "mountinfo").read_text())
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


class Places:
    """Where an engine puts its groups, learned from the first one that was found: there the next is looked for."""

    def __init__(self) -> None:
        self._known: tuple[Group, str] | None = None

    def learn(self, group: Group, container_id: str) -> None:
        self._known = group, container_id

    def of(self, container_id: str) -> Group | None:
        """Where the group of a container will be; None before anything was learned."""
        if self._known is None:
            return None
        group, other = self._known
        folders = {name: Path(str(folder).replace(other, container_id)) for name, folder in group.folders.items()}
        return Group(group.version, folders)


class Witness:
    """Looks at one container in a thread of its own, from before its start.

    `source` says where: `cgroup-v1`, `cgroup-v2`, or `engine` where no group can be seen. A script may be over
    before the engine has said that it started, so until then the group is looked for where it will be.
    """

    def __init__(self, container: Any, places: Places) -> None:
        self.container, self.places = container, places
        self.source, self.used = ENGINE, _NOTHING
        self._group, self._pidfd = places.of(container.id), -1
        self._started, self._over = Event(), Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Witness:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.finish()

    def started(self, pid: int) -> None:
        """The engine says that the first process is `pid`; 0: that it is over already."""
        pidfd = _open_pidfd(pid)  # before the id is looked at: from then on it is that process's or nobody's
        group = container_group(pid, self.container.id) if pidfd >= 0 else None
        if group is not None:
            self._group, self._pidfd = group, pidfd
            self.places.learn(group, self.container.id)
        elif pidfd >= 0:
            os.close(pidfd)
        self._started.set()

    def finish(self) -> None:
        """No more looking: what was seen is complete where the container has ended."""
        self._over.set()
        self._started.set()
        self._thread.join(_JOIN_S)  # an engine may take its time over a last question
        if self._pidfd >= 0 and not self._thread.is_alive():
            os.close(self._pidfd)
            self._pidfd = -1

    def _look(self) -> None:
        while not self._started.wait(_EARLY_S):
            self._see_group()
        if self._pidfd >= 0:
            self._look_until_the_end()
        elif self._see_group():
            while self._see_group() and not self._over.wait(_EARLY_S):
                pass
        elif self.source == ENGINE and not self._over.is_set():
            self._ask_the_engine()

    def _see_group(self) -> bool:
        used = _NOTHING if self._group is None else self._group.usage()
        if self._group is None or used == _NOTHING:
            return False
        self.source, self.used = self._group.version, _more(self.used, used)
        return True

    def _look_until_the_end(self) -> None:
        poller = select.poll()
        poller.register(self._pidfd, select.POLLIN)
        while True:
            self._see_group()
            if poller.poll(_SAMPLE_S * 1000):
                self._see_group()
                return
            if self._over.is_set():
                return

    def _ask_the_engine(self) -> None:
        while True:
            self.used = _more(self.used, _engine_usage(self.container))
            if self._over.wait(_SAMPLE_S):
                return


def _open_pidfd(pid: int) -> int:
    if not pid or not hasattr(os, "pidfd_open"):
        return -1
    try:
        return os.pidfd_open(pid)
    except OSError:
        return -1


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
