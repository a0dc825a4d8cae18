import numpy as np
import pytest

from tests.maths.logs import log_of
from wmrl_cli.maths.fusion import fuse_weights
from wmrl_cli.maths.online import OnlineCalibrator
from wmrl_cli.maths.pair_log import PairLog, make_log
from wmrl_cli.maths.replay import replay, replay_arrays


def test_two_replays_are_identical_and_arrays_agree_with_records():
    log = log_of("bent", 60)
    runs = [list(replay(log, OnlineCalibrator())) for _ in range(2)]
    assert runs[0] == runs[1]
    arrays = replay_arrays(log)
    records = [record for _, observed in runs[0] for record in observed.records]
    assert [record["calibrated"] for record in records] == arrays.calibrated.tolist()
    assert [record["map_version"] for record in records] == arrays.map_version.tolist()
    rho = [observed.metrics["rho"] for _, observed in runs[0]]
    assert rho == arrays.steps["rho"].tolist() and rho[-1] > 1.5


def test_a_step_holds_all_its_groups_and_uses_one_map():
    log = log_of("bent", 60)
    steps = [(step, len(groups)) for step, groups in log.steps()]
    assert steps == [(step, 2) for step in range(30)]
    for _, observed in replay(log, OnlineCalibrator()):
        assert len({record["map_version"] for record in observed.records}) == 1


def test_steps_sort_the_log_and_without_steps_every_group_is_one():
    log = make_log([0.1, 0.2, 0.3, 0.4], [0, 0, 1, 1], groups=["b", "a", "b", "a"], steps=[1, 0, 1, 0])
    assert log.predicted.tolist() == [0.2, 0.4, 0.1, 0.3] and log.group.names == ["a", "b"]
    plain = make_log([0.1, 0.2, 0.3, 0.4], [0, 0, 1, 1], groups=["b", "b", "a", "a"])
    assert [(step, [g.tolist() for g in groups]) for step, groups in plain.steps()] == [(0, [[0, 1]]), (1, [[2, 3]])]


def test_weights_are_those_of_a_step_with_the_logs_shares():
    log = log_of("bent", 40)
    simulated = PairLog(
        **{**vars(log), "simulated": np.full(360, 0.5), "simulated_group": np.repeat(np.arange(360), 1)}
    )
    _, observed = list(replay(simulated, OnlineCalibrator()))[-1]
    weights = fuse_weights([True] + [False] * 9, [8] * 10, observed.metrics["rho"])
    assert observed.metrics["weight_executed"] == pytest.approx(weights[0])
    assert observed.metrics["weight_simulated"] == pytest.approx(weights[1])
    _, alone = next(replay(log, OnlineCalibrator()))
    assert alone.metrics["weight_executed"] is None


def test_a_drifting_world_model_is_tracked_by_the_window():
    log = log_of("drifting", 600, noise=0.02)
    from wmrl_cli.maths.online import CalibratorConfig

    late = np.arange(log.pairs) > 0.8 * log.pairs
    error = {}
    for window in (200, 5000):
        calibrated = replay_arrays(log, CalibratorConfig(window=window)).calibrated
        error[window] = np.mean((calibrated - log.real)[late] ** 2)
    assert error[200] < 0.7 * error[5000]


def test_taking_pairs_keeps_their_columns():
    log = log_of("bent", 10)
    newest = log.newest(16)
    assert newest.pairs == 16 and newest.groups == 2 and newest.group.names == ["g0008", "g0009"]
    assert newest.real.tolist() == log.real[-16:].tolist()
    names = [newest.status_real.names[code] for code in newest.status_real.code]
    assert names == [log.status_real.names[code] for code in log.status_real.code[-16:]]
    assert log.newest(10_000) is log


def test_a_log_refuses_scores_outside_its_range():
    with pytest.raises(ValueError, match="pair 1 "):
        make_log([0.1, 1.5], [0.1, 0.2])
    with pytest.raises(ValueError, match="as many labels"):
        make_log([0.1, 0.5], [0.1, 0.2], groups=["a", "b", "c"])
