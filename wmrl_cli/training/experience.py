"""One step's experience: the agent plays, the world model and the sandbox answer, both streams become arrays."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmrl_cli.agent.episode import Episode, Seat, run_episodes
from wmrl_cli.engines.base import Engine, Sampling
from wmrl_cli.environment import Attempt, Environment, Outcome, Scorer
from wmrl_cli.maths.outcomes import Status, trajectory_reward
from wmrl_cli.prompts.base import PromptPack
from wmrl_cli.seeds import row_seed
from wmrl_cli.training.config import TrainConfig
from wmrl_cli.training.plan import Group
from wmrl_cli.world_model.world_model import WorldModel

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Effects:
    """What the loop acts through. `world_model` is None where no group is simulated."""

    engine: Engine
    pack: PromptPack
    sandbox: Environment | None
    world_model: WorldModel | None
    packages: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Scored:
    """One scorer's view of one trajectory: its turns' outcomes, and the reward they earn (nan: lost)."""

    outcomes: tuple[Outcome, ...]
    reward: float
    status: Status


@dataclass(frozen=True, kw_only=True)
class Experience:
    """A step's episodes, in group order, and what each scorer said of them.

    `predicted` and `real` have shape (groups, group_size): trajectory rewards in [0, 1], nan where that
    scorer was not asked or the trajectory is lost.
    """

    groups: list[Group]
    episodes: list[list[Episode]]
    simulated: list[list[Scored | None]]
    executed: list[list[Scored | None]]
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def is_executed(self) -> NDArray[np.bool_]:
        return np.array([group.executed for group in self.groups], dtype=bool)

    @property
    def predicted(self) -> Floats:
        return _rewards(self.simulated)

    @property
    def real(self) -> Floats:
        return _rewards(self.executed)


class Timed:
    """An environment that counts the seconds in which it was at work."""

    def __init__(self, environment: Environment) -> None:
        self.environment, self.seconds = environment, 0.0

    @property
    def scorer(self) -> Scorer:
        return self.environment.scorer

    def step(self, attempts: Sequence[Attempt]) -> list[Outcome]:
        start = time.perf_counter()
        try:
            return self.environment.step(attempts)
        finally:
            self.seconds += time.perf_counter() - start


class TimedEngine:
    """An engine that counts the seconds in which it generated."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.seconds = engine, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def generate(self, *arguments: Any, **options: Any) -> Any:
        start = time.perf_counter()
        try:
            return self.engine.generate(*arguments, **options)
        finally:
            self.seconds += time.perf_counter() - start


def collect(config: TrainConfig, groups: Sequence[Group], effects: Effects) -> Experience:
    """Play all of the step's trajectories and score them.

    With `anchor_feedback = executed` the anchors talk to the sandbox while the others talk to the world
    model, at the same time; the world model scores the anchors' scripts afterwards. With `simulated`
    everybody talks to the world model, and the anchors' scripts are executed afterwards.
    """
    start = time.perf_counter()
    engine = TimedEngine(effects.engine)
    world_model = Timed(effects.world_model) if effects.world_model else None
    sandbox = Timed(effects.sandbox) if effects.sandbox else None
    talks_to_sandbox = [
        group.executed and (config.anchor_feedback == "executed" or world_model is None) for group in groups
    ]
    seats = [
        Seat(
            task=group.task,
            group_id=group.group_id,
            trajectory_id=trajectory_id,
            seed=seed,
            environment=sandbox if really else world_model,
        )
        for group, really in zip(groups, talks_to_sandbox, strict=True)
        for trajectory_id, seed in zip(group.trajectory_ids, group.seeds, strict=True)
    ]
    flat = run_episodes(
        seats,
        engine=engine,
        pack=effects.pack,
        turns=config.rollout.turns or effects.pack.turns,
        sampling=Sampling(max_new_tokens=config.rollout.max_new_tokens or effects.pack.max_new_tokens),
        packages=effects.packages,
    )
    size = config.group_size
    episodes = [flat[index * size : (index + 1) * size] for index in range(len(groups))]
    live: list[list[Scored | None]] = [[_scored_live(e, config) for e in group] for group in episodes]
    simulated: list[list[Scored | None]] = [[None] * size for _ in groups]
    executed: list[list[Scored | None]] = [[None] * size for _ in groups]
    for index, (group, really) in enumerate(zip(groups, talks_to_sandbox, strict=True)):
        (executed if really else simulated)[index] = live[index]
        if group.executed and really and world_model:
            simulated[index] = _score_again(episodes[index], world_model, config)
        if group.executed and not really and sandbox:
            executed[index] = _score_again(episodes[index], sandbox, config)
    total = time.perf_counter() - start
    seconds = {
        "generate": engine.seconds,
        "simulate": world_model.seconds if world_model else 0.0,
        "execute": sandbox.seconds if sandbox else 0.0,
    }
    # What execution alone cost: it runs beside the simulation, so only what is left over was waited for.
    seconds["wait"] = max(0.0, total - seconds["generate"] - seconds["simulate"])
    return Experience(groups=list(groups), episodes=episodes, simulated=simulated, executed=executed, seconds=seconds)


def _scored_live(episode: Episode, config: TrainConfig) -> Scored:
    return _scored([turn.outcome for turn in episode.turns if turn.outcome is not None], episode.lost, config)


def _score_again(episodes: Sequence[Episode], scorer: Environment, config: TrainConfig) -> list[Scored | None]:
    """The other scorer's view of scripts that are already written: all turns of all trajectories, in one batch."""
    attempts = [
        Attempt(task=episode.seat.task, script=turn.script, seed=row_seed(episode.seat.seed, "again", number))
        for episode in episodes
        for number, turn in enumerate(episode.turns)
    ]
    outcomes = iter(scorer.step(attempts))
    return [_scored([next(outcomes) for _ in episode.turns], False, config) for episode in episodes]


def _scored(outcomes: Sequence[Outcome], lost: bool, config: TrainConfig) -> Scored:
    reward, turn = trajectory_reward([outcome.reward for outcome in outcomes], config.rollout.reward_turn)
    if lost or reward is None or turn is None:
        return Scored(outcomes=tuple(outcomes), reward=float("nan"), status=Status.LOST)
    return Scored(outcomes=tuple(outcomes), reward=reward, status=outcomes[turn].status)


def _rewards(scored: Sequence[Sequence[Scored | None]]) -> Floats:
    return np.array([[np.nan if one is None else one.reward for one in group] for group in scored], dtype=np.float64)
