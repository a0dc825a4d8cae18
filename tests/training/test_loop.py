"""The whole loop on random models: what it writes, what it reports, and that going on changes nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.training.worlds import World, make_effects, make_learner, make_task
from wmrl_cli.errors import UnavailableError
from wmrl_cli.maths.online import CalibratorConfig
from wmrl_cli.tables import ANCHOR_PAIRS, METRICS, SCORES, TRAJECTORIES, read_table
from wmrl_cli.training.config import RolloutConfig, TrainConfig
from wmrl_cli.training.loop import run_steps
from wmrl_cli.training.run_folder import RunFolder

TASKS = [make_task(f"task-{i}") for i in range(3)]
CONFIG = TrainConfig(
    steps=4,
    groups_per_step=4,
    group_size=4,
    anchor_frac=0.5,
    calibration=CalibratorConfig(min_pairs=12, refit_every=4, window=100),
)
CLOCKS = ("seconds", "wall_s", "speed_up")


@pytest.fixture(autouse=True)
def any_reply_is_a_script(monkeypatch):
    """A random model never writes a code block; its reply stands in for one."""
    monkeypatch.setattr("wmrl_cli.agent.episode.extract_script", lambda text, finish_reason: text)


def train(folder, config=CONFIG, *, kind="qwen3", steps=None, **worlds):
    learner = make_learner(kind)
    with RunFolder(folder, config) as run:
        rows = []
        for row in run_steps(config, TASKS, make_effects(learner, **worlds), learner, run):
            rows.append(row)
            if steps and len(rows) == steps:
                break
    return learner, rows


def weights(learner):
    return torch.cat([parameter.detach().flatten() for parameter in learner.model.parameters()])


def without_clocks(table):
    return table.select([name for name in table.schema.names if not any(clock in name for clock in CLOCKS)])


def all_steps(folder, kind):
    return [read_table(kind, path) for path in sorted(folder.glob(f"steps/*/{kind.name}.parquet"))]


@pytest.mark.parametrize("kind", ["qwen3", "qwen3.5"])
def test_an_interrupted_run_ends_as_an_uninterrupted_one_bit_for_bit(tmp_path, kind):
    whole, _ = train(tmp_path / "whole", kind=kind)
    train(tmp_path / "parts", kind=kind, steps=1)
    train(tmp_path / "parts", kind=kind, steps=2)
    parts, _ = train(tmp_path / "parts", kind=kind)
    assert torch.equal(weights(whole), weights(parts))
    for kind_ in (METRICS, ANCHOR_PAIRS, SCORES, TRAJECTORIES):
        for one, other in zip(all_steps(tmp_path / "whole", kind_), all_steps(tmp_path / "parts", kind_), strict=True):
            assert without_clocks(one).equals(without_clocks(other)), kind_.name


def test_what_a_run_reports_follows_from_its_tables(tmp_path):
    """Recomputed here from the trajectories and scores on disk, with formulas of method.md and nothing of ours."""
    train(tmp_path, sandbox=World("sandbox", seconds=2.0, lose=9), world_model=World("world_model", noise=0.4, lose=11))
    metrics = read_table(METRICS, tmp_path / "metrics.parquet").to_pylist()
    pairs = read_table(ANCHOR_PAIRS, tmp_path / "anchor_pairs.parquet").to_pylist()
    seen = 0
    for metric, scores in zip(metrics, all_steps(tmp_path, SCORES), strict=True):
        rows = scores.to_pylist()
        by = {name: {r["trajectory_id"]: r for r in rows if r["scorer"] == name} for name in ("world_model", "sandbox")}
        groups = {r["group_id"] for r in rows}
        anchors = {r["group_id"] for r in rows if r["scorer"] == "sandbox"}
        assert metric["anchor_share_realised"] == len(anchors) / len(groups)
        assert metric["lost_sandbox"] == sum(r["reward"] is None for r in by["sandbox"].values())
        assert metric["lost_world_model"] == sum(r["reward"] is None for r in by["world_model"].values())
        real = [r["reward"] for r in by["sandbox"].values() if r["reward"] is not None]
        assert metric["reward_real"] == pytest.approx(np.mean(real))
        of_step = [p for p in pairs if p["step"] == metric["step"]]
        both = [
            t
            for t, r in by["sandbox"].items()
            if r["reward"] is not None and by["world_model"][t]["reward"] is not None
        ]
        assert sorted(p["trajectory_id"] for p in of_step) == sorted(both)
        for pair in of_step:
            assert pair["predicted"] == by["world_model"][pair["trajectory_id"]]["reward"]
            assert pair["real"] == by["sandbox"][pair["trajectory_id"]]["reward"]
        seen += len(of_step)
        assert metric["pairs"] == seen
        residuals, gaps = [], []
        for group in sorted({p["group_id"] for p in of_step}):
            c = np.array([p["calibrated"] for p in of_step if p["group_id"] == group])
            r = np.array([p["real"] for p in of_step if p["group_id"] == group])
            gaps += list(c - r)
            if len(c) > 1:
                residuals.append(np.mean(((c - c.mean()) - (r - r.mean())) ** 2))
        assert metric["residual_calibrated"] == pytest.approx(np.sqrt(np.mean(residuals)))
        assert metric["bias_calibrated"] == pytest.approx(np.mean(gaps))
        k = metric["groups"]
        executed = metric["anchors"]
        if metric["lost_sandbox"] == metric["lost_world_model"] == 0:
            total = executed + (k - executed) / metric["rho"]
            assert metric["weight_executed"] == pytest.approx(k / total)
            assert metric["weight_simulated"] == pytest.approx(k / metric["rho"] / total)
    assert metrics[0]["map_version"] == 0 and metrics[-1]["map_version"] > 0
    assert metrics[0]["rho"] == 1.0
    assert max(metric["rho"] for metric in metrics) > 1.0


def test_a_trajectory_names_the_weights_that_wrote_it(tmp_path):
    start = make_effects(make_learner()).engine.digest
    train(tmp_path)
    digests = [set(table.column("policy_digest").to_pylist()) for table in all_steps(tmp_path, TRAJECTORIES)]
    assert digests[0] == {start}
    assert all(len(of_step) == 1 for of_step in digests)
    assert len(set.union(*digests)) == len(digests), "each step's update makes another policy"


def test_rho_is_two_when_warm_up_ends(tmp_path):
    _, rows = train(tmp_path)
    first = next(row for row in rows if row["map_version"] == 1)
    assert first["rho"] == pytest.approx(2.0)


def test_anchors_are_scored_by_both_and_the_others_by_the_world_model_alone(tmp_path):
    train(tmp_path)
    for scores in all_steps(tmp_path, SCORES):
        rows = scores.to_pylist()
        by_world_model = {r["trajectory_id"] for r in rows if r["scorer"] == "world_model"}
        by_sandbox = {r["trajectory_id"] for r in rows if r["scorer"] == "sandbox"}
        assert len(by_world_model) == 16 and len(by_sandbox) == 8 and by_sandbox < by_world_model


def test_plain_grpo_is_the_same_loop_with_every_group_executed(tmp_path):
    config = replace(CONFIG, anchor_frac=1.0, steps=2)
    learner = make_learner()
    effects = replace(make_effects(learner), world_model=None)
    with RunFolder(tmp_path, config) as run:
        rows = list(run_steps(config, TASKS, effects, learner, run))
    assert [row["anchor_share_realised"] for row in rows] == [1.0, 1.0]
    assert [row["weight_executed"] for row in rows] == [1.0, 1.0]
    assert rows[0]["reward_raw"] is None and rows[0]["seconds_simulate"] == 0


def test_the_world_model_alone_is_the_same_loop_with_no_group_executed(tmp_path):
    config = replace(CONFIG, anchor_frac=0.0, steps=2)
    learner = make_learner()
    effects = replace(make_effects(learner), sandbox=None)
    with RunFolder(tmp_path, config) as run:
        rows = list(run_steps(config, TASKS, effects, learner, run))
    assert [row["scripts_executed"] for row in rows] == [0, 0]
    assert rows[-1]["pairs"] == 0 and rows[-1]["rho"] == 1.0 and rows[-1]["reward_real"] is None


@pytest.mark.parametrize("switch", ["debias", "denoise"])
def test_each_half_of_the_method_can_be_switched_off(tmp_path, switch):
    config = replace(CONFIG, calibration=replace(CONFIG.calibration, **{switch: False}))
    _, rows = train(tmp_path / switch, config)
    on, _ = train(tmp_path / "on")
    off, _ = train(tmp_path / switch, config)
    assert (rows[-1]["map_version"] == 0) == (switch == "debias")
    assert (rows[-1]["rho"] == 1.0) == (switch == "denoise")
    assert not torch.equal(weights(on), weights(off)), "a switch that changes nothing is no switch"


def test_simulated_feedback_executes_the_anchors_afterwards(tmp_path):
    config = replace(CONFIG, anchor_feedback="simulated", steps=2, rollout=RolloutConfig(turns=2))
    train(tmp_path, config)
    for trajectories, scores in zip(all_steps(tmp_path, TRAJECTORIES), all_steps(tmp_path, SCORES), strict=True):
        assert set(trajectories.column("environment").to_pylist()) == {"world_model"}
        assert scores.column("scorer").to_pylist().count("sandbox") == 2 * 4 * 2


def test_with_executed_feedback_an_anchor_reads_what_the_sandbox_said(tmp_path):
    config = replace(CONFIG, steps=1, rollout=RolloutConfig(turns=2))
    train(tmp_path, config)
    rows = all_steps(tmp_path, TRAJECTORIES)[0].to_pylist()
    assert {r["environment"] for r in rows} == {"world_model", "sandbox"}
    assert {r["turn"] for r in rows} == {1, 2}


def test_a_step_in_which_the_sandbox_lost_everything_is_not_trained_on(tmp_path):
    learner = make_learner()
    before = weights(learner).clone()
    with RunFolder(tmp_path, CONFIG) as run, pytest.raises(UnavailableError, match="sandbox lost all 8") as caught:
        list(run_steps(CONFIG, TASKS, make_effects(learner, sandbox=World("sandbox", lose=1)), learner, run))
    assert caught.value.exit_code == 4
    assert torch.equal(before, weights(learner))
    assert not list(tmp_path.glob("steps/[0-9]*"))
