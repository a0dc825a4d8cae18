"""Opening what a run needs, once: models, world model, sandbox. Everything expensive or fallible is here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wmrl_cli.benchmarks.execution import SandboxEnvironment
from wmrl_cli.engines.base import Engine
from wmrl_cli.engines.models import ModelSpec, open_engine, resolve_model
from wmrl_cli.errors import ConfigError
from wmrl_cli.maths.outcomes import RewardLadder
from wmrl_cli.prompts import get_pack
from wmrl_cli.prompts.base import PromptPack
from wmrl_cli.sandbox import open_sandbox
from wmrl_cli.sandbox.base import GIB, Limits
from wmrl_cli.sandbox.packages import installed_packages
from wmrl_cli.task import Task
from wmrl_cli.training.config import PRESETS, SandboxConfig, TrainConfig
from wmrl_cli.training.experience import Effects
from wmrl_cli.world_model import WorldModel

if TYPE_CHECKING:
    from wmrl_cli.learner.learner import Learner


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A model that can be sampled: how it is spoken to, and the engine that runs it."""

    spec: ModelSpec
    engine: Engine
    pack: PromptPack


def open_policy(model: str, *, engine: str = "transformers", device: str = "auto", dtype: str = "auto", url: str | None = None) -> Policy:
    """The model called `model`: a name, a local folder, or a run folder (its trained model)."""
    spec = resolve_model(model_of_run(model))
    return Policy(spec=spec, engine=open_engine(spec, engine=engine, device=device, dtype=dtype, url=url), pack=get_pack(spec.pack))


def model_of_run(model: str) -> str:
    """`RUN/model` where `model` is a run folder, else `model` itself."""
    folder = Path(model)
    if not (folder / "config.json").exists() or not (folder / "steps").is_dir():
        return model
    if not (folder / "model").is_dir():
        raise ConfigError(
            f"the run in `{model}` has not finished, so it has no model yet",
            f"go on with it by the command that started it, or give a checkpoint below `{folder / 'checkpoints'}`",
        )
    return str(folder / "model")


def open_environment(config: SandboxConfig, ladder: RewardLadder) -> SandboxEnvironment:
    """Real execution with the configured backend and limits. Raises UnavailableError where there is no sandbox."""
    limits = Limits(
        wall_s=config.wall_s, cpu_s=config.cpu_s, memory_bytes=int(config.memory_gib * GIB), cpus=config.cpus
    )
    return SandboxEnvironment(open_sandbox(config.backend), limits=limits, ladder=ladder, slots=config.slots)


def sandbox_preset(spec: ModelSpec) -> SandboxConfig:
    """The sandbox that goes with a model's preset, for the stages that run on their own."""
    return SandboxConfig(**PRESETS[spec.preset].get("sandbox", {}))


def open_training(config: TrainConfig) -> tuple[Effects, Learner]:
    """The learner, and the effects of its loop. The agent's engine shares the learner's live weights."""
    from wmrl_cli.engines.transformers_engine import TransformersEngine
    from wmrl_cli.learner.learner import Learner

    spec = resolve_model(config.model)
    needs_sandbox = config.anchor_frac > 0 or config.min_anchors_per_step > 0
    sandbox = open_environment(config.sandbox, config.reward) if needs_sandbox else None
    learner = Learner.build(spec.location, config.learner, device=config.device)
    pack = get_pack(spec.pack)
    packages = installed_packages()
    return (
        Effects(
            engine=TransformersEngine(learner.model, learner.tokenizer),
            pack=pack,
            sandbox=sandbox,
            world_model=_open_world_model(config, spec, packages) if config.uses_world_model else None,
            packages=packages,
        ),
        learner,
    )


def _open_world_model(config: TrainConfig, agent: ModelSpec, packages: Sequence[str]) -> WorldModel:
    """The agent's own backbone, frozen, unless another model is named."""
    spec = resolve_model(config.world_model) if config.world_model else agent
    engine = open_engine(
        spec, engine="http" if config.world_model_url else "transformers", device=config.device, url=config.world_model_url
    )
    return WorldModel(engine, get_pack(spec.pack), ladder=config.reward, packages=packages)


def split_of(tasks: Sequence[Task], split: str, source: Path) -> list[Task]:
    """The tasks of one split; `all` keeps every task. Raises ConfigError where none is left."""
    chosen = [task for task in tasks if split == "all" or task.split == split]
    if not chosen:
        found = sorted({task.split for task in tasks})
        raise ConfigError(f"`{source}` has no task of split `{split}`", f"its splits are `{'`, `'.join(found)}`")
    return chosen
