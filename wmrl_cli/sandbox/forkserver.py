"""A fork server that runs thousands of trusted scripts quickly, and isolates nothing.

A server process imports pandas and scikit-learn once and forks a child for every script, so that a small
script costs its own work and not the second that its imports take. What a script can reach, it reaches: the
file system, the network, this user's processes. It serves to build the embedded model and for wide
experiments with scripts that a small grammar wrote; everything else belongs into a real sandbox.

The server speaks one JSON object a line on its standard input and output. It is this file, run as a module.
"""

from __future__ import annotations

import json
import math
import os
import queue
import resource
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from wmrl_cli.sandbox.base import Capabilities, Ending, Job, Limits, RunResult, SubmissionState
from wmrl_cli.sandbox.packages import installed_packages
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
PRE_IMPORTED = """
numpy pandas scipy.sparse scipy.stats sklearn.base sklearn.calibration sklearn.cluster sklearn.compose
sklearn.decomposition sklearn.discriminant_analysis sklearn.dummy sklearn.ensemble sklearn.feature_extraction.text
sklearn.feature_selection sklearn.gaussian_process sklearn.impute sklearn.kernel_ridge sklearn.linear_model
sklearn.metrics sklearn.model_selection sklearn.naive_bayes sklearn.neighbors sklearn.neural_network
sklearn.pipeline sklearn.preprocessing sklearn.svm sklearn.tree
""".split()
_GRACE_S = 20.0  # how long the server may outlive a job's own deadline before it counts as lost
_NO_SIGNAL = 0


class ForkSandbox:
    """The `unsafe-fork` backend: one server a concurrent caller, started when first needed, reused afterwards."""

    def __init__(self, scratch: Path | None = None) -> None:
        self._scratch = Path(tempfile.mkdtemp(prefix="wmrl-fork-", dir=scratch))
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
            return _result(Ending.CANCELLED, detail="cancelled before it started")
        server = self._lease()
        folder = Path(tempfile.mkdtemp(prefix="job-", dir=self._scratch))
        try:
            shutil.copytree(job.data_dir, folder / "input")  # a link would let one script spoil the task for all
            (folder / "script.py").write_text(job.script)
            answer = server.ask({"folder": str(folder), "seed": job.seed, "env": dict(job.env), **_limits(job.limits)})
            result = _evidence(answer, folder, job)
        except (OSError, ValueError, _ServerLost) as error:
            server.stop()
            return _result(Ending.LOST, detail=f"the fork server did not answer: {error}")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self._idle.put(server)
        return result

    def sweep(self) -> int:
        """Work folders live in one folder of this object's own, and `close` removes it: nothing is left to sweep."""
        return 0

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
            [sys.executable, "-m", "wmrl_cli.sandbox.forkserver"],
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


def _evidence(answer: dict[str, Any], folder: Path, job: Job) -> RunResult:
    """The run's result from what the server saw and what lies in the work folder."""
    limits, killer = job.limits, answer["signal"]
    stdout, out_bytes = _read_bounded(folder / ".stdout", limits)
    stderr, err_bytes = _read_bounded(folder / ".stderr", limits)
    used_all_cpu = limits.cpu_s is not None and answer["cpu_s"] >= limits.cpu_s * 0.98
    if answer["deadline"] or killer in (signal.SIGPROF, signal.SIGXCPU) or (killer == signal.SIGKILL and used_all_cpu):
        ending = Ending.TIMEOUT
    elif killer == signal.SIGXFSZ:
        ending = Ending.RESOURCE_LIMIT
    elif killer == signal.SIGKILL or stderr.rstrip().rpartition("\n")[2].startswith(
        ("MemoryError", "numpy._core._exceptions._Array")
    ):
        ending = Ending.OUT_OF_MEMORY
    else:
        ending = Ending.EXITED if answer["exit_code"] == 0 else Ending.FAILED
    submission, state = _collect(folder / job.submission, limits.submission_bytes)
    return _result(
        ending,
        exit_code=answer["exit_code"],
        signal=killer or None,
        wall_s=answer["wall_s"],
        cpu_s=answer["cpu_s"],
        peak_memory_bytes=answer["peak_memory_bytes"],
        stdout=stdout,
        stderr=stderr,
        output_bytes=out_bytes + err_bytes,
        submission=submission,
        submission_state=state,
    )


def _result(ending: Ending, **measured: Any) -> RunResult:
    return RunResult(ending=ending, backend=NAME, enforcement=ENFORCEMENT, **measured)


