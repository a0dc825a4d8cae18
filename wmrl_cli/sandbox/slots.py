"""Uids of our own for sandboxes that root starts: one for each run at a time, so that a limit counted per uid is a
run's own, and no run can signal another."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

FIRST_UID = 61_000
_SLOTS = 1000


@contextlib.contextmanager
def slot_uid(root: Path, is_root: bool) -> Iterator[int | None]:
    """A uid that no other run on this machine uses now; None where we are not root. Raises OSError: none is free."""
    if not is_root:
        yield None
        return
    folder = root / "slots"
    folder.mkdir(mode=0o700, exist_ok=True)
    for number in range(_SLOTS):
        descriptor = os.open(folder / str(number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        try:
            yield FIRST_UID + number
        finally:
            os.close(descriptor)  # also releases the lock
        return
    raise OSError(f"all {_SLOTS} sandbox slots of this machine are taken")
