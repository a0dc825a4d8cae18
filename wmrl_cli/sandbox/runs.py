"""What every local backend does around a run: its control group before, its result after."""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from wmrl_cli.sandbox.base import Ending, Job, Limits, RunResult
from wmrl_cli.sandbox.cgroups import Group, Hierarchy
from wmrl_cli.sandbox.collect import Collected
from wmrl_cli.sandbox.evidence import Watched, ending_of


@functools.cache
def check_data(folder: Path, *, other_user: bool) -> None:
    """Refuse data that a script could not read: its failure would be ours. Looked at once. Raises OSError.

    `other_user`: whether the script runs as another user, to whom only the rights of all others apply.
    """
    if not folder.is_dir():
        raise OSError(f"the data folder `{folder}` does not exist")
    for path in (folder, *folder.rglob("*")):
        if path.is_symlink():
            continue
        wanted = 0o005 if path.is_dir() else 0o004
        may = path.stat().st_mode & wanted == wanted if other_user else os.access(path, os.R_OK)
        if not may:
            raise OSError(f"the sandbox's user may not read `{path}`: `chmod -R o+rX {folder}`")


def give_copy(job: Job, folder: Path) -> Limits:
    """Copy the job's data to `folder`, for backends that cannot bind it read-only: a link would let one script spoil
    the task for all. Returns the job's limits, widened by what the copy itself takes. Raises OSError."""
    shutil.copytree(job.data_dir, folder)
    sizes = [path.stat().st_blocks * 512 for path in folder.rglob("*")]
    limits = job.limits
    return replace(limits, disk_bytes=limits.disk_bytes + sum(sizes), files=limits.files + len(sizes) + 1)


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
