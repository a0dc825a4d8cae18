"""simulate: the agent writes scripts for tasks, and the world model says what each would do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from wmrl_cli.agent.episode import Seat, run_episodes
from wmrl_cli.engines.base import Engine, Sampling
from wmrl_cli.environment import WORLD_MODEL, Attempt, Environment
from wmrl_cli.errors import TableError
from wmrl_cli.prompts.base import PromptPack
from wmrl_cli.seeds import row_seed
from wmrl_cli.stages.rows import score_row, trajectory_rows
from wmrl_cli.tables import SCORES, TRAJECTORIES, rows_to_table
from wmrl_cli.task import Task


@dataclass(frozen=True, kw_only=True)
class SimulateConfig:
    """How many trajectories, and how each is played. Null takes the prompt pack's value."""

    groups_per_task: int = 1
    group_size: int = 8
    turns: int | None = None
    max_new_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0


def seats_of(tasks: Sequence[Task], config: SimulateConfig, environment: Environment | None) -> list[Seat]:
    """One seat a trajectory; ids and seeds depend on the task and the run's seed, not on the batch."""
    return [
        Seat(
            task=task,
            group_id=f"{task.task_id}-{group:03d}",
            trajectory_id=f"{task.task_id}-{group:03d}-{member:02d}",
            seed=row_seed(config.seed, task.task_id, group, member),
            environment=environment,
        )
        for task in tasks
        for group in range(config.groups_per_task)
        for member in range(config.group_size)
    ]


class Simulate:
    """`tasks` -> `trajectories`, and `scores` beside them with `with_scores`.

    The environment answers after each turn; with one turn and no scores asked for, nobody needs to.
    """

    def __init__(
        self,
        config: SimulateConfig,
        tasks: Sequence[Task],
        engine: Engine,
        pack: PromptPack,
        environment: Environment,
        packages: tuple[str, ...] = (),
        *,
        with_scores: bool = True,
    ) -> None:
        self.config, self.engine, self.pack, self.packages = config, engine, pack, packages
        self.tasks = {task.task_id: task for task in tasks}
        self.turns = config.turns or pack.turns
        self.with_scores = with_scores
        self.environment = environment if self.turns > 1 or with_scores else None

    def __call__(self, batch: pa.Table) -> pa.Table | tuple[pa.Table, pa.Table]:
        config = self.config
        episodes = run_episodes(
            seats_of(
                [self.tasks[task_id] for task_id in batch.column("task_id").to_pylist()], config, self.environment
            ),
            engine=self.engine,
            pack=self.pack,
            turns=self.turns,
            sampling=Sampling(
                max_new_tokens=config.max_new_tokens or self.pack.max_new_tokens,
                temperature=config.temperature,
                top_p=config.top_p,
            ),
            packages=self.packages,
        )
        answered = self.environment.scorer if self.environment else WORLD_MODEL
        trajectories, scores = [], []
        for episode in episodes:
            rows = trajectory_rows(episode, step=0, environment=answered, policy_digest=self.engine.digest)
            trajectories += rows
            scores += [
                score_row(turn.outcome, scorer=answered, trajectory=row)
                for turn, row in zip(episode.turns, rows, strict=True)
                if turn.outcome is not None
            ]
        table = rows_to_table(TRAJECTORIES, trajectories)
        return (table, rows_to_table(SCORES, scores)) if self.with_scores else table


class Score:
    """`trajectories` -> `scores` by an environment: the world model, on anybody's logged scripts."""

    def __init__(self, tasks: Sequence[Task], environment: Environment) -> None:
        self.tasks, self.environment = {task.task_id: task for task in tasks}, environment

    def __call__(self, batch: pa.Table) -> pa.Table:
        names = ["trajectory_id", "turn", "group_id", "task_id", "step", "script", "seed"]
        rows = batch.select(names).to_pylist()
        for row in rows:
            if row["task_id"] not in self.tasks:
                raise TableError(
                    f"`{row['trajectory_id']}` is of task `{row['task_id']}`, which the task table does not have",
                    "give the task table that the trajectories were made from with --tasks",
                )
        attempts = [
            Attempt(
                task=self.tasks[row["task_id"]], script=row["script"], seed=row_seed(row["seed"], "score", row["turn"])
            )
            for row in rows
        ]
        outcomes = self.environment.step(attempts)
        scorer = self.environment.scorer
        return rows_to_table(
            SCORES,
            [score_row(outcome, scorer=scorer, trajectory=row) for row, outcome in zip(rows, outcomes, strict=True)],
        )
