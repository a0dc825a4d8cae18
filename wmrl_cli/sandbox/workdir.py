"""The work folder of one run: made fresh, watched, and gone afterwards."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from wmrl_cli.sandbox.base import Job
from wmrl_cli.sandbox.collect import Collected, collect_submission, remove_tree
from wmrl_cli.sandbox.owner import is_dead, owner_name
from wmrl_cli.sandbox.seeding import write_seeding

SCRIPT = "solution.py"


@dataclass(frozen=True)
class WorkFolder:
    """An open work folder; `descriptor` keeps pointing at it whatever happens to its path."""

    path: Path
    descriptor: int

    def collect(self, job: Job) -> Collected:
        os.fchmod(self.descriptor, 0o700)  # the script may have closed it
        return collect_submission(self.descriptor, job.submission, job.limits.submission_bytes)


@contextlib.contextmanager
def work_folder(root: Path, job: Job, *, uid: int | None = None) -> Iterator[WorkFolder]:
    """A fresh folder below `root` that holds the script, owned by `uid` where given. Raises OSError."""
    path = fresh_folder(root)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        (path / SCRIPT).write_bytes(job.script.encode(errors="surrogatepass"))
        write_seeding(path)
        if uid is not None:
            os.chown(path / SCRIPT, uid, uid)
            os.chown(path, uid, uid)
        yield WorkFolder(path, descriptor)
    finally:
        os.fchmod(descriptor, 0o700)
        os.close(descriptor)
        remove_tree(path)
        with contextlib.suppress(OSError):  # another run of ours may still use it
            path.parent.rmdir()


def fresh_folder(root: Path) -> Path:
    """A new folder that is this process's own, so that the next `sweep_folders` finds it if we die. Raises OSError."""
    parent = root / owner_name()
    while True:  # another run of ours may remove `parent` as empty at any moment
        with contextlib.suppress(FileExistsError):
            os.mkdir(parent, 0o700)  # Path.mkdir(exist_ok=True) fails where the folder goes while it looks at it
        with contextlib.suppress(FileNotFoundError):
            return Path(tempfile.mkdtemp(prefix="run-", dir=parent))


def sweep_folders(root: Path) -> int:
    """Remove the work folders of dead owners; returns how many runs they held.

    Others may sweep too, at the same moment: a folder is first moved into one of ours, which only one can do.
    """
    removed = 0
    for folder in list(root.iterdir()) if root.is_dir() else ():
        if not is_dead(folder.name):
            continue
        ours = fresh_folder(root)
        with contextlib.suppress(FileNotFoundError):
            removed += len(list((folder.rename(ours / "dead")).iterdir()))
        remove_tree(ours)
        with contextlib.suppress(OSError):  # a run of ours uses it
            ours.parent.rmdir()
    return removed
