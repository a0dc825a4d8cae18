"""World Model RL, one step after the other (arXiv 2608.12564, algorithm 1).

    plan      which tasks, which groups are anchors
    collect   the agent plays; the world model and the sandbox score
    update    isotonic map, group advantages, inverse-variance weights
    learn     one GRPO step on the fused stream
    observe   the anchors' pairs judge the map in force, then may refit it for the next step
    commit    all of it is on disk before the next step begins
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from wmrl_cli.agent.episode import Episode
from wmrl_cli.environment import SANDBOX, WORLD_MODEL
from wmrl_cli.errors import UnavailableError
from wmrl_cli.learner.batch import TrainSequence
from wmrl_cli.maths.online import OnlineCalibrator, PairGroup
from wmrl_cli.stages.rows import score_row, trajectory_rows
from wmrl_cli.task import Task
from wmrl_cli.training.config import TrainConfig
from wmrl_cli.training.experience import Effects, Experience, Scored, collect
from wmrl_cli.training.plan import plan_step
from wmrl_cli.training.run_folder import RunFolder
from wmrl_cli.training.step_metrics import experience_metrics, metrics_row, speed_up
from wmrl_cli.training.update import Update, make_update

if TYPE_CHECKING:
    from wmrl_cli.learner.learner import Learner


def run_steps(
    config: TrainConfig, tasks: Sequence[Task], effects: Effects, learner: Learner, run: RunFolder
) -> Iterator[dict[str, Any]]:
    """Train, yielding each step's row of `metrics` once it is on disk. A run that was interrupted goes on."""
    step, state = run.restore(learner)
    calibrator = OnlineCalibrator.from_json(state["calibrator"]) if state else OnlineCalibrator(config.calibration)
    while step < config.steps:
        start = time.perf_counter()
        groups = plan_step(config, tasks, step)
        experience = collect(config, groups, effects)
        _refuse_if_nothing_came_back(experience)
        # One map and one weight for the whole step: those in force when it starts.
        before = calibrator.snapshot()
        update = make_update(
            experience.predicted,
            experience.real,
            experience.is_executed,
            score_map=before.map,
            rho=before.rho,
            standardize=config.standardize,
        )
        trained = time.perf_counter()
        learned = learner.step(training_sequences(experience, update), groups=update.groups) if update.groups else None
        ended = time.perf_counter()
        observed = calibrator.observe(step, pair_groups(experience))
        values = {
            **experience_metrics(experience, update, slots=config.sandbox.slots),
            **observed.metrics,
            **(learned.metrics if learned else {}),
            "anchor_share_asked": config.anchor_frac,
            "map_version": before.map.version,
            "map_low": before.map.range[0],
            "map_high": before.map.range[1],
            "rho": before.rho,
            "seconds_train": ended - trained,
            "seconds_step": time.perf_counter() - start,
        }
        values["speed_up"] = speed_up(values)
        metrics = metrics_row(step, values)
        run.commit(step, {**_tables(step, experience, effects), "anchor_pairs": observed.records, "metrics": [metrics]})
        step += 1
        if step % config.checkpoint_every == 0 or step == config.steps:
            run.checkpoint(step, learner, {"calibrator": calibrator.to_json()})
            run.write_json("calibration.json", calibrator.to_json())
        yield metrics


def training_sequences(experience: Experience, update: Update) -> list[TrainSequence]:
    """The trajectories that train, token in, token out: what the policy chose carries the loss, the rest is context."""
    sequences = []
    for index, episodes in enumerate(experience.episodes):
        advantages = update.advantages[index]
        size = int((~np.isnan(advantages)).sum())
        for episode, advantage in zip(episodes, advantages, strict=True):
            if not np.isnan(advantage):
                sequences.append(_sequence(episode, float(advantage), size))
    return sequences


def _sequence(episode: Episode, advantage: float, group_size: int) -> TrainSequence:
    ids: list[int] = []
    mask: list[bool] = []
    logprobs: list[float] = []
    for turn in episode.turns:
        ids += [*turn.prompt_ids, *turn.response_ids]
        mask += [False] * len(turn.prompt_ids) + [True] * len(turn.response_ids)
        logprobs += [0.0] * len(turn.prompt_ids) + list(turn.logprobs)
    return TrainSequence(
        ids=ids,
        policy_mask=mask,
        sampler_logprobs=logprobs,
        advantage=advantage,
        group_size=group_size,
        truncated=episode.turns[-1].finish_reason == "length",
    )


def pair_groups(experience: Experience) -> list[PairGroup]:
    """The anchors' (predicted, real) pairs, group by group; a trajectory that either side lost is no pair."""
    found = []
    for group, predicted, real in zip(experience.groups, experience.simulated, experience.executed, strict=True):
        both = [
            (trajectory_id, p, r)
            for trajectory_id, p, r in zip(group.trajectory_ids, predicted, real, strict=True)
            if p is not None and r is not None and not np.isnan(p.reward) and not np.isnan(r.reward)
        ]
        if both:
            found.append(
                PairGroup(
                    group_id=group.group_id,
                    task_id=group.task.task_id,
                    trajectory_ids=tuple(trajectory_id for trajectory_id, _, _ in both),
                    predicted=np.array([p.reward for _, p, _ in both]),
                    real=np.array([r.reward for _, _, r in both]),
                    status_predicted=tuple(str(p.status) for _, p, _ in both),
                    status_real=tuple(str(r.status) for _, _, r in both),
                )
            )
    return found


def _tables(step: int, experience: Experience, effects: Effects) -> dict[str, list[dict[str, Any]]]:
    """The step's rows of `trajectories` and `scores`."""
    trajectories, scores = [], []
    digest = effects.engine.digest
    for index, (group, episodes) in enumerate(zip(experience.groups, experience.episodes, strict=True)):
        for member, episode in enumerate(episodes):
            talked_to = episode.seat.environment.scorer if episode.seat.environment else WORLD_MODEL
            rows = trajectory_rows(episode, step=step, environment=talked_to, policy_digest=digest)
            trajectories += rows
            for scorer, scored in ((WORLD_MODEL, experience.simulated), (SANDBOX, experience.executed)):
                scores += _score_rows(scored[index][member], rows, scorer)
    return {"trajectories": trajectories, "scores": scores}


def _score_rows(scored: Scored | None, rows: list[dict[str, Any]], scorer: str) -> list[dict[str, Any]]:
    if scored is None:
        return []
    return [score_row(outcome, scorer=scorer, trajectory=row) for outcome, row in zip(scored.outcomes, rows, strict=False)]


def _refuse_if_nothing_came_back(experience: Experience) -> None:
    """A step in which one side lost every trajectory is not trained on: that engine or sandbox is gone."""
    for scored, what in ((experience.executed, "sandbox"), (experience.simulated, "world model")):
        asked = [one for group in scored for one in group if one is not None]
        if asked and all(np.isnan(one.reward) for one in asked):
            detail = next((outcome.detail for one in asked for outcome in one.outcomes if outcome.detail), "no reason was given")
            raise UnavailableError(
                f"the {what} lost all {len(asked)} trajectories of a step: {detail}",
                "the steps before are kept: repair it (`wmrl doctor` may tell), then run the same command to go on",
            )
