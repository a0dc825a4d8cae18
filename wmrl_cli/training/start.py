"""Opening a training run: the learner, and the effects that its loop acts through."""

from __future__ import annotations

from dataclasses import replace

from wmrl_cli.benchmarks.execution import SandboxEnvironment
from wmrl_cli.engines.models import ModelSpec, resolve_device, resolve_dtype, resolve_model
from wmrl_cli.engines.transformers_engine import TransformersEngine
from wmrl_cli.launch import this_rank
from wmrl_cli.learner import ranks
from wmrl_cli.learner.learner import Learner
from wmrl_cli.learner.loading import compute_dtype, pick_device
from wmrl_cli.opening import (
    EngineConfig,
    Policy,
    model_of_run,
    open_environment,
    open_policy,
    open_world_model,
    pack_for,
)
from wmrl_cli.sandbox.admission import check_limits
from wmrl_cli.sandbox.packages import installed_packages
from wmrl_cli.training.config import TrainConfig
from wmrl_cli.training.experience import Effects


def open_training(config: TrainConfig) -> tuple[Effects, Learner]:
    """What is quickest to be found missing comes first. The agent's engine samples from the learner's weights.

    In a job each rank opens its own: a GPU, an engine, a world model, and its part of the machine's sandbox slots.
    """
    spec = resolve_model(config.model)
    device = ranks.own_device(resolve_device(spec, config.device))
    sandbox = _sandbox(config)
    packages = sandbox.sandbox.packages if sandbox else installed_packages()
    one_copy = _reference_is_world_model(config, spec, device)
    learner = Learner.build(spec.location, config.learner, device=device, whole_reference=one_copy)
    judge: Policy | None = None
    if one_copy and learner.reference is not None:
        frozen = TransformersEngine(learner.reference.model, learner.tokenizer)
        judge = Policy(spec=spec, engine=frozen, pack=pack_for(spec, config.sandbox))
    elif config.uses_world_model:
        judge = _other_world_model(config, device)
    world_model = None
    if judge:
        world_model = open_world_model(judge, config.reward, packages, show_score=config.sandbox.show_score)
    effects = Effects(
        engine=TransformersEngine(
            learner.sampler,
            learner.tokenizer,
            compute=None if learner.dtype == learner.sampler.dtype else learner.dtype,  # as the learner will compute
        ),
        pack=pack_for(spec, config.sandbox),
        sandbox=sandbox,
        world_model=world_model,
        packages=packages,
    )
    return effects, learner


def _sandbox(config: TrainConfig) -> SandboxEnvironment | None:
    """This rank's sandbox, null where no group is executed. The slots of all ranks must fit into the machine."""
    if config.anchor_frac == 0 and config.min_anchors_per_step == 0:
        return None
    rank, asked = this_rank(), config.sandbox
    check_limits(asked.limits, rank.machine_slots(asked.slots))
    return open_environment(replace(asked, slots=rank.share_of(asked.slots)), config.reward)


def _reference_is_world_model(config: TrainConfig, spec: ModelSpec, device: str) -> bool:
    """Whether the learner's frozen reference serves as the world model: the same weights in the same dtype."""
    if not config.uses_world_model or config.world_model_url or config.learner.kl == 0:
        return False
    judge = resolve_model(model_of_run(config.world_model or config.model))
    dtype = str(compute_dtype(config.learner, pick_device(device))).removeprefix("torch.")
    return judge.location == spec.location and dtype == resolve_dtype(judge, "auto", device)


def _other_world_model(config: TrainConfig, device: str) -> Policy:
    """The world model that is named, or a copy of the agent's own backbone; on the server at its address, or here."""
    url = config.world_model_url
    where = EngineConfig(engine="http" if url else "transformers", device=device, url=url)
    return open_policy(config.world_model or config.model, where, config.sandbox)
