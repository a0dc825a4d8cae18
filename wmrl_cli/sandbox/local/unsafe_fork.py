"""A fork server that runs thousands of trusted scripts quickly, and isolates nothing.

A server process imports pandas and scikit-learn once and forks a child for every script, so that a small
script costs its own work and not the second that its imports take. What a script can reach, it reaches: the
file system, the network, this user's processes. It serves to build the embedded model and for wide
experiments with scripts that a small grammar wrote; everything else belongs into a real sandbox.

The server is `forkserver`, run as a module: one JSON object a line on its standard input and output.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from threading import Event
from typing import Any

from wmrl_cli.sandbox.base import Capabilities, Ending, Job, Limits, RunResult
from wmrl_cli.sandbox.collect import Collected, collect_submission
from wmrl_cli.sandbox.evidence import Evidence, Stop, Watched
from wmrl_cli.sandbox.local.forkserver import STDERR, STDOUT
from wmrl_cli.sandbox.output import HeadTail
from wmrl_cli.sandbox.owner import scratch_root
from wmrl_cli.sandbox.packages import installed_packages
from wmrl_cli.sandbox.runs import finish, give_copy, lost
from wmrl_cli.sandbox.workdir import SCRIPT, fresh_folder, sweep_folders
from wmrl_cli.seeds import digest

NAME = "unsafe-fork"
ENFORCEMENT = {
    "isolation": "none",
    "network": "open",
    "filesystem": "open",
    "wall": "kill",
    "cpu": "itimer+rlimit",
    "memory": "rlimit-as",
    "warm_imports": "yes",  # times leave out the imports, unlike those of every other backend
}
_GRACE_S = 20.0  # how long the server may outlive a job's own deadline before it counts as lost


class ForkSandbox:
    """The `unsafe-fork` backend: one server a concurrent caller, started when first needed, reused afterwards."""

    def __init__(self, scratch: Path | None = None) -> None:
        self._root = scratch_root(scratch)
        self._scratch = fresh_folder(self._root)
        self._idle: queue.LifoQueue[_Server] = queue.LifoQueue()
        self._servers: list[_Server] = []
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return NAME

    @property
    def identity(self) -> str:
        return f"{NAME} {digest(list(installed_packages()))}"

    @property
    def packages(self) -> tuple[str, ...]:
        return installed_packages()

    def preflight(self) -> Capabilities:
        if not hasattr(os, "pidfd_open"):
            return Capabilities(backend=NAME, available=False, reason="forking and watching children needs Linux")
        return Capabilities(backend=NAME, available=True, enforcement=ENFORCEMENT)

    def run(self, job: Job, cancel: Event | None = None) -> RunResult:
        """Run one script; `cancel` is looked at before the start only, since these scripts last seconds."""
        if cancel is not None and cancel.is_set():
            return RunResult(ending=Ending.CANCELLED, detail="cancelled before it started", backend=NAME)
        server = self._lease()
        folder = Path(tempfile.mkdtemp(prefix="job-", dir=self._scratch))
        try:
            limits = give_copy(job, folder / "input")
            (folder / SCRIPT).write_text(job.script)
            answer = server.ask({"folder": str(folder), "seed": job.seed, "env": dict(job.env), **_limits(limits)})
            result = finish(
                _watched(answer, folder, limits), _collected(folder, job), backend=NAME, enforcement=ENFORCEMENT
            )
        except (OSError, ValueError, _ServerLost) as error:
            server.stop()
            return lost(NAME, ENFORCEMENT, f"the fork server did not answer: {error}")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self._idle.put(server)
        return result

    def sweep(self) -> int:
        return sweep_folders(self._root)

    def close(self) -> None:
        """Stop the servers and remove the scratch folder."""
        with self._lock:
            for server in self._servers:
                server.stop()
            self._servers.clear()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def __enter__(self) -> ForkSandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lease(self) -> _Server:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            server = _Server()
            with self._lock:
                self._servers.append(server)
            return server


class _ServerLost(Exception):
    """The server died or is silent."""


class _Server:
    """The client's end of one server process; used by one thread at a time."""

    def __init__(self) -> None:
        # One thread a library: children are counted in processor seconds, and OpenMP pools do not survive a fork.
        threads = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "NUMEXPR")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "wmrl_cli.sandbox.local.forkserver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **threads, "PYTHONHASHSEED": "0"},
            process_group=0,  # Ctrl-C is the client's: the server ends when its input closes
        )

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise _ServerLost("it is dead") from error
        ready, _, _ = select.select([self._process.stdout], [], [], question["wall_s"] + _GRACE_S)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            raise _ServerLost("it is dead" if ready else "it is silent")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def _limits(limits: Limits) -> dict[str, Any]:
    return {
        "wall_s": limits.wall_s,
        "cpu_s": limits.cpu_s,
        "memory_bytes": limits.memory_bytes,
        "file_bytes": limits.file_bytes,
    }


def _collected(folder: Path, job: Job) -> Collected:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return collect_submission(descriptor, job.submission, job.limits.submission_bytes)
    finally:
        os.close(descriptor)


def _watched(answer: dict[str, Any], folder: Path, limits: Limits) -> Watched:
    """What the server saw and what lies in the work folder, as the evidence that every backend gives."""
    killer, stop = answer["signal"], None
    if answer["deadline"]:
        stop = Stop.WALL
    elif killer in (signal.SIGPROF, signal.SIGXCPU):
        stop = Stop.CPU
    elif killer == signal.SIGXFSZ:
        stop = Stop.DISK
    elif answer["memory_error"]:
        stop = Stop.MEMORY
    evidence = Evidence(
        stop=stop,
        exit_code=128 + killer if killer else answer["exit_code"],
        wall_s=answer["wall_s"],
        cpu_s=answer["cpu_s"],
        cpu_limit_s=limits.cpu_s,
        peak_memory_bytes=answer["peak_memory_bytes"],
    )
    printed = {name: _printed(folder / name, limits) for name in (STDOUT, STDERR)}
    return Watched(evidence=evidence, stdout=printed[STDOUT], stderr=printed[STDERR])


def _printed(path: Path, limits: Limits) -> HeadTail:
    sink = HeadTail(limits.output_head_bytes, limits.output_tail_bytes)
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        while data := file.read(1 << 20):
            sink.feed(data)
    return sink
