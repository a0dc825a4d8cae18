import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wmrl_cli.maths import intervals
from wmrl_cli.maths.intervals import clustered_difference, clustered_mean, prediction_powered_mean


def covered(inside: list[bool], level: float) -> bool:
    """True where the share of hits is not below the level by more than 3 binomial deviations (and 2 % of bias)."""
    n = len(inside)
    return np.mean(inside) > level - 0.02 - 3 * np.sqrt(level * (1 - level) / n)


@pytest.mark.parametrize("clusters", [8, 14, 60])
def test_the_interval_covers_the_mean_of_clustered_rows(clusters):
    rng = np.random.default_rng(clusters)
    inside = []
    for seed in range(300):
        level = rng.normal(0, 1, clusters)
        code = np.repeat(np.arange(clusters), rng.integers(2, 10, clusters))
        interval = clustered_mean(level[code] + rng.normal(0, 1, code.size), code, draws=500, seed=seed)
        inside.append(interval.low <= 0 <= interval.high)
    assert covered(inside, 0.95)
    assert np.mean(inside) < 0.995  # and is not uselessly wide


def test_rows_that_are_taken_for_independent_would_not_cover():
    rng = np.random.default_rng(0)
    inside = []
    for seed in range(150):
        level = rng.normal(0, 1, 14)
        code = np.repeat(np.arange(14), 8)
        rows = level[code] + rng.normal(0, 0.1, code.size)
        interval = clustered_mean(rows, np.arange(rows.size), draws=300, seed=seed)
        inside.append(interval.low <= 0 <= interval.high)
    assert np.mean(inside) < 0.75


def test_the_difference_of_two_policies_on_the_same_tasks_covers_and_is_narrower_than_apart():
    rng = np.random.default_rng(1)
    inside, narrower = [], []
    for seed in range(200):
        hardness, task = rng.normal(0, 1, 14), np.repeat(np.arange(14), 8)
        a = hardness[task] + 0.3 + rng.normal(0, 0.5, task.size)
        b = hardness[task] + rng.normal(0, 0.5, task.size)
        paired = clustered_difference(a, task, b, task, draws=500, seed=seed)
        inside.append(paired.low <= 0.3 <= paired.high)
        apart = clustered_mean(a, task, draws=500, seed=seed)
        narrower.append(paired.high - paired.low < apart.high - apart.low)
    assert covered(inside, 0.95) and all(narrower)


def test_the_same_arguments_give_the_same_interval_and_another_seed_another():
    values, task = np.random.default_rng(0).random(40), np.repeat(np.arange(10), 4)
    assert clustered_mean(values, task, seed=3) == clustered_mean(values, task, seed=3)
    assert clustered_mean(values, task, seed=3) != clustered_mean(values, task, seed=4)


def test_a_higher_level_is_wider():
    values, task = np.random.default_rng(0).random(40), np.repeat(np.arange(10), 4)
    wide, narrow = clustered_mean(values, task, level=0.99), clustered_mean(values, task, level=0.5)
    assert wide.low < narrow.low < narrow.high < wide.high
    with pytest.raises(ValueError, match="level"):
        clustered_mean(values, task, level=95)


def test_one_cluster_has_a_mean_and_no_interval():
    interval = clustered_mean([1.0, 2.0], ["a", "a"])
    assert interval.estimate == 1.5 and np.isnan(interval.low) and np.isnan(interval.high)
    assert np.isnan(clustered_mean([], []).estimate)


def test_lost_values_are_refused_not_averaged():
    with pytest.raises(ValueError, match="lost"):
        clustered_mean([1.0, float("nan")], ["a", "b"])
    with pytest.raises(ValueError, match="one cluster"):
        clustered_mean([1.0], ["a", "b"])


def test_many_clusters_are_merged_and_the_interval_stays(monkeypatch):
    rng = np.random.default_rng(0)
    values, task = rng.random(12_000), np.repeat(np.arange(6000), 2)
    merged = clustered_mean(values, task, draws=1000)
    monkeypatch.setattr(intervals, "MOST_CLUSTERS", 10_000)
    whole = clustered_mean(values, task, draws=1000)
    assert merged.estimate == whole.estimate and merged.clusters == 6000
    assert merged.high - merged.low == pytest.approx(whole.high - whole.low, rel=0.15)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 100), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(seed, random):
    rng = np.random.default_rng(seed)
    values, task = rng.random(30), rng.integers(0, 6, 30)
    order = random.sample(range(30), 30)
    straight, mixed = clustered_mean(values, task, draws=100), clustered_mean(values[order], task[order], draws=100)
    assert mixed[:3] == pytest.approx(straight[:3])


def world(rng, groups, *, noise):
    hardness = rng.random(groups)
    code = np.repeat(np.arange(groups), 8)
    real = np.clip(hardness[code] + rng.normal(0, 0.2, code.size), 0, 1)
    predicted = np.clip(0.2 + 0.6 * real + rng.normal(0, noise, code.size), 0, 1)
    return predicted, real, code


def test_prediction_powered_intervals_cover_and_are_narrower_than_anchors_alone():
    rng = np.random.default_rng(2)
    truth = world(rng, 50_000, noise=0.05)[1].mean()
    inside, alone, gains = [], [], []
    for _ in range(300):
        predicted, real, code = world(rng, 220, noise=0.05)
        anchor = code < 20
        powered = prediction_powered_mean(
            predicted[anchor], real[anchor], code[anchor], predicted[~anchor], code[~anchor]
        )
        inside.append(powered.powered.low <= truth <= powered.powered.high)
        alone.append(powered.anchors.low <= truth <= powered.anchors.high)
        gains.append(powered.effective / anchor.sum())
    assert covered(inside, 0.95) and covered(alone, 0.95)
    assert np.median(gains) > 4


def test_a_useless_prediction_is_not_trusted_and_costs_nothing():
    rng = np.random.default_rng(3)
    code = np.repeat(np.arange(200), 8)
    real, anchor = rng.random(code.size), code < 40
    noise = rng.random(code.size)
    powered = prediction_powered_mean(noise[anchor], real[anchor], code[anchor], noise[~anchor], code[~anchor])
    assert powered.power < 0.2
    assert powered.effective > 0.9 * anchor.sum()


def test_without_simulated_rows_there_is_only_the_anchors_mean():
    powered = prediction_powered_mean([0.1, 0.2], [0.0, 0.5], ["a", "b"], [], [])
    assert np.isnan(powered.powered.estimate) and powered.anchors.estimate == 0.25 and powered.effective == 2
