import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau, spearmanr

from wmrl_cli.maths.fidelity import (
    confusion,
    group_terms,
    pair_accuracy,
    pair_counts,
    rank_correlations,
    reliability,
    ties,
)
from wmrl_cli.maths.fusion import group_residual

score = st.sampled_from([0.0, 0.1, 0.2, 0.525, 0.6, 0.75, 0.95])  # seven rungs, so that ties are common
rows = st.lists(st.tuples(score, score, st.integers(0, 4)), min_size=1, max_size=40)


def columns(rows):
    p, r, g = np.array(rows).T
    return p, r, g.astype(int)


@settings(deadline=None)
@given(rows)
def test_group_terms_are_the_residual_of_each_group(rows):
    p, r, g = columns(rows)
    terms = group_terms(p, r, g)
    for i, group in enumerate(np.unique(g)):
        one = group_residual(p[g == group], r[g == group])
        if one is None:
            assert np.isnan(terms.e[i]) and terms.pairs[i] == 1
        else:
            assert (terms.e[i], terms.v[i]) == pytest.approx(one, abs=1e-12)
            assert (terms.v[i] == 0) == (one.v == 0)


@settings(deadline=None)
@given(rows)
def test_rank_correlation_is_scipys_in_each_group(rows):
    p, r, g = columns(rows)
    found = rank_correlations(p, r, g)
    for i, group in enumerate(np.unique(g)):
        a, b = p[g == group], r[g == group]
        if a.size < 2 or np.ptp(b) == 0:
            assert np.isnan(found[i])
        elif np.ptp(a) == 0:
            assert found[i] == 0
        else:
            assert found[i] == pytest.approx(spearmanr(a, b).statistic)


@settings(deadline=None)
@given(
    st.lists(st.tuples(score, score), min_size=2, max_size=20).filter(
        lambda p: len({x for x, _ in p}) > 1 < len({y for _, y in p})
    )
)
def test_pair_counts_give_kendalls_tau(rows):
    p, r = np.array(rows).T
    right, wrong, tied = pair_counts(p, r, np.zeros(p.size))[0, 0]
    n = p.size * (p.size - 1) / 2
    tied_p = sum((p == x).sum() * ((p == x).sum() - 1) / 2 for x in np.unique(p))
    tied_r = sum((r == x).sum() * ((r == x).sum() - 1) / 2 for x in np.unique(r))
    assert (right - wrong) / np.sqrt((n - tied_p) * (n - tied_r)) == pytest.approx(kendalltau(p, r).statistic)
    assert right + wrong + tied == n - tied_r


def test_pair_counts_by_label_by_hand():
    # real order a < b < c < d; predicted puts b (a time-out) on top
    counts = pair_counts([0.1, 0.9, 0.3, 0.5], [0.0, 0.1, 0.6, 0.8], [0, 0, 0, 0], np.array([0, 1, 0, 0]), 2)
    assert counts[0, 0].tolist() == [4, 2, 0]
    assert counts[0, 2].tolist() == [1, 2, 0]  # pairs with the time-out
    assert counts[0, 1].tolist() == [4, 2, 0]  # every pair has a member with the other label
    assert pair_accuracy(counts)[0].tolist() == pytest.approx([4 / 6, 4 / 6, 1 / 3])


def test_pairs_between_groups_are_never_compared():
    counts = pair_counts([0.9, 0.1], [0.0, 1.0], ["a", "b"])
    assert counts.sum() == 0 and np.isnan(pair_accuracy(counts.sum(axis=0))).all()


@given(rows, st.randoms(use_true_random=False))
def test_no_order_of_rows_matters(rows, random):
    mixed = random.sample(rows, len(rows))
    (p, r, g), (q, s, h) = columns(rows), columns(mixed)
    assert np.array_equal(pair_counts(p, r, g), pair_counts(q, s, h))
    assert ties(p, g) == ties(q, h)
    assert rank_correlations(p, r, g) == pytest.approx(rank_correlations(q, s, h), nan_ok=True)


@given(rows)
def test_ties_by_counting(rows):
    p, _, g = columns(rows)
    found = ties(p, g)
    pairs = [(p[i], p[j]) for i in range(p.size) for j in range(i) if g[i] == g[j]]
    assert (found.pairs, found.tied) == (len(pairs), sum(a == b for a, b in pairs))
    members = [p[g == group] for group in np.unique(g) if (g == group).sum() >= 2]
    assert (found.groups, found.dead) == (len(members), sum(np.ptp(m) == 0 for m in members))


def test_confusion_counts_everything():
    table = confusion(["valid", "valid", "timeout", "malformed"], ["timeout", "valid", "timeout", "valid"])
    assert table.names == ("malformed", "timeout", "valid")
    assert table.counts.tolist() == [[0, 0, 1], [0, 1, 0], [0, 1, 1]]
    with pytest.raises(ValueError, match="two statuses"):
        confusion(["valid"], [])


def test_calibration_error_by_hand():
    curve = reliability([0.2, 0.2, 0.6, 0.6], [0.0, 0.2, 0.9, 0.9])
    assert curve.counts.tolist() == [2, 2] and curve.score.tolist() == pytest.approx([0.2, 0.6])
    assert curve.calibration_error == pytest.approx((0.1 + 0.3) / 2)


@given(rows, st.integers(1, 5))
def test_equal_scores_share_a_bin_and_no_row_is_lost(rows, bins):
    p, r, _ = columns(rows)
    curve = reliability(p, r, bins=bins)
    assert curve.counts.sum() == p.size and len(curve.counts) <= bins
    assert np.average(curve.score, weights=curve.counts) == pytest.approx(p.mean())
    assert (np.diff(curve.score) > 0).all()


def test_a_score_that_is_the_truth_is_perfect_and_its_reverse_is_named_by_the_numbers():
    rng = np.random.default_rng(0)
    real, groups = rng.random(80), np.repeat(np.arange(10), 8)
    assert pair_accuracy(pair_counts(real, real, groups).sum(axis=0))[0] == 1
    assert pair_accuracy(pair_counts(1 - real, real, groups).sum(axis=0))[0] == 0
    assert np.allclose(rank_correlations(1 - real, real, groups), -1)
