"""Which tasks a step plays, and which of its groups are anchors."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from wmrl_cli.training.config import TrainConfig
from wmrl_cli.training.plan import plan_step

TASKS = [SimpleNamespace(task_id=f"t{i}") for i in range(5)]


def test_every_task_comes_once_before_any_comes_again():
    config = TrainConfig(groups_per_step=2)
    played = [group.task.task_id for step in range(5) for group in plan_step(config, TASKS, step)]
    assert sorted(played[:5]) == sorted(played[5:]) == [f"t{i}" for i in range(5)]


def test_a_step_is_a_pure_function_of_seed_and_number():
    config = TrainConfig(seed=3)
    assert plan_step(config, TASKS, 7) == plan_step(config, TASKS, 7)
    assert plan_step(config, TASKS, 7) != plan_step(replace(config, seed=4), TASKS, 7)


def test_the_share_of_anchors_is_exact_in_the_long_run():
    config = TrainConfig(anchor_frac=0.1)
    anchors = [group.executed for step in range(100) for group in plan_step(config, TASKS, step)]
    assert sum(anchors) == 80


def test_anchors_only_plays_the_very_groups_that_are_anchors_otherwise():
    config = TrainConfig(anchor_frac=0.25)
    both = [group for step in range(4) for group in plan_step(config, TASKS, step) if group.executed]
    alone = [group for step in range(4) for group in plan_step(replace(config, anchors_only=True), TASKS, step)]
    assert alone == both and len(alone) == 8


def test_seeds_and_ids_are_distinct():
    groups = [group for step in range(3) for group in plan_step(TrainConfig(), TASKS, step)]
    ids = [trajectory_id for group in groups for trajectory_id in group.trajectory_ids]
    assert len(set(ids)) == len(ids) == len({seed for group in groups for seed in group.seeds})
