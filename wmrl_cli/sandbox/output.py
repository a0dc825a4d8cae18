"""What a script prints, bounded: the head and the tail are kept, the middle is only counted."""

from __future__ import annotations


class HeadTail:
    """A sink for bytes that never holds more than `head` + `tail` of them."""

    def __init__(self, head: int, tail: int) -> None:
        self._head_room, self._tail_room = head, tail
        self._head, self._tail = b"", b""
        self.total = 0  # bytes fed so far

    def feed(self, data: bytes) -> None:
        self.total += len(data)
        if room := self._head_room - len(self._head):
            self._head += data[:room]
            data = data[room:]
        if self._tail_room and data:
            whole = data if len(data) >= self._tail_room else self._tail + data
            self._tail = whole[-self._tail_room :]

    @property
    def left_out(self) -> int:
        return self.total - len(self._head) - len(self._tail)

    def text(self) -> str:
        """The head, a line that counts what was left out, the tail; bytes that are not UTF-8 become U+FFFD."""
        if not self.left_out:
            return (self._head + self._tail).decode(errors="replace")
        gap = f"\n[... {self.left_out} bytes left out ...]\n"
        return self._head.decode(errors="replace") + gap + self._tail.decode(errors="replace")
