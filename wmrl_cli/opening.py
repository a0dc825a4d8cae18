"""Opening what is expensive, once, for the commands and for training alike: models, sandboxes, tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wmrl_cli.benchmarks.execution import SandboxEnvironment
from wmrl_cli.config import build_config, with_flags
from wmrl_cli.engines.base import Engine
from wmrl_cli.engines.models import ModelSpec, open_engine, resolve_model
from wmrl_cli.errors import ConfigError
from wmrl_cli.maths.outcomes import RewardLadder
from wmrl_cli.presets import PRESETS
from wmrl_cli.prompts import get_pack
from wmrl_cli.prompts.base import PromptPack
from wmrl_cli.sandbox import open_sandbox
from wmrl_cli.sandbox.cache import ResultCache
from wmrl_cli.sandbox.config import SandboxConfig
from wmrl_cli.sandbox.gpu.opening import open_leases
from wmrl_cli.sandbox.packages import installed_packages
from wmrl_cli.task import Task
from wmrl_cli.world_model import WorldModel


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A model that can be sampled: how it is spoken to, and the engine that runs it."""

    spec: ModelSpec
    engine: Engine
    pack: PromptPack


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """Where a model runs."""

    engine: str = "transformers"  # transformers | http
    device: str = "auto"
    dtype: str = "auto"
    url: str | None = None  # of an OpenAI-compatible server, for `http`


def open_policy(model: str, where: EngineConfig, sandbox: SandboxConfig | None = None) -> Policy:
    """The model called `model`: a name, a local folder, or a run folder (its trained model).

    It is told the limits of `sandbox`; null: those that go with the model.
    """
    name = model_of_run(model)
    spec = resolve_model(name)
    engine = open_engine(name, engine=where.engine, device=where.device, dtype=where.dtype, url=where.url)
    return Policy(spec=spec, engine=engine, pack=pack_for(spec, sandbox or sandbox_config(spec.preset, {})))


def pack_for(spec: ModelSpec, sandbox: SandboxConfig) -> PromptPack:
    """The model's prompts, which name the limits that its scripts will run under."""
    return get_pack(spec.pack).within(wall_s=sandbox.wall_s, memory_gib=sandbox.memory_gib)


def model_of_run(model: str) -> str:
    """`RUN/model` where `model` is a run folder, else `model` itself."""
    folder = Path(model)
    if not (folder / "config.json").exists() or not (folder / "steps").is_dir():
        return model
    if not (folder / "model").is_dir():
        raise ConfigError(
            f"the run in `{model}` has not finished, so it has no model yet",
            "the command that started it goes on with it",
        )
    return str(folder / "model")


def open_world_model(
    policy: Policy, ladder: RewardLadder, packages: Sequence[str] | None = None, *, show_score: bool = True
) -> WorldModel:
    """`policy`'s model in its other role: it predicts what scripts do with `packages` (null: this environment's)."""
    known = installed_packages() if packages is None else packages
    return WorldModel(policy.engine, policy.pack, ladder=ladder, packages=known, show_score=show_score)


def sandbox_config(preset: str, flags: Mapping[str, Any]) -> SandboxConfig:
    """The sandbox that goes with a model's preset, changed by the flags that are not None."""
    return build_config(SandboxConfig, with_flags(PRESETS[preset].get("sandbox", {}), flags))


def open_environment(
    config: SandboxConfig, ladder: RewardLadder, cache: ResultCache | None = None
) -> SandboxEnvironment:
    """Real execution with the configured backend and limits. Raises UnavailableError where there is no sandbox."""
    python = Path(config.python) if config.python else None
    sandbox = open_sandbox(config.backend, python=python, image=config.image, runtime=config.runtime)
    leases = open_leases(sandbox, config.gpu_gib)
    return SandboxEnvironment(
        sandbox,
        config.limits,
        ladder,
        slots=config.slots,
        cache=cache,
        leases=leases,
        show_score=config.show_score,
        count_unfinished=config.count_unfinished,
    )


def split_of(tasks: Sequence[Task], split: str, source: Path) -> list[Task]:
    """The tasks of one split; `all` keeps every task. Raises ConfigError where none is left."""
    chosen = [task for task in tasks if split in ("all", task.split)]
    if not chosen:
        found = sorted({task.split for task in tasks})
        raise ConfigError(f"`{source}` has no task of split `{split}`", f"its splits are `{'`, `'.join(found)}`")
    return chosen