def _read_bounded(path: Path, limits: Limits) -> tuple[str, int]:
    """Head and tail of a file as text, and its length in bytes."""
    if not path.exists():
        return "", 0
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= limits.output_head_bytes + limits.output_tail_bytes:
            return file.read().decode(errors="replace"), size
        head = file.read(limits.output_head_bytes)
        file.seek(size - limits.output_tail_bytes)
        tail = file.read()
    left_out = size - len(head) - len(tail)
    return f"{head.decode(errors='replace')}\n[{left_out} bytes left out]\n{tail.decode(errors='replace')}", size


def _collect(path: Path, limit: int) -> tuple[bytes | None, SubmissionState]:
    """The submission's bytes, if a regular file of a sane size with one name lies there."""
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None, SubmissionState.MISSING
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or found.st_size > limit:
        return None, SubmissionState.REFUSED
    return path.read_bytes(), SubmissionState.PRESENT


# ---- the server's side ----


@dataclass(frozen=True)
class _Request:
    folder: str
    seed: int
    env: dict[str, str]
    wall_s: float
    cpu_s: float | None
    memory_bytes: int
    file_bytes: int


def serve() -> None:
    """Answer requests until the input closes."""
    for module in PRE_IMPORTED:
        __import__(module)
    for line in sys.stdin:
        request = _Request(**json.loads(line))
        sys.stdout.write(json.dumps(_fork_and_wait(request)) + "\n")
        sys.stdout.flush()


def _fork_and_wait(request: _Request) -> dict[str, Any]:
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        _become_script(request)
    watch = os.pidfd_open(child)
    poll = select.poll()
    poll.register(watch, select.POLLIN)
    finished = bool(poll.poll(request.wall_s * 1000))
    os.close(watch)
    _kill_group(child)  # the script if it is late, and whatever it started in any case
    _, status, used = os.wait4(child, 0)
    killer = os.WTERMSIG(status) if os.WIFSIGNALED(status) else _NO_SIGNAL
    return {
        "deadline": not finished,
        "exit_code": None if killer else os.WEXITSTATUS(status),
        "signal": killer,
        "wall_s": time.monotonic() - started,
        "cpu_s": used.ru_utime + used.ru_stime,
        "peak_memory_bytes": used.ru_maxrss * 1024,
    }


def _kill_group(child: int) -> None:
    for kill in (os.killpg, os.kill):  # the child may not have made its group yet
        try:
            kill(child, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _become_script(request: _Request) -> None:
    """In the child: set the limits, run the script as `__main__`, leave. Never returns."""
    code = 1
    try:
        os.setpgid(0, 0)
        os.chdir(request.folder)
        _redirect()
        _restrict(request)
        os.environ.update(request.env, WMRL_SEED=str(request.seed))
        sys.modules["numpy"].random.seed(request.seed % 2**32)
        code = _run_file("script.py")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _redirect() -> None:
    for descriptor, name in ((0, os.devnull), (1, ".stdout"), (2, ".stderr")):
        flags = os.O_RDONLY if descriptor == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        opened = os.open(name, flags, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def _restrict(request: _Request) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (request.file_bytes, request.file_bytes))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it, and the script would go on
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    inherited = pages * resource.getpagesize()  # the imports' address space is not the script's doing
    resource.setrlimit(resource.RLIMIT_AS, (inherited + request.memory_bytes,) * 2)
    if request.cpu_s is not None:
        # The timer is exact but counts this process only; the limit counts whole seconds, of its children too.
        signal.setitimer(signal.ITIMER_PROF, request.cpu_s)
        whole = math.ceil(request.cpu_s) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (whole, whole))


def _run_file(name: str) -> int:
    """Run a Python file as `__main__`, its traceback as `python name` would have printed it; returns the exit code."""
    main = type(sys)("__main__")
    main.__file__ = name
    sys.modules["__main__"], sys.argv, sys.path[0] = main, [name], os.getcwd()
    try:
        exec(compile(Path(name).read_bytes(), name, "exec"), main.__dict__)
    except SystemExit as leave:
        if leave.code is None or isinstance(leave.code, int):
            return leave.code or 0
        print(leave.code, file=sys.stderr)
        return 1
    except BaseException as error:  # the boundary: whatever the script raised is its own
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != name:
            trace = trace.tb_next
        traceback.print_exception(type(error), error.with_traceback(trace), trace)
        return 1
    return 0


if __name__ == "__main__":
    serve()
