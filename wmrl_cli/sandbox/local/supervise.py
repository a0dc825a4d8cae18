"""Starts one command under limits, watches it, and ends it with everything that it started.

A shell waits at a gate until its control group and rlimits are in place, then becomes the command: no code of
ours runs between fork and exec. The end is seen through a pidfd, never through the end of a pipe, which a
surviving grandchild could hold open.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from wmrl_cli.sandbox.base import Limits
from wmrl_cli.sandbox.cgroups import Group
from wmrl_cli.sandbox.evidence import Evidence, Stop, Watched
from wmrl_cli.sandbox.output import HeadTail
from wmrl_cli.sandbox.proctree import tree_usage
from wmrl_cli.sandbox.watch import FolderWatch

_GATE = 'read -r go && exec "$@" </dev/null'
_TICK_S = 0.05
_SAMPLE_S = 0.25
_KILL_S = 5.0  # how long a kill may take before the run counts as lost
_CHUNK = 1 << 18
_DRAIN_BYTES = 4 << 20  # read after the end: more than a pipe holds
_LINUX = sys.platform == "linux"


@dataclass(frozen=True, kw_only=True)
class Command:
    """What to start. `kill` ends the tree, given the pid that was started; it is called until that pid is gone.

    `after_end` then ends what may have outlived it, and is called until it says that nothing is left.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    kill: Callable[[int], None]
    limits: Limits
    rlimits: Mapping[int, tuple[int, int]]
    after_end: Callable[[], bool] = lambda: True
    group: Group | None = None
    pass_fds: Sequence[int] = ()
    after_start: Callable[[], None] = lambda: None  # closes our copies of `pass_fds`


def rlimits_of(limits: Limits, *, memory: bool) -> dict[int, tuple[int, int]]:
    """The limits that the kernel keeps for each process alone; `memory`: also its data segment."""
    found = {
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_FSIZE: (limits.file_bytes, limits.file_bytes),
        resource.RLIMIT_NOFILE: (4096, 4096),
    }
    if limits.cpu_s is not None:
        seconds = max(1, math.ceil(limits.cpu_s))
        found[resource.RLIMIT_CPU] = (seconds, seconds + 1)
    if memory:
        found[resource.RLIMIT_DATA] = (limits.memory_bytes, limits.memory_bytes)
    return found


def supervise(command: Command, cancel: Event | None, folder: FolderWatch) -> Watched:
    """Run the command to its end or its limits. Raises OSError where it cannot be started."""
    process = _start(command)
    try:
        return _Run(command, process, cancel, folder).watch()
    finally:
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def _start(command: Command) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        ["/bin/sh", "-c", _GATE, "wmrl-gate", *command.argv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=command.cwd,
        env=dict(command.env),
        pass_fds=tuple(command.pass_fds),
        start_new_session=True,
    )
    try:
        command.after_start()
        if command.group is not None:
            command.group.add(process.pid)
        if _LINUX:
            for kind, pair in command.rlimits.items():
                _lower_limit(process.pid, kind, pair)
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.close()
    except OSError:
        process.kill()
        process.wait()
        raise
    return process


def _lower_limit(pid: int, kind: int, pair: tuple[int, int]) -> None:
    hard = resource.prlimit(pid, kind)[1]
    soft, wanted = pair
    if hard != resource.RLIM_INFINITY and (wanted == resource.RLIM_INFINITY or wanted > hard):
        soft, wanted = min(soft, hard), hard
    resource.prlimit(pid, kind, (soft, wanted))


