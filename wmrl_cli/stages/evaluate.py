"""evaluate: how good a policy is, by real execution of what it writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from wmrl_cli.agent.episode import Episode, run_episodes
from wmrl_cli.engines.base import Engine, Sampling
from wmrl_cli.environment import Environment, Outcome
from wmrl_cli.maths.intervals import Interval, clustered_difference, clustered_mean
from wmrl_cli.maths.outcomes import Status, trajectory_reward
from wmrl_cli.prompts.base import PromptPack
from wmrl_cli.stages.simulate import SimulateConfig, seats_of
from wmrl_cli.tables import EVALUATION, rows_to_table
from wmrl_cli.task import Task


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """`samples` trajectories a task (the paper's avg@8). The best turn is chosen by `reward_turn`."""

    policy: str
    samples: int = 8
    turns: int | None = None
    max_new_tokens: int | None = None
    temperature: float = 1.0
    reward_turn: Literal["best", "last"] = "best"
    seed: int = 0


class Evaluate:
    """`tasks` -> `evaluation`, a row a trajectory. The draw depends on seed and task alone, so policies share it."""

    def __init__(
        self,
        config: EvaluateConfig,
        tasks: Sequence[Task],
        engine: Engine,
        pack: PromptPack,
        sandbox: Environment,
        packages: tuple[str, ...] = (),
    ) -> None:
        self.config, self.engine, self.pack, self.sandbox, self.packages = config, engine, pack, sandbox, packages
        self.tasks = {task.task_id: task for task in tasks}

    def __call__(self, batch: pa.Table) -> pa.Table:
        tasks = [self.tasks[task_id] for task_id in batch.column("task_id").to_pylist()]
        config = self.config
        draw = SimulateConfig(group_size=config.samples, seed=config.seed)
        episodes = run_episodes(
            seats_of(tasks, draw, self.sandbox),
            engine=self.engine,
            pack=self.pack,
            turns=config.turns or self.pack.turns,
            sampling=Sampling(
                max_new_tokens=config.max_new_tokens or self.pack.max_new_tokens, temperature=config.temperature
            ),
            packages=self.packages,
        )
        return rows_to_table(EVALUATION, [self._row(episode) for episode in episodes])

    def _row(self, episode: Episode) -> dict[str, Any]:
        outcomes = [turn.outcome for turn in episode.turns if turn.outcome is not None]
        reward, turn = trajectory_reward([outcome.reward for outcome in outcomes], self.config.reward_turn)
        best: Outcome | None = None if episode.lost or turn is None else outcomes[turn]
        task = episode.seat.task
        walls = [outcome.wall_s for outcome in outcomes if outcome.wall_s is not None]
        return {
            "policy": self.config.policy,
            "policy_digest": self.engine.digest,
            "task_id": task.task_id,
            "category": task.category,
            "split": task.split,
            "trajectory_id": episode.seat.trajectory_id,
            "reward": reward if best else None,
            "q": best.q if best else None,
            "status": str(best.status if best else Status.LOST),
            "best_turn": turn + 1 if best and turn is not None else None,
            "raw_metric": best.raw_metric if best else None,
            "wall_s": sum(walls) if walls else None,
        }


MEASURES = ("reward", "valid", "percentile")


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What an evaluation says. `percentile` is 100 q with failures counted 0 (the paper's score)."""

    trajectories: int
    lost: int
    overall: dict[str, Interval]  # by measure: mean over trajectories, interval clustered by task
    categories: dict[str, float]  # percentile, mean over the category's tasks
    mean_over_categories: float  # the paper's "Avg"
    mean_over_tasks: float
    statuses: dict[str, int]


def summarise(table: pa.Table, *, seed: int = 0) -> Summary:
    """Means, with 95 % intervals from a bootstrap over tasks; lost trajectories are left out, and counted."""
    values, tasks, categories = measures(table)
    statuses: dict[str, int] = {}
    for status in table.column("status").to_pylist():
        statuses[status] = statuses.get(status, 0) + 1
    by_task = {task: float(values["percentile"][tasks == task].mean()) for task in np.unique(tasks)}
    in_category = {
        category: float(np.mean([by_task[task] for task in np.unique(tasks[categories == category])]))
        for category in np.unique(categories)
    }
    return Summary(
        trajectories=table.num_rows,
        lost=statuses.get("lost", 0),
        overall={name: clustered_mean(values[name], tasks, seed=seed) for name in MEASURES},
        categories=in_category,
        mean_over_categories=float(np.mean(list(in_category.values()))) if in_category else float("nan"),
        mean_over_tasks=float(np.mean(list(by_task.values()))) if by_task else float("nan"),
        statuses=dict(sorted(statuses.items(), key=lambda item: -item[1])),
    )


def compare(after: pa.Table, before: pa.Table, *, seed: int = 0) -> dict[str, Interval]:
    """`after` minus `before` by measure, on the tasks that both have; 95 % intervals from a bootstrap over tasks."""
    new, new_tasks, _ = measures(after)
    old, old_tasks, _ = measures(before)
    return {name: clustered_difference(new[name], new_tasks, old[name], old_tasks, seed=seed) for name in MEASURES}


def measures(table: pa.Table) -> tuple[dict[str, Any], Any, Any]:
    """Reward, valid and percentile of the trajectories that are not lost, with their tasks and categories."""
    rows = [
        row
        for row in table.select(["task_id", "category", "reward", "q", "status"]).to_pylist()
        if row["reward"] is not None
    ]
    valid = np.array([row["status"] == "valid" for row in rows], dtype=np.float64)
    q = np.array([row["q"] if row["status"] == "valid" else 0.0 for row in rows], dtype=np.float64)
    values = {
        "reward": np.array([row["reward"] for row in rows], dtype=np.float64),
        "valid": valid,
        "percentile": 100 * q,
    }
    return values, np.array([row["task_id"] for row in rows]), np.array([row["category"] for row in rows])
