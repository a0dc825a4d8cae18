"""How scripts are really executed, as a user sets it."""

from __future__ import annotations

from dataclasses import dataclass

from wmrl_cli.sandbox.base import GIB, Limits


@dataclass(frozen=True, kw_only=True)
class SandboxConfig:
    """How scripts are really executed."""

    backend: str = "auto"  # auto | docker | bubblewrap | unsafe-process | unsafe-fork
    slots: int = 2  # scripts that run at once
    wall_s: float = 30.0
    cpu_s: float | None = None
    memory_gib: float = 2.0
    cpus: float = 1.0
    gpu_gib: float | None = None  # memory of one GPU lease; null: no GPU
    python: str | None = None  # interpreter that runs the scripts; null: the running one
    image: str | None = None  # docker's; null: what `wmrl doctor --build-image` makes
    runtime: str | None = None  # docker's, such as `runsc`

    @property
    def limits(self) -> Limits:
        return Limits(wall_s=self.wall_s, cpu_s=self.cpu_s, memory_bytes=int(self.memory_gib * GIB), cpus=self.cpus)
