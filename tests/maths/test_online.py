import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wmrl_cli.maths.calibration import cross_fit, fit_isotonic
from wmrl_cli.maths.fusion import Eta, group_residual
from wmrl_cli.maths.online import CalibratorConfig, OnlineCalibrator, PairGroup


def pair_group(name, predicted, real):
    n = len(predicted)
    return PairGroup(
        group_id=name,
        task_id="task",
        trajectory_ids=[f"{name}/{i}" for i in range(n)],
        predicted=predicted,
        real=real,
        status_predicted=["valid"] * n,
        status_real=["runtime_error"] * n,
    )


def steps(count, *, groups=1, n=8, seed=0, noise=0.1):
    """Steps of groups with real = square of predicted, plus noise."""
    rng = np.random.default_rng(seed)
    for step in range(count):
        batch = []
        for g in range(groups):
            predicted = rng.random(n)
            real = np.clip(predicted**2 + rng.normal(0, noise, n), 0, 1)
            batch.append(pair_group(f"{step}/{g}", predicted.tolist(), real.tolist()))
        yield step, batch


def test_identity_until_two_hundred_pairs_then_refits_every_sixty_four():
    calibrator, versions = OnlineCalibrator(), []
    for step, groups in steps(60):
        calibrator.observe(step, groups)
        versions.append(calibrator.map.version)
    pairs = 8 * np.arange(1, 61)
    expected = np.where(pairs < 200, 0, 1 + (pairs - 200) // 64)
    assert versions == expected.tolist()


def test_pairs_are_judged_by_the_map_that_was_there_before_them():
    calibrator = OnlineCalibrator()
    for step, groups in steps(60, groups=3):
        before = calibrator.map
        observed = calibrator.observe(step, groups)
        assert observed.metrics["map_version"] == before.version
        predicted = [record["predicted"] for record in observed.records]
        assert [record["calibrated"] for record in observed.records] == before(predicted).tolist()
        assert {record["map_version"] for record in observed.records} == {before.version}


def test_the_map_is_the_fit_on_the_newest_window():
    config = CalibratorConfig(min_pairs=16, refit_every=8, window=20)
    calibrator, predicted, real = OnlineCalibrator(config), [], []
    for step, groups in steps(9):
        calibrator.observe(step, groups)
        predicted += groups[0].predicted
        real += groups[0].real
        if len(predicted) >= 16:
            expected = fit_isotonic(predicted[-20:], real[-20:])
            assert calibrator.map.values.tolist() == expected.values.tolist()


def test_warm_up_ends_at_rho_two_with_eta_out_of_fold():
    config = CalibratorConfig(min_pairs=40, refit_every=8, window=100, half_life=3)
    calibrator = OnlineCalibrator(config)
    batches = list(steps(5))
    for step, groups in batches:
        assert calibrator.rho == 1.0
        calibrator.observe(step, groups)
    predicted = np.concatenate([groups[0].predicted for _, groups in batches])
    real = np.concatenate([groups[0].real for _, groups in batches])
    calibrated = cross_fit(predicted, real, np.repeat(np.arange(5), 8))
    eta = Eta(half_life=3)
    for g in range(5):
        eta = eta.push(group_residual(calibrated[8 * g : 8 * g + 8], real[8 * g : 8 * g + 8]))
    assert calibrator.eta2 == calibrator.eta2_cal == pytest.approx(eta.value)
    assert calibrator.rho == 2.0


def test_rho_rises_when_the_world_model_gets_worse_and_training_falls_back_to_real_execution():
    calibrator = OnlineCalibrator()
    for step, groups in steps(30):
        calibrator.observe(step, groups)
    early = calibrator.rho
    for step, groups in steps(200, seed=1, noise=0.6):
        calibrator.observe(30 + step, groups)
    assert early < 3 and calibrator.rho > 5


def test_the_state_survives_json_at_every_step_bit_for_bit():
    straight, resumed = OnlineCalibrator(), OnlineCalibrator()
    for step, groups in steps(50, groups=2, n=4):
        resumed = OnlineCalibrator.from_json(json.loads(json.dumps(resumed.to_json())))
        assert straight.observe(step, groups) == resumed.observe(step, groups)
        assert json.dumps(straight.to_json()) == json.dumps(resumed.to_json())
    assert straight.map.version > 1


def test_lost_scores_make_no_pairs():
    calibrator = OnlineCalibrator()
    observed = calibrator.observe(0, [pair_group("g", [0.1, None, 0.3, float("nan")], [0.2, 0.3, None, 0.1])])
    assert [record["trajectory_id"] for record in observed.records] == ["g/0"]
    assert calibrator.pairs == 1
    assert observed.metrics["residual_raw"] is None  # a single pair has no residual inside its group
    assert observed.metrics["bias_raw"] == pytest.approx(-0.1)


def test_a_step_without_pairs_changes_nothing_and_has_no_residual():
    calibrator = OnlineCalibrator()
    before = calibrator.to_json()
    observed = calibrator.observe(0, [pair_group("g", [None], [0.2])])
    assert observed.records == [] and observed.metrics["bias_calibrated"] is None
    assert calibrator.to_json() == before


def test_residual_and_bias_by_hand():
    observed = OnlineCalibrator().observe(0, [pair_group("g", [0.2, 0.6], [0.0, 1.0])])
    assert observed.metrics["residual_raw"] == pytest.approx(0.3)
    assert observed.metrics["bias_raw"] == pytest.approx(-0.1)
    assert observed.metrics["residual_calibrated"] == observed.metrics["residual_raw"]
    assert observed.metrics["pairs"] == 2 and observed.metrics["rho"] == 1.0 and observed.metrics["eta2_cal"] is None


def test_one_predicted_score_for_all_keeps_the_identity_and_says_so():
    calibrator = OnlineCalibrator()
    rng = np.random.default_rng(0)
    for step in range(40):
        calibrator.observe(step, [pair_group(str(step), [0.5] * 8, rng.random(8).tolist())])
    assert calibrator.map.is_identity and calibrator.rho == 1.0
    assert "one score" in calibrator.note


def test_a_reversed_world_model_is_said_to_be_useless():
    calibrator = OnlineCalibrator()
    rng = np.random.default_rng(0)
    for step in range(40):
        predicted = rng.random(8)
        calibrator.observe(step, [pair_group(str(step), predicted.tolist(), (1 - predicted).tolist())])
    assert calibrator.map.is_flat and "flat" in calibrator.note


def test_constant_real_rewards_leave_rho_at_one_until_a_group_varies():
    calibrator = OnlineCalibrator()
    rng = np.random.default_rng(0)
    for step in range(40):
        calibrator.observe(step, [pair_group(str(step), rng.random(8).tolist(), [0.1] * 8)])
    assert calibrator.eta2_cal is None and calibrator.rho == 1.0
    assert "constant" in calibrator.note
    for step, groups in steps(9, seed=3):
        calibrator.observe(40 + step, groups)
    assert calibrator.eta2_cal is not None and calibrator.rho >= 1.0 and calibrator.note == ""


def test_the_four_rows_of_the_ablation():
    ends = {}
    for debias in (True, False):
        for denoise in (True, False):
            calibrator = OnlineCalibrator(CalibratorConfig(debias=debias, denoise=denoise))
            for step, groups in steps(40):
                calibrator.observe(step, groups)
            ends[debias, denoise] = calibrator
    assert {switches: end.map.is_identity for switches, end in ends.items()} == {
        (True, True): False,
        (True, False): False,
        (False, True): True,
        (False, False): True,
    }
    assert ends[True, False].rho == ends[False, False].rho == 1.0
    assert ends[True, True].rho > 1.5 and ends[False, True].rho > 1.5
    assert ends[True, True].eta2 < ends[False, True].eta2


def test_rho_rule_bound_and_per_group_change_the_result():
    def end(**options):
        calibrator = OnlineCalibrator(CalibratorConfig(**options))
        for step, groups in steps(60):
            calibrator.observe(step, groups)
        return calibrator

    plain = end()
    assert end(rho_rule="measured").rho == pytest.approx(1 + plain.eta2)
    assert end(rho_max=1.25).rho == 1.25
    assert end(per_group=True).eta2 != plain.eta2
    assert end(half_life=5.0).eta2 != plain.eta2


@pytest.mark.parametrize(
    "options",
    [{"min_pairs": 1}, {"refit_every": 0}, {"window": 100}, {"half_life": 0.0}, {"rho_max": 0.5}, {"rho_rule": "x"}],
)
def test_a_configuration_that_makes_no_sense_is_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        CalibratorConfig(**options)


def test_a_score_outside_its_range_is_refused_with_its_group():
    with pytest.raises(ValueError, match="`g7`"):
        OnlineCalibrator().observe(0, [pair_group("g7", [0.1, 1.2], [0.1, 0.2])])


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.randoms(use_true_random=False))
def test_the_order_inside_a_group_does_not_move_the_map(seed, random):
    straight, shuffled = OnlineCalibrator(), OnlineCalibrator()
    for step, groups in steps(30, seed=seed):
        order = random.sample(range(8), 8)
        straight.observe(step, groups)
        mixed = pair_group("g", [groups[0].predicted[i] for i in order], [groups[0].real[i] for i in order])
        shuffled.observe(step, [mixed])
    grid = np.linspace(0, 1, 11)
    assert straight.map(grid) == pytest.approx(shuffled.map(grid), abs=1e-12)
    assert straight.rho == pytest.approx(shuffled.rho, rel=1e-9)
