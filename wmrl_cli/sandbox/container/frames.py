"""The engine's attach stream: frames of standard output and error, taken apart without ever holding a whole one."""

from __future__ import annotations

from wmrl_cli.sandbox.output import HeadTail

_HEADER = 8  # stream number, three zeros, length as four bytes


class Frames:
    """Feeds what comes from the engine to two sinks; raises ValueError where the stream is no sequence of frames."""

    def __init__(self, stdout: HeadTail, stderr: HeadTail) -> None:
        self._sinks = {1: stdout, 2: stderr}
        self._header = b""
        self._sink: HeadTail | None = None
        self._left = 0

    def feed(self, data: bytes) -> None:
        while data:
            if self._left:
                part, data = data[: self._left], data[self._left :]
                self._left -= len(part)
                if self._sink is not None:
                    self._sink.feed(part)
                continue
            missing = _HEADER - len(self._header)
            self._header, data = self._header + data[:missing], data[missing:]
            if len(self._header) == _HEADER:
                if self._header[0] > 2 or any(self._header[1:4]):
                    raise ValueError(f"the engine sent no frame but {self._header!r}")
                self._sink = self._sinks.get(self._header[0])
                self._left = int.from_bytes(self._header[4:], "big")
                self._header = b""
