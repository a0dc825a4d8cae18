import numpy as np
import pytest

from tests.maths.logs import log_of
from wmrl_cli.maths.calibration import fit_isotonic
from wmrl_cli.maths.diagnosis import diagnose
from wmrl_cli.maths.pair_log import make_log
from wmrl_cli.maths.verdict import Use, judge


@pytest.fixture(scope="module")
def findings():
    worlds = ("exact", "bent", "reversed", "noise", "blind", "drifting")
    return {world: diagnose(log_of(world, noise=0.02 if world == "exact" else 0.1), draws=300) for world in worlds}


def test_each_world_gets_its_verdict(findings):
    assert {world: judge(found).use for world, found in findings.items()} == {
        "exact": Use.AS_IS,
        "bent": Use.AFTER_MAP,
        "reversed": Use.NOT,
        "noise": Use.NOT,
        "blind": Use.AFTER_MAP,
        "drifting": Use.AFTER_MAP,
    }


def test_known_bias_and_noise_are_recovered():
    rng = np.random.default_rng(0)
    real = rng.uniform(0.2, 0.7, 1600)
    shift = np.repeat(rng.normal(0, 0.05, 200), 8)  # a group's own, which GRPO never sees
    log = make_log(real + 0.1 + shift + rng.normal(0, 0.03, 1600), real, groups=np.repeat(np.arange(200), 8))
    found = diagnose(log, draws=300).overall
    assert found["bias_raw"].low < 0.1 < found["bias_raw"].high
    noise = 0.03 * np.sqrt(7 / 8)  # centring eight values takes an eighth of the variance
    assert found["noise_raw"].low < noise < found["noise_raw"].high
    real_variance = 0.25 / 12 * 7 / 8
    assert found["eta2_raw"].estimate == pytest.approx(noise**2 / real_variance, rel=0.1)
    assert abs(found["bias_map"].estimate) < 0.01


def test_a_reversed_world_model_is_called_useless_in_words(findings):
    verdict = judge(findings["reversed"])
    assert "against the truth" in verdict.reasons[0]
    assert any("flat" in warning for warning in verdict.warnings)
    assert any("not monotone" in warning for warning in verdict.warnings)
    assert findings["reversed"].blind == []  # the whole order is wrong, no status is to blame
    assert findings["reversed"].ties_map.dead > 100 > findings["reversed"].ties_raw.dead


def test_a_world_model_that_misses_time_outs_is_named_with_its_blind_spot(findings):
    found = findings["blind"]
    assert [spot.status for spot in found.blind] == ["timeout"]
    assert any("`timeout`" in warning and "not monotone" in warning for warning in judge(found).warnings)
    rows = {row.status: row for row in found.statuses}
    assert rows["timeout"].missed == 1 and rows["timeout"].invented is None
    assert rows["valid"].missed == 0 and rows["valid"].invented > 0.1
    assert rows["malformed"].missed == 0


def test_no_status_is_blamed_where_noise_alone_makes_near_pairs_swap(findings):
    for world in ("exact", "bent", "noise", "drifting"):
        assert findings[world].blind == []


def test_drift_is_seen_and_only_there(findings):
    assert any("drifts" in warning for warning in judge(findings["drifting"]).warnings)
    assert not any("drifts" in warning for warning in judge(findings["bent"]).warnings)
    windows = findings["drifting"].by["window"]
    assert windows[0].name.startswith("0-") and windows[-1].name.endswith("-59")
    assert windows[0].bias_raw.estimate > windows[-1].bias_raw.estimate + 0.1
    assert sum(row.pairs for row in windows) == 960


def test_differences_that_are_far_too_large_are_good_for_a_ranking_only_where_no_map_shrinks_them():
    log = log_of("shouting", noise=0.0)
    quiet = make_log(log.predicted, 0.45 + 0.1 * log.real, groups=log.group.code)
    unmapped = diagnose(quiet, fit=lambda x, y: fit_isotonic([0, 1], [0, 1]), draws=200)
    assert unmapped.overall["eta2_map"].estimate > 1 and judge(unmapped).use == Use.RANKING
    assert judge(diagnose(quiet, draws=200)).use == Use.AFTER_MAP


def test_in_sample_residuals_would_flatter_and_are_not_what_is_reported():
    rng = np.random.default_rng(1)
    log = make_log(rng.random(80), rng.random(80), groups=np.repeat(np.arange(10), 8))
    found = diagnose(log, draws=100)
    fitted = found.score_map(log.predicted)
    assert np.mean((fitted - log.real) ** 2) < found.overall["error_map"].estimate ** 2


def test_seven_values_in_groups_of_eight_count_their_ties():
    # the authors' setting: predicted rewards on seven rungs, which isotonic regression may merge
    rungs = np.array([0.0, 0.1, 0.2, 0.525, 0.6, 0.75, 0.95])
    rng = np.random.default_rng(0)
    level = rng.integers(0, 7, 800)
    real = np.where(level >= 3, 0.5 + 0.5 * rng.random(800), rungs[level])
    log = make_log(rungs[level], real, groups=np.repeat(np.arange(100), 8))
    found = diagnose(log, draws=100)
    rows = level.reshape(100, 8)
    by_hand = sum((row[:, None] == row).sum() - 8 for row in rows) // 2
    assert found.ties_raw.tied == by_hand and found.ties_raw.pairs == 2800
    assert found.ties_map.tied >= by_hand
    assert found.ties_real.tied < by_hand


def test_without_groups_only_errors_over_pairs_are_judged():
    rng = np.random.default_rng(0)
    real = rng.random(300)
    found = diagnose(make_log(real**3, real), draws=100)
    assert np.isnan(found.overall["accuracy_raw"].estimate) and np.isnan(found.overall["noise_raw"].estimate)
    assert judge(found).use == Use.AFTER_MAP
    assert any("unknown" in reason for reason in judge(found).reasons)


def test_one_predicted_score_is_no_use():
    rng = np.random.default_rng(0)
    found = diagnose(make_log([0.5] * 80, rng.random(80), groups=np.repeat(np.arange(10), 8)), draws=100)
    verdict = judge(found)
    assert verdict.use == Use.NOT and any("distinct" in warning for warning in verdict.warnings)


def test_few_pairs_are_judged_and_said_to_be_few():
    found = diagnose(log_of("bent", groups=4), draws=100)
    assert any("only 32 pairs" in warning for warning in judge(found).warnings)


def test_intervals_of_the_diagnosis_cover_the_truth():
    truth = diagnose(log_of("bent", 2000, seed=99), draws=50).overall
    hits = {"noise_raw": 0, "accuracy_raw": 0, "bias_raw": 0}
    for seed in range(30):
        found = diagnose(log_of("bent", 40, seed=seed), draws=200, seed=seed).overall
        for name in hits:
            hits[name] += found[name].low <= truth[name].estimate <= found[name].high
    # 30 draws at 95 %: fewer than 24 hits have a chance below 1e-3
    assert min(hits.values()) >= 24


def test_the_seed_decides_and_nothing_else():
    log = log_of("bent", 40)
    one, again, other = (diagnose(log, draws=100, seed=seed).overall for seed in (1, 1, 2))
    assert one == again and one != other
