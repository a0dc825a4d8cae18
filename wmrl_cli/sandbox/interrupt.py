"""The end of this process reaches runs that other threads started: by Ctrl-C at once, else when it exits."""

from __future__ import annotations

import atexit
import signal
import threading
import weakref
from types import FrameType
from typing import Any, Protocol


class Closable(Protocol):
    def cancel(self) -> None: ...

    def close(self) -> None: ...


_watched: weakref.WeakSet[Any] = weakref.WeakSet()
_previous: Any = None


def end_with_process(target: Closable) -> None:
    """Let Ctrl-C call `target.cancel()` before whatever it did so far, and the exit call `target.close()`.

    Outside the main thread only the exit does: Python lets no other thread handle a signal.
    """
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


@atexit.register
def _close_all() -> None:
    """A thread's `join` that Ctrl-C broke is not taken up again at exit, so the runs are waited for here."""
    for target in list(_watched):
        target.close()
