"""A run on disk: whole steps, checkpoints, going on, and refusing what does not belong."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

from wmrl_cli.errors import ConfigError, StageError
from wmrl_cli.tables import METRICS, read_table
from wmrl_cli.training.config import TrainConfig
from wmrl_cli.training.run_folder import RunFolder
from wmrl_cli.training.step_metrics import metrics_row


class Counter:
    """A learner whose weights are one number."""

    def __init__(self) -> None:
        self.value = 0

    def save(self, folder):
        folder.mkdir()
        (folder / "value").write_text(str(self.value))

    def load(self, folder):
        self.value = int((folder / "value").read_text())


def play(run, learner, step):
    learner.value += 1
    rows = {
        "metrics": [metrics_row(step, {"reward_used": step / 10})],
        "anchor_pairs": [],
        "trajectories": [],
        "scores": [],
    }
    run.commit(step, rows)


def test_a_step_without_a_checkpoint_is_played_again(tmp_path):
    config = TrainConfig(checkpoint_every=2)
    with RunFolder(tmp_path / "run", config) as run:
        learner = Counter()
        assert run.restore(learner) == (0, {})
        play(run, learner, 0)
        play(run, learner, 1)
        run.checkpoint(2, learner, {"note": "two"})
        play(run, learner, 2)
    with RunFolder(tmp_path / "run", config) as run:
        learner = Counter()
        assert run.restore(learner) == (2, {"note": "two"})
        assert learner.value == 2
        assert not (tmp_path / "run/steps/00002").exists()
        play(run, learner, 2)
    metrics = read_table(METRICS, tmp_path / "run/metrics.parquet")
    assert metrics.column("step").to_pylist() == [0, 1, 2]


def test_what_a_killed_process_left_half_written_is_no_step_and_no_checkpoint(tmp_path):
    config = TrainConfig()
    with RunFolder(tmp_path / "run", config) as run:
        play(run, Counter(), 0)
        run.checkpoint(1, Counter(), {})
    (tmp_path / "run/steps/.00001").mkdir()
    (tmp_path / "run/checkpoints/.00002").mkdir()
    with RunFolder(tmp_path / "run", config) as run:
        assert run.restore(Counter())[0] == 1
        play(run, Counter(), 1)
        run.checkpoint(2, Counter(), {})
        assert run.restore(Counter())[0] == 2


def test_the_newest_two_checkpoints_are_kept(tmp_path):
    with RunFolder(tmp_path / "run", TrainConfig()) as run:
        for step in range(5):
            run.checkpoint(step + 1, Counter(), {})
    assert sorted(os.listdir(tmp_path / "run/checkpoints")) == ["00004", "00005"]


def test_a_run_of_another_configuration_is_refused_and_says_what_differs(tmp_path):
    with RunFolder(tmp_path / "run", TrainConfig(seed=1)):
        pass
    with pytest.raises(ConfigError, match=r"`seed` was 1, is 2") as caught:
        RunFolder(tmp_path / "run", TrainConfig(seed=2)).__enter__()
    assert caught.value.exit_code == 2
    assert json.loads((tmp_path / "run/config.json").read_text())["config"]["seed"] == 1


def test_a_run_may_be_lengthened(tmp_path):
    config = TrainConfig(steps=3)
    with RunFolder(tmp_path / "run", config):
        pass
    with RunFolder(tmp_path / "run", replace(config, steps=9, checkpoint_every=3)):
        pass


def test_two_processes_cannot_train_in_one_folder(tmp_path):
    first = RunFolder(tmp_path / "run", TrainConfig())
    with first, pytest.raises(StageError, match="another process"):
        RunFolder(tmp_path / "run", TrainConfig()).__enter__()