class _Run:
    """The watching of one process."""

    def __init__(
        self, command: Command, process: subprocess.Popen[bytes], cancel: Event | None, folder: FolderWatch
    ) -> None:
        self.command, self.process, self.cancel, self.folder = command, process, cancel, folder
        self.limits = command.limits
        self.started = time.monotonic()
        self.stdout = HeadTail(self.limits.output_head_bytes, self.limits.output_tail_bytes)
        self.stderr = HeadTail(self.limits.output_head_bytes, self.limits.output_tail_bytes)
        self.stop: Stop | None = None
        self.next_sample = self.started
        self.cpu_s = 0.0
        self.peak = 0
        self.status: int | None = None
        self.usage: resource.struct_rusage | None = None

    def watch(self) -> Watched:
        poller, pidfd = select.poll(), None
        sinks = {}
        for stream, sink in ((self.process.stdout, self.stdout), (self.process.stderr, self.stderr)):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            sinks[stream.fileno()] = sink
            poller.register(stream.fileno(), select.POLLIN)
        if _LINUX:
            pidfd = os.pidfd_open(self.process.pid)
            poller.register(pidfd, select.POLLIN)
        try:
            while not self._ended():
                self._read(poller, sinks)
                self.stop = self.stop or self._over_limit()
                if self.stop is not None:
                    break
            wall = time.monotonic() - self.started
            failure = self._kill()
            for descriptor, sink in sinks.items():
                _drain(descriptor, sink)
        finally:
            if pidfd is not None:
                os.close(pidfd)
        return Watched(evidence=self._evidence(wall, failure), stdout=self.stdout, stderr=self.stderr)

    def _read(self, poller: select.poll, sinks: dict[int, HeadTail]) -> None:
        for descriptor, _ in poller.poll(_TICK_S * 1000):
            if descriptor not in sinks:
                continue
            try:
                data = os.read(descriptor, _CHUNK)
            except BlockingIOError:
                continue
            if data:
                sinks[descriptor].feed(data)
            else:
                poller.unregister(descriptor)

    def _over_limit(self) -> Stop | None:
        now = time.monotonic()
        if self.cancel is not None and self.cancel.is_set():
            return Stop.CANCEL
        if now - self.started > self.limits.wall_s:
            return Stop.WALL
        if self.stdout.total + self.stderr.total > self.limits.output_kill_bytes:
            return Stop.OUTPUT
        if now >= self.next_sample:
            found = self._sample() or self.folder.over_limit(self.limits)
            self.next_sample = time.monotonic() + self._pause(cost_s=time.monotonic() - now)
            return found
        return None

    def _pause(self, *, cost_s: float) -> float:
        """Until the next sample: looking takes a sixth of our time at most, but never misses the limit of processor
        time. The kernel's own limit would end the script soon after, and nothing then tells it from its own exit."""
        pause = max(_SAMPLE_S, 5 * cost_s)
        if self.limits.cpu_s is None:
            return pause
        return min(pause, max(_TICK_S, (self.limits.cpu_s - self.cpu_s) / (os.cpu_count() or 1)))

    def _sample(self) -> Stop | None:
        """What a control group does not stop by itself, and all of it where there is no group."""
        if self.command.group is not None:
            self.cpu_s = self.command.group.usage().cpu_s or self.cpu_s
        if self.command.group is None or not self.cpu_s:
            cpu_s, memory = tree_usage(self.process.pid)
            self.cpu_s, self.peak = max(self.cpu_s, cpu_s), max(self.peak, memory)
            if self.command.group is None and memory > self.limits.memory_bytes:
                return Stop.MEMORY
        if self.limits.cpu_s is not None and self.cpu_s > self.limits.cpu_s:
            return Stop.CPU
        return None

    def _ended(self) -> bool:
        if self.status is None:
            try:
                pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid:
                self.status, self.usage = status, usage
                self.process.returncode = os.waitstatus_to_exitcode(status)
        return self.status is not None

    def _kill(self) -> str:
        """End the tree, also after a normal exit (it may have left children); in words, what could not be ended."""
        deadline = time.monotonic() + _KILL_S
        while not self._ended():
            self.command.kill(self.process.pid)
            if time.monotonic() > deadline:
                return f"process {self.process.pid} did not die within {_KILL_S:.0f} s"
            time.sleep(0.002)
        while not (self._group_empty() and self.command.after_end()):
            if time.monotonic() > deadline:
                return f"children of process {self.process.pid} did not die within {_KILL_S:.0f} s"
            time.sleep(0.002)
        return ""

    def _group_empty(self) -> bool:
        pids = self.command.group.pids() if self.command.group is not None else set()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        return not pids

    def _evidence(self, wall_s: float, failure: str) -> Evidence:
        code = None if self.status is None else os.waitstatus_to_exitcode(self.status)
        used = self.command.group.usage() if self.command.group is not None else None
        cpu_s, peak = self.cpu_s, self.peak
        if self.usage is not None:
            cpu_s = max(cpu_s, self.usage.ru_utime + self.usage.ru_stime)
            peak = max(peak, self.usage.ru_maxrss * (1024 if _LINUX else 1))
        return Evidence(
            failure=failure,
            stop=self.stop,
            exit_code=None if code is None else code if code >= 0 else 128 - code,
            wall_s=wall_s,
            cpu_s=used.cpu_s if used is not None and used.cpu_s is not None else cpu_s,
            cpu_limit_s=self.limits.cpu_s,
            peak_memory_bytes=used.memory_peak_bytes if used is not None and used.memory_peak_bytes else peak,
            oom_kills=used.oom_kills if used is not None else 0,
            refused_processes=used.refused_processes if used is not None else 0,
        )


def _drain(descriptor: int, sink: HeadTail) -> None:
    """What still lies in the pipe, but no more than a pipe can hold: a survivor could write for ever."""
    left = _DRAIN_BYTES
    with contextlib.suppress(BlockingIOError):
        while left > 0 and (data := os.read(descriptor, _CHUNK)):
            sink.feed(data)
            left -= len(data)
