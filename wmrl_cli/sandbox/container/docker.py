"""The `docker` backend: a fresh container for every script, through the API of Docker Engine or Podman.

An image that is labelled `wmrl.skeleton` holds empty folders only; the machine's /usr and the interpreter's folders
are then bound into it read-only. Any other image brings its own `python`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

from docker.types import LogConfig, Mount, Ulimit

from wmrl_cli.errors import UnavailableError
from wmrl_cli.sandbox.base import Capabilities, Ending, Job, Limits, RunResult
from wmrl_cli.sandbox.container.engine import FAULTS, Engine, words_of
from wmrl_cli.sandbox.container.run import ContainerRun, WatchedContainer, close_stream
from wmrl_cli.sandbox.container.witness import ENGINE, Places
from wmrl_cli.sandbox.interpreter import Interpreter, script_environment
from wmrl_cli.sandbox.owner import is_dead, owner_name, scratch_root
from wmrl_cli.sandbox.packages import LISTING, installed_packages, read_listing
from wmrl_cli.sandbox.probe import PROBE, probed_kernel, read_probe
from wmrl_cli.sandbox.runs import check_data, finish, lost
from wmrl_cli.sandbox.seccomp import profile
from wmrl_cli.sandbox.slots import slot_uid
from wmrl_cli.sandbox.watch import FolderWatch
from wmrl_cli.sandbox.workdir import SCRIPT, WorkFolder, sweep_folders, work_folder

NAME = "docker"
OWNER_LABEL = "wmrl.owner"
WORK = "/job"
_PODMAN_PROCESSES = 32_768  # Podman cannot go above its own limit
_STARTS = threading.BoundedSemaphore(2)  # starting many at once makes all of them slow


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
        self._places = Places()
        self._own_kernel = runtime is not None  # until the preflight has asked

    @functools.cached_property
    def identity(self) -> str:
        return f"{NAME} {self.engine.image_id} {self.interpreter.digest() if self.engine.skeleton else ''}"

    @functools.cached_property
    def packages(self) -> tuple[str, ...]:
        """Read from the interpreter, or from the image by running it. Raises UnavailableError."""
        if self.engine.skeleton:
            return installed_packages(self.interpreter.executable)
        listing = self.run(self._own_job("packages", LISTING, Limits(wall_s=120)))
        if listing.ending is not Ending.EXITED:
            raise UnavailableError(f"could not list the image's packages: {listing.detail or listing.stderr}")
        return read_listing(listing.stdout)

    def preflight(self) -> Capabilities:
        """Runs one probe; what it saw is what counts."""
        result = self.run(self._own_job("preflight", PROBE, Limits(wall_s=60, processes=64)))
        reason = ""
        if result.ending is not Ending.EXITED:
            said = result.stderr.strip().splitlines()[-1:]
            reason = self._why_lost(" | ".join([result.detail, *said]))
        else:
            self._own_kernel = bool(self.engine.kernel) and probed_kernel(result.stdout) != self.engine.kernel
            if leaks := read_probe(result.stdout, filtered=not self._own_kernel):
                reason = f"the sandbox leaks: {', '.join(leaks)}"
        if reason:
            return Capabilities(backend=NAME, available=False, reason=reason)
        evidence = result.enforcement["evidence"]
        return Capabilities(backend=NAME, available=True, enforcement=self._enforcement(evidence))

    def _own_job(self, name: str, script: str, limits: Limits) -> Job:
        return Job(job_id=name, script=script, data_dir=self._folder("probe"), limits=limits)

    def _folder(self, name: str) -> Path:
        """An empty folder of ours that every user may read, for binding."""
        folder = self._root / name
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
        return folder

    def _why_lost(self, detail: str) -> str:
        """An engine that cannot find our folder, which it then names, has other folders than we have."""
        if str(self._root) not in detail:
            return detail
        engine = f"{self.engine.kind} {self.engine.version} at `{self.engine.address}`"
        return f"{engine} does not see this machine's folder `{self._root}`: use one that runs here ({detail})"

    def run(self, job: Job, cancel: Event | None = None) -> RunResult:
        try:
            with slot_uid(self._root, os.geteuid() == 0) as uid, work_folder(self._root, job, uid=uid) as work:
                check_data(job.data_dir.absolute(), other_user=uid is not None)
                os.mkdir("input", dir_fd=work.descriptor)
                watched = self._watched(job, cancel, work, uid)
                collected = work.collect(job)
            return finish(watched, collected, backend=NAME, enforcement=self._enforcement(watched.source))
        except UnavailableError as error:
            return lost(NAME, self._enforcement(), error.message)
        except FAULTS as error:
            return lost(NAME, self._enforcement(), f"the engine failed: {words_of(error)}")

    def _watched(self, job: Job, cancel: Event | None, work: WorkFolder, uid: int | None) -> WatchedContainer:
        with _STARTS, contextlib.ExitStack() as held:
            container = held.enter_context(self._container(job, work, uid))
            stream = container.attach_socket(params={"stdout": 1, "stderr": 1, "stream": 1})
            held.callback(close_stream, stream)
            run = ContainerRun(container, stream, job.limits, cancel, FolderWatch(str(work.path)), self._places)
            held.enter_context(run.listening())
            run.start()
            kept = held.pop_all()
        with kept:
            return run.watch()

    @contextlib.contextmanager
    def _container(self, job: Job, work: WorkFolder, uid: int | None) -> Iterator[Any]:
        """A created container, gone afterwards, by its name: also one that the engine made but never answered for."""
        client, name = self.engine.client, f"wmrl-{secrets.token_hex(8)}"
        settings = self._settings(job, work, uid)
        try:
            container = client.containers.create(self.engine.image_id, name=name, **settings)
            _check_limits(container.attrs.get("HostConfig") or {}, settings)
            yield container
        finally:
            with contextlib.suppress(*FAULTS):  # one that will not go is left to the next sweep
                client.api.remove_container(name, force=True, v=True)

    def _settings(self, job: Job, work: WorkFolder, uid: int | None) -> dict[str, Any]:
        limits, user = job.limits, uid if uid is not None else os.geteuid()
        # the threads of a kernel of its own count too: too few of them, and it dies with a script that is no bomb
        processes = 4 * limits.processes + 64 if self._own_kernel else limits.processes
        places = {WORK: work.path, f"{WORK}/input": job.data_dir.absolute()}
        python = "python"
        if self.engine.skeleton:
            system = [path for path in (Path("/etc/ld.so.cache"), Path("/etc/alternatives")) if path.exists()]
            places |= {str(path): path for path in (Path("/usr"), *system, *self.interpreter.folders)}
            # not a tmpfs, into which Podman copies what it shall hide
            places |= dict.fromkeys(map(str, self.interpreter.hidden), self._folder("empty"))
            python = str(self.interpreter.executable)
        return {
            "entrypoint": [python, SCRIPT],  # an image's own would run first, and print
            "healthcheck": {"test": ["NONE"]},
            "user": f"{user}:{user}",
            "working_dir": WORK,
            "hostname": "sandbox",
            "environment": {**script_environment(cpus=limits.cpus, seed=job.seed, home="/tmp", gpu=job.gpu), **job.env},
            "labels": {OWNER_LABEL: owner_name()},
            # mounts, not volumes: of a folder that it cannot find an engine would make an empty one
            "mounts": [
                Mount(target, str(source), type="bind", read_only=target != WORK) for target, source in places.items()
            ],
            "network_mode": "none",
            "read_only": True,
            "tmpfs": {"/tmp": f"size={limits.tmp_bytes},mode=1777"},
            "shm_size": limits.shm_bytes,
            "ipc_mode": "private",
            "init": True,
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges", *self._own_filter],
            "mem_limit": limits.memory_bytes,
            "memswap_limit": limits.memory_bytes,
            "nano_cpus": int(min(limits.cpus, os.cpu_count() or 1) * 1e9),
            "pids_limit": processes,
            # counted per user, so it bounds a run only where the user is the run's own; above the limit of the
            # control group, which is then the one that is met, and which counts what it refuses
            "ulimits": _ulimits(limits, processes=processes + 16 if uid is not None else _PODMAN_PROCESSES),
            "device_requests": [self.engine.gpu_request(job.gpu)] if job.gpu else None,
            "log_config": LogConfig(type="none"),
            "runtime": self.runtime,
        }

    def _filter_name(self) -> str:
        if self._own_kernel:
            return "own-kernel"
        return "on" if self._own_filter else "engine-default"

    @functools.cached_property
    def _own_filter(self) -> list[str]:
        """Podman's own filter of system calls lets a script make user namespaces and mount inside them."""
        if self.engine.kind != "podman":
            return []
        path, scratch = self._root / "seccomp.json", self._root / f"seccomp-{secrets.token_hex(8)}"
        scratch.write_text(profile())
        os.replace(scratch, path)  # never half a file, whoever else starts now
        return [f"seccomp={path}"]

    def sweep(self) -> int:
        """Remove the containers and work folders of dead owners; an engine that is gone keeps its containers."""
        removed = sweep_folders(self._root)
        found: list[Any] = []
        with contextlib.suppress(*FAULTS):
            found = self.engine.client.containers.list(all=True, filters={"label": OWNER_LABEL})
        for container in found:
            if is_dead(container.labels.get(OWNER_LABEL, "")):
                with contextlib.suppress(*FAULTS):  # one that will not go keeps no other
                    container.remove(force=True, v=True)
                    removed += 1
        return removed

    def _enforcement(self, evidence: str = ENGINE) -> dict[str, str]:
        """`evidence`: where it was seen what a script used and was refused, as a control group or by the engine."""
        return {
            "isolation": self.runtime or "container",
            "engine": f"{self.engine.kind} {self.engine.version}",
            "evidence": evidence,
            "image": self.engine.image_id.removeprefix("sha256:")[:12],
            "network": "none",
            "filesystem": "image+named-folders",
            "memory": "cgroup",
            "processes": "cgroup-of-host-threads" if self._own_kernel else "cgroup",
            "cpus": "cgroup",
            "disk": "watchdog",
            "seccomp": self._filter_name(),
            "uid": "slot" if os.geteuid() == 0 else "own",
        }


def _check_limits(kept: dict[str, Any], settings: dict[str, Any]) -> None:
    """An engine that may not limit (a rootless one, often) drops the limit with a warning. Raises UnavailableError."""
    for name, wanted in (("Memory", settings["mem_limit"]), ("PidsLimit", settings["pids_limit"])):
        if kept.get(name) != wanted:
            raise UnavailableError(f"the engine does not keep the limit `{name}`: {kept.get(name)} instead of {wanted}")


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
