"""Which tasks a step plays and which of its groups are anchors: pure functions of the run's seed and the step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wmrl_cli.maths.anchors import choose_anchors
from wmrl_cli.seeds import row_seed
from wmrl_cli.task import Task
from wmrl_cli.training.config import TrainConfig


@dataclass(frozen=True, kw_only=True)
class Group:
    """The trajectories of one task in one step; `executed` groups are the anchors."""

    group_id: str
    task: Task
    executed: bool
    trajectory_ids: tuple[str, ...]
    seeds: tuple[int, ...]


def plan_step(config: TrainConfig, tasks: Sequence[Task], step: int) -> list[Group]:
    """The step's groups, in order. Every task comes once before any comes again."""
    anchors = choose_anchors(
        config.seed, step, config.groups_per_step, config.anchor_frac, min_per_step=config.min_anchors_per_step
    )
    groups = []
    for index in range(config.groups_per_step):
        if config.anchors_only and not anchors[index]:
            continue
        group_id = f"{step:05d}-{index:02d}"
        ids = tuple(f"{group_id}-{member:02d}" for member in range(config.group_size))
        groups.append(
            Group(
                group_id=group_id,
                task=_task_at(config.seed, tasks, step * config.groups_per_step + index),
                executed=bool(anchors[index]),
                trajectory_ids=ids,
                seeds=tuple(row_seed(config.seed, trajectory_id) for trajectory_id in ids),
            )
        )
    return groups


def _task_at(seed: int, tasks: Sequence[Task], position: int) -> Task:
    """Task number `position` of an endless sequence of seeded shuffles."""
    epoch, place = divmod(position, len(tasks))
    order = np.random.default_rng(row_seed(seed, "tasks", epoch)).permutation(len(tasks))
    return tasks[int(order[place])]
