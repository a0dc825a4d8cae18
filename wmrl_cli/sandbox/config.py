"""How scripts are really executed, as a user sets it."""

from __future__ import annotations

from dataclasses import dataclass

from wmrl_cli.sandbox.base import GIB, Limits

_OWN_PROCESSES = 8  # a sandbox starts some of its own beside the script, and they count


@dataclass(frozen=True, kw_only=True)
class SandboxConfig:
    """How scripts are really executed."""

    backend: str = "auto"  # auto | docker | bubblewrap | unsafe-process | unsafe-fork
    slots: int = 2  # scripts that run at once
    wall_s: float = 30.0  # seconds of one script, from its start
    cpu_s: float | None = None  # its processor seconds; null: only the wall clock counts
    memory_gib: float = 2.0  # of all its processes together, with what lies in /tmp and /dev/shm
    cpus: float = 1.0  # processors that it may keep busy
    processes: int = 256  # processes and threads
    disk_gib: float = 2.0  # its work folder
    file_gib: float = 1.0  # one file
    files: int = 100_000
    tmp_gib: float = 0.25  # /tmp
    shm_gib: float = 0.25  # /dev/shm, through which data loaders pass batches
    count_unfinished: bool = False  # a submission that was written before a time-out or a crash earns its worth
    show_score: bool = True  # whether the agent reads its score and position, also the predicted ones in training
    gpu_gib: float | None = None  # memory of one GPU lease; null: no GPU
    python: str | None = None  # interpreter that runs the scripts; null: the running one
    image: str | None = None  # docker's; null: what `wmrl doctor --build-image` makes
    runtime: str | None = None  # docker's, such as `runsc`

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, (int, float)) and not isinstance(value, bool) and not value > 0:
                raise ValueError(f"`{name}` must be above 0: got {value}")

        if self.processes < _OWN_PROCESSES:
            raise ValueError(
                f"`processes` must be at least {_OWN_PROCESSES}, for the sandbox's own: got {self.processes}"
            )

    @property
    def limits(self) -> Limits:
        return Limits(
            wall_s=self.wall_s,
            cpu_s=self.cpu_s,
            memory_bytes=int(self.memory_gib * GIB),
            cpus=self.cpus,
            processes=self.processes,
            disk_bytes=int(self.disk_gib * GIB),
            file_bytes=int(self.file_gib * GIB),
            files=self.files,
            tmp_bytes=int(self.tmp_gib * GIB),
            shm_bytes=int(self.shm_gib * GIB),
        )
