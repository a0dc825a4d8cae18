"""What is kept of a script's output, and what of an engine's stream."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wmrl_cli.sandbox.container.frames import Frames
from wmrl_cli.sandbox.output import HeadTail


@given(st.lists(st.binary(max_size=40)), st.integers(0, 30), st.integers(0, 30))
def test_head_and_tail_are_kept_and_the_middle_is_counted(chunks, head, tail):
    sink, whole = HeadTail(head, tail), b"".join(chunks)
    for chunk in chunks:
        sink.feed(chunk)
    assert sink.total == len(whole)
    assert sink.left_out == max(0, len(whole) - head - tail)
    text = sink.text()
    if sink.left_out:
        end = whole[len(whole) - tail :]
        assert (
            text
            == f"{whole[:head].decode(errors='replace')}\n[... {sink.left_out} bytes left out ...]\n{end.decode(errors='replace')}"
        )
    else:
        assert text == whole.decode(errors="replace")


def frame(stream: int, data: bytes) -> bytes:
    return bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


@given(st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=30))), st.integers(1, 9))
def test_frames_come_apart_however_they_are_cut(parts, size):
    stdout, stderr = HeadTail(1 << 20, 0), HeadTail(1 << 20, 0)
    frames, stream = Frames(stdout, stderr), b"".join(frame(*part) for part in parts)
    for start in range(0, len(stream), size):
        frames.feed(stream[start : start + size])
    assert stdout.text().encode() == b"".join(d for s, d in parts if s == 1).decode(errors="replace").encode()
    assert stderr.total == sum(len(d) for s, d in parts if s == 2)


def test_what_is_no_frame_is_refused():
    with pytest.raises(ValueError, match="no frame"):
        Frames(HeadTail(9, 9), HeadTail(9, 9)).feed(b"HTTP/1.1 500")
