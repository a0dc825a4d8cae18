"""What every local backend does around a run: its control group before, its result after."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Mapping

from wmrl_cli.sandbox.base import Ending, Job, RunResult
from wmrl_cli.sandbox.cgroups import Group, Hierarchy
from wmrl_cli.sandbox.collect import Collected
from wmrl_cli.sandbox.evidence import ending_of
from wmrl_cli.sandbox.supervise import Watched


@contextlib.contextmanager
def limited_group(hierarchy: Hierarchy | None, job: Job) -> Iterator[Group | None]:
    """A control group for one run, gone afterwards; None where there are none here. Raises OSError."""
    if hierarchy is None:
        yield None
        return
    group = hierarchy.make(secrets.token_hex(6), job.limits)
    try:
        yield group
    finally:
        group.remove()


def finish(
    watched: Watched, collected: Collected, *, backend: str, enforcement: Mapping[str, str], hide: str = ""
) -> RunResult:
    """The result of a watched run; `hide` is a path of ours that is shown as `.` in what was printed."""
    seen = watched.evidence
    ending, detail = ending_of(seen)
    texts = [sink.text() for sink in (watched.stdout, watched.stderr)]
    stdout, stderr = (text.replace(f"{hide}/", "").replace(hide, ".") if hide else text for text in texts)
    return RunResult(
        ending=ending,
        exit_code=seen.exit_code,
        signal=seen.signal,
        wall_s=seen.wall_s,
        cpu_s=seen.cpu_s,
        peak_memory_bytes=seen.peak_memory_bytes or None,
        stdout=stdout,
        stderr=stderr,
        output_bytes=watched.stdout.total + watched.stderr.total,
        submission=collected.data,
        submission_state=collected.state,
        detail=detail or collected.reason,
        backend=backend,
        enforcement=enforcement,
    )


def lost(backend: str, enforcement: Mapping[str, str], why: str) -> RunResult:
    """The result of a run that we could not do."""
    return RunResult(ending=Ending.LOST, detail=why, backend=backend, enforcement=enforcement)
