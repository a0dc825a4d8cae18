import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from wmrl_cli.maths.calibration import ScoreMap, cross_fit, fit_centred, fit_isotonic

score = st.floats(0, 1, allow_nan=False).map(lambda x: round(x, 3))
pairs = st.lists(st.tuples(score, score), min_size=2, max_size=40).filter(lambda p: len({x for x, _ in p}) > 1)


def arrays(pairs):
    return np.array(pairs).T


def test_pooled_blocks_by_hand():
    # scikit-learn issue 9432: two predictions of 1/3 that really were 0 and 1; blocks 0, (0,1,0 -> 1/3), 1
    fitted = fit_isotonic([0, 1 / 3, 1 / 3, 2 / 3, 1], [0, 0, 1, 0, 1])
    assert fitted([0, 1 / 3, 2 / 3, 1]).tolist() == pytest.approx([0, 1 / 3, 1 / 3, 1])


def test_seven_rungs_that_are_out_of_order_become_one_value():
    rungs = [0.0, 0.1, 0.2, 0.525, 0.6, 0.75, 0.95]
    real = [0.0, 0.5, 0.4, 0.3, 0.2, 0.8, 0.9]
    assert fit_isotonic(rungs, real)(rungs).tolist() == pytest.approx([0, 0.35, 0.35, 0.35, 0.35, 0.8, 0.9])


def test_a_score_outside_the_data_is_clipped_to_the_ends():
    fitted = fit_isotonic([0.1, 0.3, 0.4], [0.2, 0.3, 0.7])
    assert fitted([0.0, 0.5, 1.0]).tolist() == [0.2, 0.7, 0.7]


def test_a_reversed_world_model_gives_a_flat_map():
    fitted = fit_isotonic([0.1, 0.4, 0.9], [1.0, 0.5, 0.0])
    assert fitted.is_flat and fitted.low == fitted.high == 0.5
    assert not ScoreMap.identity().is_flat


def test_one_distinct_score_stays_at_identity():
    assert fit_isotonic([0.5, 0.5, 0.5], [0.0, 0.5, 1.0]).is_identity
    assert fit_centred([0.5], [0.1]).is_identity
    assert fit_isotonic([], []).is_identity


@pytest.mark.parametrize(
    ("predicted", "real", "words"),
    [
        ([0.1, float("nan")], [0.1, 0.2], "pair 1 "),
        ([0.1, 0.2], [float("inf"), 0.2], "pair 0 "),
        ([0.1, 0.2, 1.1], [0.1, 0.2, 0.3], "pair 2 "),
        ([0.1, 0.2], [0.1, -0.2], "pair 1 "),
        ([0.1, 0.2], [0.1], "one length"),
    ],
)
def test_the_first_bad_pair_is_named(predicted, real, words):
    with pytest.raises(ValueError, match=words):
        fit_isotonic(predicted, real)


def test_weights_must_be_positive():
    with pytest.raises(ValueError, match="positive"):
        fit_isotonic([0.1, 0.2], [0, 1], weights=[1, 0])


@given(pairs)
def test_the_map_is_monotone_and_in_range(pairs):
    fitted = fit_isotonic(*arrays(pairs))
    calibrated = fitted(np.linspace(-0.1, 1.1, 101))
    assert (np.diff(calibrated) >= 0).all()
    assert calibrated.min() >= 0 and calibrated.max() <= 1


@given(pairs)
def test_the_map_is_scikit_learns(pairs):
    x, y = arrays(pairs)
    reference = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(x, y)
    grid = np.concatenate([x, np.linspace(0, 1, 50)])
    assert fit_isotonic(x, y)(grid) == pytest.approx(reference.predict(grid), abs=1e-12)


@given(pairs, st.randoms(use_true_random=False))
def test_the_order_of_pairs_does_not_matter(pairs, random):
    shuffled = random.sample(pairs, len(pairs))
    grid = np.linspace(0, 1, 21)
    assert fit_isotonic(*arrays(pairs))(grid) == pytest.approx(fit_isotonic(*arrays(shuffled))(grid), abs=1e-12)


