"""Control groups: hard limits on memory, processes and processor share of a whole process tree.

Version 2 where a subtree is delegated to us, version 1 where its controllers are writable (root), else none.
A group lies below the caller's own one, so limits from outside stay in force.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from wmrl_cli.sandbox.base import Limits
from wmrl_cli.sandbox.owner import is_dead, owner_name

V1, V2 = "cgroup-v1", "cgroup-v2"
_PREFIX = "wmrl-"
_PERIOD_US = 100_000
_WEIGHT = 4  # of one processor asked for, against any other process: a wall clock means little to a starved script
_REMOVE_S = 5.0
_LEAF = f"{_PREFIX}self"  # of version 2: where the processes of our own group go, one for all that start in it
_ROUNDS = 20  # a process may fork while its group is being emptied
_ASK_S = 10.0
_NEEDED = {"memory", "pids"}


@dataclass(frozen=True)
class Usage:
    """What a group used so far; null = its controller is not there."""

    cpu_s: float | None
    memory_peak_bytes: int | None
    oom_kills: int
    refused_processes: int


@dataclass(frozen=True)
class Hierarchy:
    """Where groups can be made: one folder for each controller (version 2: one for all)."""

    version: str
    folders: dict[str, Path]  # controller -> our parent folder

    def make(self, name: str, limits: Limits) -> Group:
        """A new group with the limits written. Raises OSError."""
        folder_name = f"{_PREFIX}{owner_name()}-{name}"
        group = Group(self.version, {c: parent / folder_name for c, parent in self.folders.items()})
        try:
            for folder in set(group.folders.values()):
                folder.mkdir()
            group.write_limits(limits)
        except OSError:
            group.remove()
            raise
        return group

    def sweep(self) -> int:
        """Remove the groups of dead owners, killing what still runs in them; returns how many."""
        removed = set()
        for controller, parent in self.folders.items():
            for folder in parent.glob(f"{_PREFIX}*"):
                owner = "-".join(folder.name.removeprefix(_PREFIX).split("-")[:3])
                if is_dead(owner):
                    Group(self.version, {controller: folder}).remove()
                    removed.add(folder.name)
        return len(removed)


@dataclass(frozen=True)
class Group:
    """One run's control group."""

    version: str
    folders: dict[str, Path]

    def write_limits(self, limits: Limits) -> None:
        quota = max(1000, int(limits.cpus * _PERIOD_US))
        if self.version == V2:
            self._write("memory", "memory.max", limits.memory_bytes)
            with contextlib.suppress(FileNotFoundError):  # no swap in this kernel
                self._write("memory", "memory.swap.max", 0)
            self._write("cpu", "cpu.max", f"{quota} {_PERIOD_US}")
            self._write("cpu", "cpu.weight", min(10_000, max(1, round(100 * _WEIGHT * limits.cpus))))
        else:
            self._write("memory", "memory.limit_in_bytes", limits.memory_bytes)
            with contextlib.suppress(FileNotFoundError):  # no swap accounting; must follow the limit above
                self._write("memory", "memory.memsw.limit_in_bytes", limits.memory_bytes)
            self._write("cpu", "cpu.cfs_period_us", _PERIOD_US)
            self._write("cpu", "cpu.cfs_quota_us", quota)
            self._write("cpu", "cpu.shares", min(262_144, max(2, round(1024 * _WEIGHT * limits.cpus))))
        self._write("pids", "pids.max", limits.processes)

    def add(self, pid: int) -> None:
        """Move a process into the group. Raises OSError."""
        for folder in set(self.folders.values()):
            (folder / "cgroup.procs").write_text(str(pid))

    def pids(self) -> set[int]:
        """Processes in the group now."""
        found: set[int] = set()
        for folder in set(self.folders.values()):
            with contextlib.suppress(OSError):
                found.update(int(pid) for pid in (folder / "cgroup.procs").read_text().split())
        return found

    def usage(self) -> Usage:
        if self.version == V2:
            cpu_us = self._count("memory", "cpu.stat", "usage_usec")  # counted with or without the cpu controller
            return Usage(
                cpu_s=None if cpu_us is None else cpu_us / 1e6,
                memory_peak_bytes=self._count("memory", "memory.peak"),
                oom_kills=self._count("memory", "memory.events", "oom_kill") or 0,
                refused_processes=self._count("pids", "pids.events", "max") or 0,
            )
        cpu_ns = self._count("cpuacct", "cpuacct.usage")
        return Usage(
            cpu_s=None if cpu_ns is None else cpu_ns / 1e9,
            memory_peak_bytes=self._count("memory", "memory.max_usage_in_bytes"),
            oom_kills=self._count("memory", "memory.oom_control", "oom_kill") or 0,
            refused_processes=self._count("pids", "pids.events", "max") or 0,
        )

    def remove(self) -> bool:
        """Kill what is in the group and remove it; False where something would not die in time."""
        deadline = time.monotonic() + _REMOVE_S
        while True:
            for pid in self.pids():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            busy = [folder for folder in set(self.folders.values()) if not _removed(folder)]
            if not busy:
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)

    def _write(self, controller: str, name: str, value: object) -> None:
        if controller in self.folders:
            # "r+" does not create: where the kernel has no such file, that is another error than being refused
            with (self.folders[controller] / name).open("r+") as file:
                file.write(str(value))

    def _count(self, controller: str, name: str, key: str | None = None) -> int | None:
        if controller not in self.folders:
            return None
        try:
            text = (self.folders[controller] / name).read_text()
        except OSError:
            return None
        if key is None:
            return int(text)
        return next((int(words[1]) for line in text.splitlines() if (words := line.split())[:1] == [key]), None)


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


