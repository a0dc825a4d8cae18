"""Replaying a training run's log gives what the run did live."""

import json
from pathlib import Path

import pytest

from tests.training.worlds import World, make_effects, make_learner, make_task
from wmrl_cli.__main__ import run as wmrl
from wmrl_cli.maths.online import CalibratorConfig, OnlineCalibrator
from wmrl_cli.maths.replay import replay
from wmrl_cli.stages.calibrate.read import read_log
from wmrl_cli.tables import ANCHOR_PAIRS, METRICS, check_kind, read_table
from wmrl_cli.training.config import TrainConfig
from wmrl_cli.training.loop import run_steps
from wmrl_cli.training.run_folder import RunFolder

CALIBRATION = CalibratorConfig(min_pairs=12, refit_every=4, window=100)
LIVE = ("map_version", "map_low", "residual_raw", "residual_calibrated", "bias_calibrated", "eta2", "eta2_cal", "rho")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of five steps; the sandbox loses some trajectories."""
    folder = tmp_path_factory.mktemp("run") / "run"
    config = TrainConfig(steps=5, groups_per_step=4, group_size=4, anchor_frac=0.5, calibration=CALIBRATION)
    patch = pytest.MonkeyPatch()
    patch.setattr("wmrl_cli.agent.episode.extract_script", lambda text, finish_reason: text)
    learner = make_learner()
    effects = make_effects(learner, sandbox=World("sandbox", noise=0.2, lose=7))
    with RunFolder(folder, config) as run:
        list(run_steps(config, [make_task(f"task-{i}") for i in range(3)], effects, learner, run))
    patch.undo()
    return folder


def steps_of(folder, kind):
    return [
        row
        for path in sorted(folder.glob(f"steps/*/{kind.name}.parquet"))
        for row in read_table(kind, path).to_pylist()
    ]


def test_the_pairs_replay_to_the_same_map_weights_and_residuals(trained):
    calibrator = OnlineCalibrator(CALIBRATION)
    log = read_log(sorted(trained.glob("steps/*/anchor_pairs.parquet")))
    observed = dict(replay(log, calibrator))
    assert [record for one in observed.values() for record in one.records] == steps_of(trained, ANCHOR_PAIRS)
    assert calibrator.map.version > 1
    for row in steps_of(trained, METRICS):
        if row["step"] in observed:
            replayed = observed[row["step"]].metrics
            assert {name: replayed[name] for name in LIVE} == {name: row[name] for name in LIVE}
    saved = json.loads((trained / "calibration.json").read_text())
    assert calibrator.to_json() == OnlineCalibrator.from_json(saved).to_json()


def test_the_score_tables_hold_the_same_pairs_and_the_simulated_rest(trained):
    pairs = read_log(sorted(trained.glob("steps/*/anchor_pairs.parquet")))
    scores = read_log(sorted(trained.glob("steps/*/scores.parquet")))
    assert scores.predicted.tolist() == pairs.predicted.tolist() and scores.real.tolist() == pairs.real.tolist()
    assert scores.group.names == pairs.group.names and scores.step.tolist() == pairs.step.tolist()
    assert scores.simulated.size == 5 * 4 * 4 / 2
    assert scores.dropped["lost by the sandbox"] == 5 * 8 - pairs.pairs


def test_a_runs_own_map_can_be_applied(trained, tmp_path, capfd):
    scores, target = sorted(trained.glob("steps/*/scores.parquet"))[-1], tmp_path / "out.parquet"
    arguments = ["calibrate", "--map", trained / "calibration.json", "--apply", scores, "-o", target]
    assert wmrl([str(argument) for argument in arguments]) == 0
    import pyarrow.parquet as pq

    rows = pq.read_table(target).to_pylist()
    assert {row["scorer"] for row in rows if row["calibrated"] is not None} == {"world_model"}
    assert "rows" in capfd.readouterr().out


def test_the_shipped_log_of_a_real_run_replays_as_training_wrote_it():
    path = Path(__file__).parents[2] / "docs" / "examples" / "anchor_pairs.parquet"
    made = check_kind(ANCHOR_PAIRS, path)["config"]["calibration"]
    calibrator = OnlineCalibrator(CalibratorConfig(**made))
    records = [record for _, observed in replay(read_log([path]), calibrator) for record in observed.records]
    assert records == read_table(ANCHOR_PAIRS, path).to_pylist()
    assert len(records) == 192 and records[-1]["map_version"] == 8
