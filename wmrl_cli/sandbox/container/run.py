"""The watching of one container: its output, its limits and its end."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Event
from typing import Any

from docker.errors import DockerException

from wmrl_cli.sandbox.base import Limits
from wmrl_cli.sandbox.container.frames import Frames
from wmrl_cli.sandbox.container.witness import Places, Witness
from wmrl_cli.sandbox.evidence import Evidence, Stop, Watched
from wmrl_cli.sandbox.output import HeadTail
from wmrl_cli.sandbox.watch import FolderWatch

_TICK_S = 0.05
_SAMPLE_S = 0.25
_ASK_S = 2.0  # how often a silent container is asked whether it still runs
_KILL_S = 20.0
_LAST_WORDS_S = 2.0  # how long the end of the output may take after the end of the container


@dataclass(frozen=True, kw_only=True)
class WatchedContainer(Watched):
    """What was seen of one container, and `source`, where: in its control group, or as the engine told it."""

    source: str


class ContainerRun:
    """The watching of one container. Its output is taken by a thread from before the start until after the end,
    because the engine answers nothing about a container whose output nobody takes."""

    def __init__(
        self,
        container: Any,
        stream: Any,
        limits: Limits,
        cancel: Event | None,
        folder: FolderWatch,
        places: Places,
    ) -> None:
        self.container, self.stream, self.limits, self.cancel, self.folder = container, stream, limits, cancel, folder
        self.witness = Witness(container, places)
        self.stdout = HeadTail(limits.output_head_bytes, limits.output_tail_bytes)
        self.stderr = HeadTail(limits.output_head_bytes, limits.output_tail_bytes)
        self.frames = Frames(self.stdout, self.stderr)
        self.closed = Event()  # the engine closed the stream, which it does at the end
        self.started = self.next_sample = self.next_ask = time.monotonic()

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Take what the script prints and see what it uses, until the block ends or the container does."""
        over = Event()
        reader = threading.Thread(target=self._listen, args=(over,), daemon=True)
        reader.start()
        try:
            with self.witness:
                yield
        finally:
            over.set()
            reader.join()

    def _listen(self, over: Event) -> None:
        poller = select.poll()
        poller.register(self.stream.fileno(), select.POLLIN)
        try:
            while not over.is_set():
                if not poller.poll(_TICK_S * 1000):
                    continue
                data = os.read(self.stream.fileno(), 1 << 18)
                if not data:
                    return
                self.frames.feed(data)
        except (OSError, ValueError):
            return  # the connection broke: what becomes of the container is asked from the engine
        finally:
            self.closed.set()

    def start(self) -> None:
        self.container.start()
        self.started = self.next_sample = self.next_ask = time.monotonic()
        self.witness.started(self._state().get("Pid") or 0)

    def watch(self) -> WatchedContainer:
        stop = None
        while stop is None and not self.closed.wait(_TICK_S):
            stop = self._over_limit()
            if stop is None and time.monotonic() >= self.next_ask:
                self.next_ask = time.monotonic() + _ASK_S
                if not self._state().get("Running"):
                    break
        wall = time.monotonic() - self.started
        state = self._end(killed=stop is not None)
        self.closed.wait(_LAST_WORDS_S)
        self.witness.finish()
        return WatchedContainer(
            evidence=self._evidence(wall, stop, state),
            stdout=self.stdout,
            stderr=self.stderr,
            source=self.witness.source,
        )

    def _over_limit(self) -> Stop | None:
        now, cpu_s = time.monotonic(), self.witness.used.cpu_s or 0.0
        if self.cancel is not None and self.cancel.is_set():
            return Stop.CANCEL
        if now - self.started > self.limits.wall_s:
            return Stop.WALL
        if self.limits.cpu_s is not None and cpu_s > self.limits.cpu_s:
            return Stop.CPU
        if self.stdout.total + self.stderr.total > self.limits.output_kill_bytes:
            return Stop.OUTPUT
        if now < self.next_sample:
            return None
        found = self.folder.over_limit(self.limits)
        self.next_sample = time.monotonic() + max(_SAMPLE_S, 5 * (time.monotonic() - now))
        return found

    def _end(self, *, killed: bool) -> dict[str, Any]:
        """The container's state once it has ended, killing it where it has not. Raises what docker-py raises."""
        deadline, cut_off = time.monotonic() + _KILL_S, ""
        while True:
            if killed or cut_off:
                with contextlib.suppress(DockerException):  # it ended meanwhile
                    self.container.kill()
            state = self._state()
            if not state.get("Running") and state.get("Status") != "created":
                return {**state, "Error": cut_off or state.get("Error")}
            if time.monotonic() > deadline:
                return {"Error": f"the container did not end within {_KILL_S:.0f} s"}
            if not killed and time.monotonic() > deadline - _KILL_S / 2:
                cut_off = "the engine ended the output of a container that still ran"
            time.sleep(0.02)

    def _state(self) -> dict[str, Any]:
        self.container.reload()
        return dict(self.container.attrs["State"])

    def _evidence(self, wall_s: float, stop: Stop | None, state: dict[str, Any]) -> Evidence:
        used = self.witness.used
        return Evidence(
            failure=str(state.get("Error") or ""),
            stop=stop,
            exit_code=state.get("ExitCode"),
            wall_s=wall_s,
            cpu_s=used.cpu_s,
            cpu_limit_s=self.limits.cpu_s,
            peak_memory_bytes=used.memory_peak_bytes,
            oom_kills=max(used.oom_kills, 1 if state.get("OOMKilled") else 0),
            refused_processes=used.refused_processes,
        )


def close_stream(stream: Any) -> None:
    """Close an attach stream and the connection below it, which docker-py keeps open for as long as it is known."""
    for part in (getattr(stream, "_response", None), getattr(stream, "_sock", None), stream):
        if part is not None:
            part.close()
