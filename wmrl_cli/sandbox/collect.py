"""Files that a hostile script may have left: the submission is read without following anything, the rest is removed.

Both are called only after every process of the script is dead, so nothing changes underneath.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from dataclasses import dataclass

from wmrl_cli.sandbox.base import SubmissionState

_READ_ONLY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True, kw_only=True)
class Collected:
    """What lay at the submission's place; `data` is null unless it was a plain file within the limit."""

    state: SubmissionState
    data: bytes | None = None
    reason: str = ""


def collect_submission(folder: int, name: str, max_bytes: int) -> Collected:
    """The submission `name` in the open folder `folder` (a descriptor, so that a swapped path changes nothing)."""
    try:
        descriptor = os.open(name, _READ_ONLY, dir_fd=folder)
    except FileNotFoundError:
        return Collected(state=SubmissionState.MISSING)
    except OSError as error:
        reason = f"`{name}` is a link" if error.errno == errno.ELOOP else f"`{name}` cannot be opened: {error.strerror}"
        return Collected(state=SubmissionState.REFUSED, reason=reason)
    try:
        if reason := _refusal(name, os.fstat(descriptor), max_bytes):
            return Collected(state=SubmissionState.REFUSED, reason=reason)
        data = _read(descriptor, max_bytes + 1)
    except OSError as error:
        return Collected(state=SubmissionState.REFUSED, reason=f"`{name}` cannot be read: {error.strerror}")
    finally:
        os.close(descriptor)
    if len(data) > max_bytes:
        return Collected(state=SubmissionState.REFUSED, reason=f"`{name}` is larger than {max_bytes} bytes")
    return Collected(state=SubmissionState.PRESENT, data=data)


def _refusal(name: str, found: os.stat_result, max_bytes: int) -> str:
    if not stat.S_ISREG(found.st_mode):
        kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"))
        kind = next((word for check, word in kinds if check(found.st_mode)), "a device")
        return f"`{name}` is {kind}, not a plain file"
    if found.st_nlink != 1:
        return f"`{name}` is a hard link"
    if found.st_size > max_bytes:
        return f"`{name}` is larger than {max_bytes} bytes"
    return ""


def _read(descriptor: int, most: int) -> bytes:
    chunks = []
    while most and (chunk := os.read(descriptor, min(most, 1 << 20))):
        chunks.append(chunk)
        most -= len(chunk)
    return b"".join(chunks)


def remove_tree(path: str | os.PathLike[str]) -> None:
    """Remove the folder `path` whole, however deep it is and whatever its modes are; links are never followed.

    A folder inside a folder is first moved up beside it, so depth costs neither recursion nor open files.
    """
    try:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            os.chmod(path, 0o700)
        top = os.open(path, _FOLDER)
    except FileNotFoundError:
        return
    try:
        moved, prefix = 0, f".{secrets.token_hex(8)}-"  # a name that nobody can have made before
        pending = [entry.name for entry in os.scandir(top) if not _unlinked(top, entry)]
        while pending:
            name = pending.pop()
            os.chmod(name, 0o700, dir_fd=top)
            inner = os.open(name, _FOLDER, dir_fd=top)
            try:
                for entry in list(os.scandir(inner)):
                    if not _unlinked(inner, entry):
                        os.chmod(entry.name, 0o700, dir_fd=inner)
                        moved += 1
                        os.rename(entry.name, up := f"{prefix}{moved}", src_dir_fd=inner, dst_dir_fd=top)
                        pending.append(up)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(path)


def _unlinked(folder: int, entry: os.DirEntry[str]) -> bool:
    if entry.is_dir(follow_symlinks=False):
        return False
    os.unlink(entry.name, dir_fd=folder)
    return True
