"""Who owns what lies about: every scratch folder, control group and container names the process that made it.

A process id alone may be used again, so an owner is (pid namespace, pid, start time). What a dead owner left
behind is removed at the next start.
"""

from __future__ import annotations

import functools
import os
import stat
import tempfile
from pathlib import Path

from wmrl_cli.errors import UnavailableError


def owner_name() -> str:
    """This process as an owner: `namespace-pid-starttime`."""
    return f"{_namespace()}-{os.getpid()}-{start_time(os.getpid()) or 0}"


def is_dead(owner: str) -> bool:
    """Whether `owner` is a process of this pid namespace that is gone; False for what we cannot judge."""
    namespace, _, rest = owner.partition("-")
    pid, _, started = rest.partition("-")
    if namespace != _namespace() or not (pid.isdigit() and started.isdigit()):
        return False
    if int(started):
        return start_time(int(pid)) != int(started)
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def start_time(pid: int) -> int | None:
    """Start of a process in clock ticks since boot; None where there is none (or no /proc)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[19])


@functools.cache
def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        return "0"


def scratch_root(folder: Path | None = None) -> Path:
    """The private folder (mode 0700) in which runs get their work folders. Raises UnavailableError."""
    root = folder or Path(tempfile.gettempdir()) / f"wmrl-{os.geteuid()}"
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = root.lstat()
    except OSError as error:
        raise UnavailableError(f"could not make the scratch folder `{root}`: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise UnavailableError(f"the scratch folder `{root}` is not ours", "set TMPDIR to a folder of your own")
    return root
