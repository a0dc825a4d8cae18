"""Opening a training run: the learner, and the effects that its loop acts through."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wmrl_cli.engines.models import resolve_device, resolve_model
from wmrl_cli.opening import EngineConfig, open_environment, open_policy, open_world_model, pack_for
from wmrl_cli.sandbox.packages import installed_packages
from wmrl_cli.training.config import TrainConfig
from wmrl_cli.training.experience import Effects
from wmrl_cli.world_model import WorldModel

if TYPE_CHECKING:
    from wmrl_cli.learner.learner import Learner


def open_training(config: TrainConfig) -> tuple[Effects, Learner]:
    """What is quickest to be found missing comes first. The agent's engine shares the learner's weights."""
    from wmrl_cli.engines.transformers_engine import TransformersEngine
    from wmrl_cli.learner.learner import Learner

    spec = resolve_model(config.model)
    device = resolve_device(spec, config.device)
    needs_sandbox = config.anchor_frac > 0 or config.min_anchors_per_step > 0
    sandbox = open_environment(config.sandbox, config.reward) if needs_sandbox else None
    packages = sandbox.sandbox.packages if sandbox else installed_packages()
    learner = Learner.build(spec.location, config.learner, device=device)
    effects = Effects(
        engine=TransformersEngine(
            learner.model,
            learner.tokenizer,
            compute=None if learner.dtype == learner.model.dtype else learner.dtype,  # as the learner will compute
        ),
        pack=pack_for(spec, config.sandbox),
        sandbox=sandbox,
        world_model=_world_model(config, packages) if config.uses_world_model else None,
        packages=packages,
    )
    return effects, learner


def _world_model(config: TrainConfig, packages: tuple[str, ...]) -> WorldModel:
    """The agent's own backbone, frozen, unless another model is named."""
    where = EngineConfig(
        engine="http" if config.world_model_url else "transformers", device=config.device, url=config.world_model_url
    )
    policy = open_policy(config.world_model or config.model, where, config.sandbox)
    return open_world_model(policy, config.reward, packages)
