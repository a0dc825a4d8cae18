"""Ctrl-C reaches runs that were started from other threads: the signal's handler is told about them first."""

from __future__ import annotations

import signal
import threading
import weakref
from types import FrameType
from typing import Any, Protocol


class Cancellable(Protocol):
    def cancel(self) -> None: ...


_watched: weakref.WeakSet[Any] = weakref.WeakSet()
_previous: Any = None


def cancel_on_interrupt(target: Cancellable) -> None:
    """Let Ctrl-C call `target.cancel()` before whatever it did so far. Without effect outside the main thread."""
    global _previous
    _watched.add(target)
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is _handle:
        return
    _previous = signal.signal(signal.SIGINT, _handle)


def _handle(number: int, frame: FrameType | None) -> None:
    for target in list(_watched):
        target.cancel()
    if callable(_previous):
        _previous(number, frame)
    elif _previous != signal.SIG_IGN:
        raise KeyboardInterrupt
