"""The `docker` backend: a fresh container for every script, through the API of Docker Engine or Podman.

An image that is labelled `wmrl.skeleton` holds empty folders only; the machine's /usr and the interpreter's folders
are then bound into it read-only. Any other image brings its own `python`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import select
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import docker
import requests
from docker.errors import DockerException
from docker.types import DeviceRequest, LogConfig, Ulimit

from wmrl_cli.errors import UnavailableError
from wmrl_cli.sandbox.base import Capabilities, Ending, Job, Limits, RunResult
from wmrl_cli.sandbox.evidence import Evidence, Stop
from wmrl_cli.sandbox.frames import Frames
from wmrl_cli.sandbox.interpreter import Interpreter, script_environment
from wmrl_cli.sandbox.output import HeadTail
from wmrl_cli.sandbox.owner import is_dead, owner_name, scratch_root
from wmrl_cli.sandbox.packages import LISTING, installed_packages, read_listing
from wmrl_cli.sandbox.probe import PROBE, read_probe
from wmrl_cli.sandbox.proctree import tree_usage
from wmrl_cli.sandbox.runs import check_data, finish, lost
from wmrl_cli.sandbox.slots import slot_uid
from wmrl_cli.sandbox.supervise import Watched
from wmrl_cli.sandbox.watch import FolderWatch
from wmrl_cli.sandbox.workdir import SCRIPT, WorkFolder, sweep_folders, work_folder

NAME = "docker"
OWNER_LABEL = "wmrl.owner"
SKELETON_LABEL = "wmrl.skeleton"
WORK = "/job"
_TICK_S = 0.05
_SAMPLE_S = 0.25
_ASK_S = 2.0  # how often a silent container is asked whether it still runs
_KILL_S = 20.0
_LAST_WORDS_S = 2.0  # how long the end of the output may take after the end of the container
_API_S = 60
_PODMAN_PROCESSES = 32_768  # Podman cannot go above its own limit
_STARTS = threading.BoundedSemaphore(2)  # starting many at once makes all of them slow
_FAULTS = (DockerException, requests.RequestException, OSError)


@dataclass(frozen=True)
class Engine:
    """What is known about the engine and the image."""

    client: docker.DockerClient
    kind: str  # docker | podman
    image_id: str
    skeleton: bool


def connect(image: str) -> Engine:
    """The engine of the environment (DOCKER_HOST) and the image. Raises what docker-py raises."""
    client = docker.from_env(timeout=_API_S)
    version = client.version()
    names = [component.get("Name", "") for component in version.get("Components") or []]
    found = client.images.get(image)
    skeleton = SKELETON_LABEL in (found.labels or {})
    kind = "podman" if any("podman" in name.lower() for name in names) else "docker"
    return Engine(client, kind, str(found.id), skeleton)


class DockerSandbox:
    """Runs every script in a container of its own."""

    name = NAME

    def __init__(
        self,
        engine: Engine,
        interpreter: Interpreter,
        *,
        runtime: str | None = None,
        scratch: Path | None = None,
    ) -> None:
        """`interpreter` serves a skeleton image only; `runtime` is another container runtime, such as `runsc`."""
        self.engine, self.interpreter, self.runtime = engine, interpreter, runtime
        self._root = scratch_root(scratch)

    @functools.cached_property
    def identity(self) -> str:
        return f"{NAME} {self.engine.image_id} {self.interpreter.digest() if self.engine.skeleton else ''}"

    @functools.cached_property
    def packages(self) -> tuple[str, ...]:
        """Read from the interpreter, or from the image by running it. Raises UnavailableError."""
        if self.engine.skeleton:
            return installed_packages(self.interpreter.executable)
        data = self._root / "probe"
        data.mkdir(exist_ok=True)
        data.chmod(0o755)
        listing = self.run(Job(job_id="packages", script=LISTING, data_dir=data, limits=Limits(wall_s=120)))
        if listing.ending is not Ending.EXITED:
            raise UnavailableError(f"could not list the image's packages: {listing.detail or listing.stderr}")
        return read_listing(listing.stdout)

    def preflight(self) -> Capabilities:
        """Runs one probe; what it saw is what counts."""
        data = self._root / "probe"
        data.mkdir(exist_ok=True)
        data.chmod(0o755)
        result = self.run(Job(job_id="preflight", script=PROBE, data_dir=data, limits=Limits(wall_s=60, processes=64)))
        reason = ""
        if result.ending is not Ending.EXITED:
            reason = result.detail or result.stderr
        elif leaks := read_probe(result.stdout):
            reason = f"the sandbox leaks: {', '.join(leaks)}"
        if reason:
            return Capabilities(backend=NAME, available=False, reason=reason)
        return Capabilities(backend=NAME, available=True, enforcement=self._enforcement())

    def run(self, job: Job, cancel: Event | None = None) -> RunResult:
        try:
            with slot_uid(self._root, os.geteuid() == 0) as uid, work_folder(self._root, job, uid=uid) as work:
                check_data(job.data_dir.absolute(), other_user=uid is not None)
                os.mkdir("input", dir_fd=work.descriptor)
                watched = self._watched(job, cancel, work, uid)
                collected = work.collect(job)
            return finish(watched, collected, backend=NAME, enforcement=self._enforcement())
        except _FAULTS as error:
            return lost(NAME, self._enforcement(), f"the engine failed: {_first_line(error)}")

    def _watched(self, job: Job, cancel: Event | None, work: WorkFolder, uid: int | None) -> Watched:
        with _STARTS, contextlib.ExitStack() as held:
            container = held.enter_context(self._container(job, work, uid))
            stream = container.attach_socket(params={"stdout": 1, "stderr": 1, "stream": 1})
            held.callback(_close, stream)
            run = _ContainerRun(container, stream, job.limits, cancel, FolderWatch(str(work.path)))
            held.enter_context(run.listening())
            run.start()
            kept = held.pop_all()
        with kept:
            return run.watch()

    @contextlib.contextmanager
    def _container(self, job: Job, work: WorkFolder, uid: int | None) -> Iterator[Any]:
        """A created container, gone afterwards, by its name: also one that the engine made but never answered for."""
        client, name = self.engine.client, f"wmrl-{secrets.token_hex(8)}"
        try:
            yield client.containers.create(self.engine.image_id, name=name, **self._settings(job, work, uid))
        finally:
            with contextlib.suppress(*_FAULTS):  # one that will not go is left to the next sweep
                client.api.remove_container(name, force=True, v=True)

    def _settings(self, job: Job, work: WorkFolder, uid: int | None) -> dict[str, Any]:
        limits, user = job.limits, uid if uid is not None else os.geteuid()
        folders = {str(work.path): (WORK, "rw"), str(job.data_dir.absolute()): (f"{WORK}/input", "ro")}
        hidden: list[Path] = []
        python = "python"
        if self.engine.skeleton:
            folders |= {str(folder): (str(folder), "ro") for folder in (Path("/usr"), *self.interpreter.folders)}
            folders |= {path: (path, "ro") for path in ("/etc/ld.so.cache", "/etc/alternatives") if Path(path).exists()}
            hidden, python = list(self.interpreter.hidden), str(self.interpreter.executable)
        tmpfs = {"/tmp": f"size={limits.tmp_bytes},mode=1777", **{str(path): "ro,size=4k" for path in hidden}}
        return {
            "command": [python, SCRIPT],
            "user": f"{user}:{user}",
            "working_dir": WORK,
            "hostname": "sandbox",
            "environment": {**script_environment(cpus=limits.cpus, seed=job.seed, home="/tmp", gpu=job.gpu), **job.env},
            "labels": {OWNER_LABEL: owner_name()},
            "volumes": [f"{outside}:{inside}:{mode}" for outside, (inside, mode) in folders.items()],
            "network_mode": "none",
            "read_only": True,
            "tmpfs": tmpfs,
            "shm_size": limits.shm_bytes,
            "ipc_mode": "private",
            "init": True,
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges"],
            "mem_limit": limits.memory_bytes,
            "memswap_limit": limits.memory_bytes,
            "nano_cpus": int(min(limits.cpus, os.cpu_count() or 1) * 1e9),
            "pids_limit": limits.processes,
            # counted per user, so it bounds a run only where the user is the run's own
            "ulimits": _ulimits(limits, processes=limits.processes if uid is not None else _PODMAN_PROCESSES),
            "device_requests": [DeviceRequest(device_ids=[job.gpu], capabilities=[["gpu"]])] if job.gpu else None,
            "log_config": LogConfig(type="none"),
            "runtime": self.runtime,
        }

    def sweep(self) -> int:
        """Remove the containers and work folders of dead owners; an engine that is gone keeps its containers."""
        removed = sweep_folders(self._root)
        with contextlib.suppress(*_FAULTS):
            for container in self.engine.client.containers.list(all=True, filters={"label": OWNER_LABEL}):
                if is_dead(container.labels.get(OWNER_LABEL, "")):
                    container.remove(force=True, v=True)
                    removed += 1
        return removed

    def _enforcement(self) -> dict[str, str]:
        return {
            "isolation": self.runtime or "container",
            "engine": self.engine.kind,
            "image": self.engine.image_id.removeprefix("sha256:")[:12],
            "network": "none",
            "filesystem": "image+named-folders",
            "memory": "cgroup",
            "processes": "cgroup",
            "cpus": "cgroup",
            "disk": "watchdog",
            "seccomp": "engine-default",
            "uid": "slot" if os.geteuid() == 0 else "own",
        }


class _ContainerRun:
    """The watching of one container. Its output is taken by a thread from before the start until after the end,
    because the engine answers nothing about a container whose output nobody takes."""

    def __init__(self, container: Any, stream: Any, limits: Limits, cancel: Event | None, folder: FolderWatch) -> None:
        self.container, self.stream, self.limits, self.cancel, self.folder = container, stream, limits, cancel, folder
        self.stdout = HeadTail(limits.output_head_bytes, limits.output_tail_bytes)
        self.stderr = HeadTail(limits.output_head_bytes, limits.output_tail_bytes)
        self.frames = Frames(self.stdout, self.stderr)
        self.closed = Event()  # the engine closed the stream, which it does at the end
        self.cpu_s, self.peak, self.pid = 0.0, 0, 0
        self.started = self.next_sample = self.next_ask = time.monotonic()

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Take what the script prints, until the block ends or the stream does."""
        over = Event()
        reader = threading.Thread(target=self._listen, args=(over,), daemon=True)
        reader.start()
        try:
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
        self.pid = self._state().get("Pid") or 0

    def watch(self) -> Watched:
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
        return Watched(evidence=self._evidence(wall, stop, state), stdout=self.stdout, stderr=self.stderr)

    def _over_limit(self) -> Stop | None:
        now = time.monotonic()
        if self.cancel is not None and self.cancel.is_set():
            return Stop.CANCEL
        if now - self.started > self.limits.wall_s:
            return Stop.WALL
        if self.stdout.total + self.stderr.total > self.limits.output_kill_bytes:
            return Stop.OUTPUT
        if now < self.next_sample:
            return None
        cpu_s, memory = tree_usage(self.pid) if self.pid else (0.0, 0)
        self.cpu_s, self.peak = max(self.cpu_s, cpu_s), max(self.peak, memory)
        found = self.folder.over_limit(self.limits)
        self.next_sample = time.monotonic() + max(_SAMPLE_S, 5 * (time.monotonic() - now))
        return Stop.CPU if self.limits.cpu_s is not None and self.cpu_s > self.limits.cpu_s else found

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
        return Evidence(
            failure=str(state.get("Error") or ""),
            stop=stop,
            exit_code=state.get("ExitCode"),
            wall_s=wall_s,
            cpu_s=self.cpu_s or None,
            cpu_limit_s=self.limits.cpu_s,
            peak_memory_bytes=self.peak or None,
            oom_kills=1 if state.get("OOMKilled") else 0,
        )


def _ulimits(limits: Limits, *, processes: int) -> list[Ulimit]:
    found = [
        Ulimit(name="core", soft=0, hard=0),
        Ulimit(name="fsize", soft=limits.file_bytes, hard=limits.file_bytes),
        Ulimit(name="nofile", soft=4096, hard=4096),
        Ulimit(name="nproc", soft=processes, hard=processes),
    ]
    if limits.cpu_s is not None:
        seconds = max(1, -int(-limits.cpu_s // 1))
        found.append(Ulimit(name="cpu", soft=seconds, hard=seconds + 1))
    return found


def _close(stream: Any) -> None:
    """Close an attach stream and the connection below it, which docker-py keeps open for as long as it is known."""
    for part in (getattr(stream, "_response", None), getattr(stream, "_sock", None), stream):
        if part is not None:
            part.close()


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
