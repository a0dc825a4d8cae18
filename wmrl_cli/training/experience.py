"""One step's experience: the agent plays, the world model and the sandbox answer, both streams become arrays."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wmrl_cli.agent.episode import Episode, Seat, Turn, run_episodes
from wmrl_cli.engines.base import Engine, Sampling
from wmrl_cli.environment import Attempt, Environment, Outcome, Scorer
from wmrl_cli.learner import ranks
from wmrl_cli.maths.outcomes import Status, trajectory_reward
from wmrl_cli.prompts.base import PromptPack
from wmrl_cli.seeds import row_seed
from wmrl_cli.training.config import TrainConfig
from wmrl_cli.training.plan import Group
from wmrl_cli.training.sharing import Place, share_trajectories
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


@dataclass(frozen=True, kw_only=True)
class Played:
    """A trajectory as the rank that played it hands it to the others: all but its seat, which they have."""

    turns: list[Turn]
    lost: bool
    simulated: Scored | None
    executed: Scored | None


def collect(config: TrainConfig, groups: Sequence[Group], effects: Effects) -> Experience:
    """Play all of the step's trajectories and score them; each rank does its share, and gets the whole.

    With `anchor_feedback = executed` the anchors talk to the sandbox while the others talk to the world
    model, at the same time; the world model scores the anchors' scripts afterwards. With `simulated`
    everybody talks to the world model, and the anchors' scripts are executed afterwards.
    """
    start = time.perf_counter()
    work = _Work(effects, anchors_really=config.anchor_feedback == "executed")
    seats = {
        (index, member): Seat(
            task=group.task,
            group_id=group.group_id,
            trajectory_id=trajectory_id,
            seed=seed,
            environment=work.of_anchors if group.executed else work.world_model,
        )
        for index, group in enumerate(groups)
        for member, (trajectory_id, seed) in enumerate(zip(group.trajectory_ids, group.seeds, strict=True))
    }
    is_anchor = [group.executed for group in groups]
    share = share_trajectories(is_anchor, config.group_size, ranks.world())[ranks.number()]
    mine = _play(config, {place: seats[place] for place in share}, is_anchor, work, effects)
    parts = ranks.gather((mine, work.seconds(time.perf_counter() - start)))
    played = {place: one for part, _ in parts for place, one in part.items()}
    places = [[(index, member) for member in range(config.group_size)] for index in range(len(groups))]
    return Experience(
        groups=list(groups),
        episodes=[[Episode(seat=seats[p], turns=played[p].turns, lost=played[p].lost) for p in row] for row in places],
        simulated=[[played[place].simulated for place in row] for row in places],
        executed=[[played[place].executed for place in row] for row in places],
        # Those of the rank that took longest: the others waited for it.
        seconds=max((seconds for _, seconds in parts), key=lambda seconds: sum(seconds.values())),
    )


class _Work:
    """The effects of one step under clocks; `of_anchors` answers an anchor's turns, `afterwards` scores them again."""

    def __init__(self, effects: Effects, *, anchors_really: bool) -> None:
        self.engine = TimedEngine(effects.engine)
        self.world_model = Timed(effects.world_model) if effects.world_model else None
        self.sandbox = Timed(effects.sandbox) if effects.sandbox else None
        both = self.sandbox, self.world_model
        self.of_anchors, self.afterwards = both if anchors_really or self.world_model is None else both[::-1]

    def seconds(self, total: float) -> dict[str, float]:
        """The stages' seconds; `wait` is what was waited for execution, which runs beside the simulation."""
        generate = self.engine.seconds
        simulate, execute = (one.seconds if one else 0.0 for one in (self.world_model, self.sandbox))
        return {
            "generate": generate,
            "simulate": simulate,
            "execute": execute,
            "wait": max(0.0, total - generate - simulate),
        }


def _play(
    config: TrainConfig, seats: Mapping[Place, Seat], is_anchor: Sequence[bool], work: _Work, effects: Effects
) -> dict[Place, Played]:
    """Play and score the trajectories of `seats`."""
    episodes = run_episodes(
        list(seats.values()),
        engine=work.engine,
        pack=effects.pack,
        turns=config.rollout.turns or effects.pack.turns,
        sampling=Sampling(max_new_tokens=config.rollout.max_new_tokens or effects.pack.max_new_tokens),
        packages=effects.packages,
    )
    anchors = {place: one for place, one in zip(seats, episodes, strict=True) if is_anchor[place[0]]}
    again: dict[Place, Scored] = {}
    if work.afterwards and anchors:
        again = dict(zip(anchors, _score_again(list(anchors.values()), work.afterwards, config), strict=True))
    played = {}
    for place, episode in zip(seats, episodes, strict=True):
        live, later = _scored_live(episode, config), again.get(place)
        really = work.sandbox is not None and episode.seat.environment is work.sandbox
        played[place] = Played(
            turns=episode.turns,
            lost=episode.lost,
            simulated=later if really else live,
            executed=live if really else later,
        )
    return played


def _scored_live(episode: Episode, config: TrainConfig) -> Scored:
    return _scored([turn.outcome for turn in episode.turns if turn.outcome is not None], episode.lost, config)


def _score_again(episodes: Sequence[Episode], scorer: Environment, config: TrainConfig) -> list[Scored]:
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
