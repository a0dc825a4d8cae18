"""The server of the `unsafe-fork` backend: imports what scripts import, then forks a child for every script.

Run as a module: one JSON object a line on its standard input and output.
"""

from __future__ import annotations

import json
import math
import os
import resource
import select
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wmrl_cli.sandbox.workdir import SCRIPT

STDOUT, STDERR = ".stdout", ".stderr"  # in the work folder
PRE_IMPORTED = """
numpy pandas scipy.sparse scipy.stats sklearn.base sklearn.calibration sklearn.cluster sklearn.compose
sklearn.decomposition sklearn.discriminant_analysis sklearn.dummy sklearn.ensemble sklearn.feature_extraction.text
sklearn.feature_selection sklearn.gaussian_process sklearn.impute sklearn.kernel_ridge sklearn.linear_model
sklearn.metrics sklearn.model_selection sklearn.naive_bayes sklearn.neighbors sklearn.neural_network
sklearn.pipeline sklearn.preprocessing sklearn.svm sklearn.tree
""".split()


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
    memory_reader, memory_errors = os.pipe()
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        _become_script(request, memory_errors)
    os.close(memory_errors)
    watch = os.pidfd_open(child)
    poll = select.poll()
    poll.register(watch, select.POLLIN)
    finished = bool(poll.poll(request.wall_s * 1000))
    os.close(watch)
    os.set_blocking(memory_reader, False)
    _kill_group(child)  # the script if it is late, and whatever it started in any case
    _, status, used = os.wait4(child, 0)
    killer = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    return {
        "deadline": not finished,
        "memory_error": _was_told(memory_reader),
        "exit_code": None if killer else os.WEXITSTATUS(status),
        "signal": killer,
        "wall_s": time.monotonic() - started,
        "cpu_s": used.ru_utime + used.ru_stime,
        "peak_memory_bytes": used.ru_maxrss * 1024,
    }


def _was_told(reader: int) -> bool:
    try:
        return bool(os.read(reader, 1))
    except BlockingIOError:  # a child that left the group still holds the other end
        return False
    finally:
        os.close(reader)


def _kill_group(child: int) -> None:
    for kill in (os.killpg, os.kill):  # the child may not have made its group yet
        try:
            kill(child, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _become_script(request: _Request, memory_errors: int) -> None:
    """In the child: set the limits, run the script as `__main__`, leave. Never returns."""
    code = 1
    try:
        os.setpgid(0, 0)
        os.chdir(request.folder)
        _redirect()
        _restrict(request)
        os.environ.update(request.env, WMRL_SEED=str(request.seed))
        sys.modules["numpy"].random.seed(request.seed % 2**32)
        code = _run_file(SCRIPT, memory_errors)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _redirect() -> None:
    for descriptor, name in ((0, os.devnull), (1, STDOUT), (2, STDERR)):
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


def _run_file(name: str, memory_errors: int) -> int:
    """Run a Python file as `__main__`, its traceback as `python name` would have printed it; returns the exit code.

    Where the address space did not suffice, one byte goes to `memory_errors`: what is printed is no evidence.
    """
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
        if isinstance(error, MemoryError):
            os.write(memory_errors, b"m")
        return 1
    return 0


if __name__ == "__main__":
    serve()