class Found(NamedTuple):
    """What was found: where groups can be made, or, in words, why nowhere and what to do about it."""

    hierarchy: Hierarchy | None
    why_none: str = ""


def find_hierarchy(proc: Path = Path("/proc/self"), systemd: Path = Path("/run/systemd/system")) -> Found:
    """Where this process can make groups that bound memory and processes. `systemd` is there where it runs."""
    try:
        own = own_groups((proc / "cgroup").read_text())
        mounts = mounts_of((proc / "mountinfo").read_text())
    except OSError:
        return Found(None, "this system has no control groups")
    found = _version_2(own, mounts, systemd)
    if found.hierarchy is None and (hierarchy := _version_1(own, mounts)):
        return Found(hierarchy)
    return found


def own_groups(text: str) -> dict[str, str]:
    """Controller -> the path of our own group; the empty name is version 2."""
    groups = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            groups[controller] = path
    return groups


def mounts_of(text: str) -> dict[str, tuple[Path, str]]:
    """Controller -> (mount point, which group is mounted there); the empty name is version 2."""
    found: dict[str, tuple[Path, str]] = {}
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        root, point = before.split()[3:5]
        if kind == "cgroup2":
            found.setdefault("", (Path(point), root))
        elif kind == "cgroup":
            for option in options.split(","):
                found.setdefault(option, (Path(point), root))
    return found


def _folder(controller: str, own: dict[str, str], mounts: dict[str, tuple[Path, str]]) -> Path | None:
    if controller not in own or controller not in mounts:
        return None
    point, root = mounts[controller]
    inside = own[controller].removeprefix(root) if root != "/" else own[controller]
    folder = point / inside.strip("/")
    return folder if folder.is_dir() else point if point.is_dir() else None


def _version_1(own: dict[str, str], mounts: dict[str, tuple[Path, str]]) -> Hierarchy | None:
    folders = {}
    for controller in ("memory", "pids", "cpu", "cpuacct"):
        folder = _folder(controller, own, mounts)
        if folder is not None and os.access(folder, os.W_OK):
            folders[controller] = folder
    return Hierarchy(V1, folders) if folders.keys() >= _NEEDED else None


def _version_2(own: dict[str, str], mounts: dict[str, tuple[Path, str]], systemd: Path) -> Found:
    """A delegated subtree: its processes move into a leaf, because a group with processes cannot share out."""
    folder = _folder("", own, mounts)
    if folder is not None and folder.name == _LEAF:  # an earlier start moved us
        folder = folder.parent
    have = _words(folder / "cgroup.controllers") if folder else set()
    if folder is None or not have >= _NEEDED or not _is_ours(folder, systemd):
        if systemd.is_dir() and "" in mounts and _words(mounts[""][0] / "cgroup.controllers") >= _NEEDED:
            start = f"systemd-run {'--user ' if os.geteuid() else ''}--scope -p Delegate=yes wmrl ..."
            return Found(None, f"no control group is delegated to this process: start it with `{start}`")
        return Found(None, "no control group that bounds memory and processes may be written here")
    wanted = sorted(have & {"memory", "pids", "cpu"})
    try:
        _share_out(folder, wanted)
    except OSError as error:
        return Found(None, f"the control group `{folder}` cannot be shared out: {error.strerror}")
    return Found(Hierarchy(V2, dict.fromkeys(wanted, folder)))


def _words(file: Path) -> set[str]:
    try:
        return set(file.read_text().split())
    except OSError:
        return set()


def _is_ours(folder: Path, systemd: Path) -> bool:
    """Whether groups below `folder` are for us to make. Where systemd does not run, the right to write is enough.

    Elsewhere that right says too little: from a unit without `Delegate=yes`, systemd takes the controllers away again
    when it reloads its settings, and with them the limits of the runs inside.
    """
    if not os.access(folder / "cgroup.procs", os.W_OK):
        return False
    if not systemd.is_dir() or folder.suffix not in (".scope", ".service"):
        return True
    command = ["systemctl", "show", "--property=Delegate", "--value", "--", folder.name]
    environment = dict(os.environ)
    if user := re.search(r"/user@(\d+)\.service/", str(folder)):  # a unit of that user's own manager
        command.insert(1, "--user")
        environment["XDG_RUNTIME_DIR"] = f"/run/user/{user[1]}"
    try:
        said = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_ASK_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return said.stdout.strip() == "yes"


def _share_out(folder: Path, controllers: list[str]) -> None:
    """Let groups below `folder` have limits. Raises OSError where it holds processes that cannot be moved."""
    if set(controllers) <= _words(folder / "cgroup.subtree_control"):
        return
    order = " ".join(f"+{controller}" for controller in controllers)
    for _ in range(_ROUNDS):
        try:
            (folder / "cgroup.subtree_control").write_text(order)
            return
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
        _move_all(folder, folder / _LEAF)
    raise OSError(errno.EBUSY, "new processes came faster than they could be moved")


def _move_all(folder: Path, leaf: Path) -> None:
    """Move what is in the delegated group (a shell around us, our children) one level down. Raises OSError."""
    pids = _words(folder / "cgroup.procs")
    if "0" in pids:
        raise OSError(errno.EBUSY, "it holds processes of another pid namespace")
    leaf.mkdir(exist_ok=True)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it ended meanwhile
            (leaf / "cgroup.procs").write_text(pid)
