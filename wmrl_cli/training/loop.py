"""World Model RL, one step after the other (arXiv 2608.12564, algorithm 1).

plan      which tasks, which groups are anchors
collect   the agent plays; the world model and the sandbox score
update    isotonic map, group advantages, inverse-variance weights
learn     one GRPO step on the fused stream
observe   the anchors' pairs judge the map in force, then may refit it for the next step
commit    all of it is on disk before the next step begins

The ranks of a job all run this. Each plays and trains on its share of a step; what decides the update is gathered
between the two, so that every rank computes it from the whole step. The first rank's folder is written, no other.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from wmrl_cli.environment import SANDBOX, WORLD_MODEL
from wmrl_cli.errors import UnavailableError
from wmrl_cli.launch import this_rank
from wmrl_cli.learner import ranks
from wmrl_cli.learner.sequences import TrainSequence
from wmrl_cli.maths.online import OnlineCalibrator, PairGroup
from wmrl_cli.stages.rows import score_row, trajectory_rows
from wmrl_cli.task import Task
from wmrl_cli.training.config import TrainConfig
from wmrl_cli.training.experience import Effects, Experience, Scored, collect
from wmrl_cli.training.plan import plan_step
from wmrl_cli.training.run_folder import RunFolder
from wmrl_cli.training.sharing import share_sequences
from wmrl_cli.training.step_metrics import experience_metrics, learner_metrics, metrics_row, speed_up
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
        policy_digest = effects.engine.digest  # of the weights that write these scripts; learning changes them
        experience = collect(config, groups, effects)
        _refuse_if_nothing_came_back(experience)
        # One map and one weight for the whole step: those in force when it starts.
        update = make_update(
            experience.predicted,
            experience.real,
            experience.is_executed,
            score_map=calibrator.map,
            rho=calibrator.rho,
            standardize=config.standardize,
        )
        trained = time.perf_counter()
        sequences = share_sequences(training_sequences(experience, update), ranks.number(), ranks.world())
        learned = learner.step(sequences, groups=update.groups) if update.groups else None
        ended = time.perf_counter()
        observed = calibrator.observe(step, pair_groups(experience))
        values = {
            **experience_metrics(experience, update, slots=this_rank().job_slots(config.sandbox.slots)),
            **observed.metrics,
            **(learner_metrics(learned) if learned else {}),
            "anchor_share_asked": config.anchor_frac,
            "seconds_train": ended - trained,
            "seconds_step": time.perf_counter() - start,
        }
        values["speed_up"] = speed_up(values)
        metrics = metrics_row(step, values)
        run.commit(
            step, {**_tables(step, experience, policy_digest), "anchor_pairs": observed.records, "metrics": [metrics]}
        )
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
        sequences += [
            TrainSequence.from_turns(
                ((turn.prompt_ids, turn.response_ids, turn.logprobs) for turn in episode.turns),
                advantage=float(advantage),
                group_size=size,
                group_id=experience.groups[index].group_id,
                truncated=episode.turns[-1].finish_reason == "length",
            )
            for episode, advantage in zip(episodes, advantages, strict=True)
            if not np.isnan(advantage)
        ]
    return sequences


def pair_groups(experience: Experience) -> list[PairGroup]:
    """The anchors' trajectories as both scorers see them; a lost score (nan) makes no pair."""
    return [
        PairGroup(
            group_id=group.group_id,
            task_id=group.task.task_id,
            trajectory_ids=group.trajectory_ids,
            predicted=[one.reward for one in predicted if one is not None],
            real=[one.reward for one in real if one is not None],
            status_predicted=[str(one.status) for one in predicted if one is not None],
            status_real=[str(one.status) for one in real if one is not None],
        )
        for group, predicted, real in zip(experience.groups, experience.simulated, experience.executed, strict=True)
        if None not in predicted and None not in real
    ]


def _tables(step: int, experience: Experience, policy_digest: str) -> dict[str, list[dict[str, Any]]]:
    """The step's rows of `trajectories` and `scores`."""
    trajectories, scores = [], []
    for index, episodes in enumerate(experience.episodes):
        for member, episode in enumerate(episodes):
            talked_to = episode.seat.environment.scorer if episode.seat.environment else WORLD_MODEL
            rows = trajectory_rows(episode, step=step, environment=talked_to, policy_digest=policy_digest)
            trajectories += rows
            for scorer, scored in ((WORLD_MODEL, experience.simulated), (SANDBOX, experience.executed)):
                scores += _score_rows(scored[index][member], rows, scorer)
    return {"trajectories": trajectories, "scores": scores}


def _score_rows(scored: Scored | None, rows: list[dict[str, Any]], scorer: str) -> list[dict[str, Any]]:
    if scored is None:
        return []
    return [
        score_row(outcome, scorer=scorer, trajectory=row) for outcome, row in zip(scored.outcomes, rows, strict=False)
    ]


def _refuse_if_nothing_came_back(experience: Experience) -> None:
    """A step in which one side lost every trajectory is not trained on: that engine or sandbox is gone."""
    for scored, what in ((experience.executed, "sandbox"), (experience.simulated, "world model")):
        asked = [one for group in scored for one in group if one is not None]
        if asked and all(np.isnan(one.reward) for one in asked):
            detail = next(
                (outcome.detail for one in asked for outcome in one.outcomes if outcome.detail), "no reason was given"
            )
            raise UnavailableError(
                f"the {what} lost all {len(asked)} trajectories of a step: {detail}",
                "the steps before are kept: repair it (`wmrl doctor` may tell), then run the same command to go on",
            )
