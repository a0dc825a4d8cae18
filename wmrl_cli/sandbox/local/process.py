"""The `unsafe-process` backend: limits, but no isolation. A script can read, write and reach what we can."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
from pathlib import Path
from threading import Event

from wmrl_cli.sandbox.base import Capabilities, Job, RunResult
from wmrl_cli.sandbox.cgroups import Found, find_hierarchy
from wmrl_cli.sandbox.interpreter import Interpreter, script_environment
from wmrl_cli.sandbox.local.supervise import Command, rlimits_of, supervise
from wmrl_cli.sandbox.owner import owner_name, scratch_root
from wmrl_cli.sandbox.packages import installed_packages
from wmrl_cli.sandbox.proctree import marked
from wmrl_cli.sandbox.runs import finish, give_copy, limited_group, lost
from wmrl_cli.sandbox.watch import FolderWatch
from wmrl_cli.sandbox.workdir import SCRIPT, sweep_folders, work_folder

NAME = "unsafe-process"
_MARK = "WMRL_RUN"


class ProcessSandbox:
    """Runs scripts as plain processes of this user."""

    name = NAME

    def __init__(self, interpreter: Interpreter, *, scratch: Path | None = None, cgroups: bool = True) -> None:
        self.interpreter = interpreter
        self._root = scratch_root(scratch)
        self._hierarchy, self._why_no_groups = find_hierarchy() if cgroups else Found(None)
        self._limits = self._hierarchy.version if self._hierarchy else ""

    @functools.cached_property
    def identity(self) -> str:
        return f"{NAME} {self.interpreter.digest()}"

    @functools.cached_property
    def packages(self) -> tuple[str, ...]:
        return installed_packages(self.interpreter.executable)

    def preflight(self) -> Capabilities:
        return Capabilities(backend=NAME, available=True, reason=self._why_no_groups, enforcement=self._enforcement())

    def run(self, job: Job, cancel: Event | None = None) -> RunResult:
        try:
            with work_folder(self._root, job) as work, limited_group(self._hierarchy, job) as group:
                limits = give_copy(job, work.path / "input")
                mark = f"{owner_name()}-{work.path.name}"
                environment = script_environment(cpus=limits.cpus, seed=job.seed, home=str(work.path), gpu=job.gpu)
                command = Command(
                    argv=[str(self.interpreter.executable), SCRIPT],
                    env={**environment, **job.env, _MARK: mark},
                    cwd=work.path,
                    kill=_kill_session,
                    after_end=lambda: _kill_marked(mark),
                    limits=limits,
                    rlimits=rlimits_of(limits, memory=group is None),
                    group=group,
                )
                watched = supervise(command, cancel, FolderWatch(str(work.path)))
                return finish(
                    watched, work.collect(job), backend=NAME, enforcement=self._enforcement(), hide=str(work.path)
                )
        except OSError as error:
            return lost(NAME, self._enforcement(), f"could not run: {error}")

    def sweep(self) -> int:
        return sweep_folders(self._root) + (self._hierarchy.sweep() if self._hierarchy else 0)

    def _enforcement(self) -> dict[str, str]:
        return {
            "isolation": "none",
            "network": "open",
            "filesystem": "open",
            "memory": self._limits or "rlimit+watchdog",
            "processes": self._limits or "none",
            "disk": "watchdog",
            "uid": "own",
        }


def _kill_session(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _kill_marked(mark: str) -> bool:
    """Kill children that left the session (they inherited the mark); True when none is left."""
    left = marked(f"{_MARK}={mark}")
    for pid in left:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return not left