@given(pairs, st.data())
def test_a_weight_is_a_number_of_repetitions(pairs, data):
    weights = data.draw(st.lists(st.integers(1, 4), min_size=len(pairs), max_size=len(pairs)))
    x, y = arrays(pairs)
    repeated = fit_isotonic(np.repeat(x, weights), np.repeat(y, weights))
    grid = np.linspace(0, 1, 21)
    assert fit_isotonic(x, y, weights=weights)(grid) == pytest.approx(repeated(grid), abs=1e-9)


@given(pairs, st.floats(0.1, 1), st.floats(0, 1))
def test_a_shift_and_scale_of_real_scores_moves_the_map_alike(pairs, scale, share):
    x, y = arrays(pairs)
    shift = share * (1 - scale)
    moved = fit_isotonic(x, shift + scale * y)
    grid = np.linspace(0, 1, 21)
    assert moved(grid) == pytest.approx(shift + scale * fit_isotonic(x, y)(grid), abs=1e-9)


@given(pairs)
def test_a_map_survives_json_bit_for_bit(pairs):
    fitted = fit_isotonic(*arrays(pairs), version=7)
    again = ScoreMap.from_json(json.loads(json.dumps(fitted.to_json())))
    assert again.version == 7
    assert again.knots.tobytes() == fitted.knots.tobytes() and again.values.tobytes() == fitted.values.tobytes()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_the_identity_changes_no_bit_and_keeps_lost_scores(scores):
    scores = [*scores, float("nan")]
    assert ScoreMap.identity()(scores).tobytes() == np.array(scores).tobytes()


@given(pairs)
def test_the_centred_map_keeps_strict_order_between_its_ends(pairs):
    x, y = arrays(pairs)
    centred = fit_centred(x, y)
    assert (np.diff(centred.values) > 0).all()
    inside = np.unique(x[(x >= centred.knots[0]) & (x <= centred.knots[-1])])
    assert (np.diff(centred(inside)) >= 0).all()
    assert np.unique(centred(x)).size >= np.unique(fit_isotonic(x, y)(x)).size


def test_a_map_whose_values_fall_is_refused():
    with pytest.raises(ValueError, match="may not fall"):
        ScoreMap(np.array([0.0, 1.0]), np.array([1.0, 0.0]), 1)
    with pytest.raises(ValueError, match="as many values"):
        ScoreMap(np.array([0.0, 1.0]), np.array([1.0]), 1)


def test_out_of_fold_scores_never_see_their_own_group():
    predicted = np.array([0.1, 0.9, 0.1, 0.9, 0.1, 0.9])
    real = np.array([0.0, 1.0, 0.2, 0.8, 0.4, 0.6])
    groups = ["a", "a", "b", "b", "c", "c"]
    # each group is mapped to the mean of the two others
    assert cross_fit(predicted, real, groups).tolist() == pytest.approx([0.3, 0.7, 0.2, 0.8, 0.1, 0.9])
    moved = cross_fit(predicted, np.where(np.array(groups) == "a", 0.5, real), groups)
    assert moved[:2].tolist() == pytest.approx([0.3, 0.7])


@settings(max_examples=20)
@given(st.integers(2, 9), st.integers(0, 5))
def test_folds_hold_whole_groups(folds, seed):
    groups = np.repeat(np.arange(12), 3)
    seen = []

    def spy(x, y):
        seen.append(set(x))
        return ScoreMap.identity()

    cross_fit(groups / 12, groups / 12, groups, folds=folds, seed=seed, fit=spy)
    assert len(seen) == folds
    left_out = [len({g / 12 for g in range(12)} - trained) for trained in seen]
    assert sum(left_out) == 12 and max(left_out) - min(left_out) <= 1


def test_a_single_group_has_nothing_to_fit_on():
    assert cross_fit([0.2, 0.8], [0, 1], ["a", "a"]).tolist() == [0.2, 0.8]
