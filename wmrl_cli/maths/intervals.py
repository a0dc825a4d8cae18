"""Intervals for means of clustered data: a task's or a group's rows belong together and are drawn together.

Axes: N rows, C clusters, B bootstrap draws, S statistics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wmrl_cli.maths.calibration import Floats

MOST_CLUSTERS = 2000  # beyond, clusters are merged at random: bounded memory, and an interval as good
Ints = npt.NDArray[np.int64]


class Interval(NamedTuple):
    """An estimate with its confidence interval; the ends are NaN where fewer than two clusters leave them undefined."""

    estimate: float
    low: float
    high: float
    rows: int
    clusters: int


def clustered_mean(
    values: npt.ArrayLike, clusters: npt.ArrayLike, *, level: float = 0.95, draws: int = 2000, seed: int = 0
) -> Interval:
    """The mean over rows, with an interval from a bootstrap that draws whole clusters.

    Parameters
    ----------
    values : shape (N,), finite, any unit.
    clusters : shape (N,), the label (task, group) that a row belongs to.
    level : confidence, in (0, 1).
    draws : bootstrap draws.
    seed : of the draws; the same arguments give the same interval.

    Returns
    -------
    NaN for an empty array; NaN ends for fewer than two clusters.

    References
    ----------
    Hesterberg 2015, "What teachers should know about the bootstrap": percentile interval, its level
    widened for few clusters (expanded percentile).

    Examples
    --------
    >>> interval = clustered_mean([0, 1, 0, 1, 1, 1], ["a", "a", "b", "b", "c", "c"])
    >>> round(interval.estimate, 3), interval.low < interval.estimate < interval.high
    (0.667, True)
    """
    y, code, size = _coded(values, clusters)
    sums = np.stack([np.bincount(code, y, size), np.bincount(code, minlength=size).astype(float)], axis=1)
    return cluster_bootstrap(sums, ratio, rows=y.size, level=level, draws=draws, seed=seed)[0]


def clustered_difference(
    values_a: npt.ArrayLike,
    clusters_a: npt.ArrayLike,
    values_b: npt.ArrayLike,
    clusters_b: npt.ArrayLike,
    *,
    level: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> Interval:
    """Mean of a minus mean of b on the clusters that both have, each cluster drawn with both its sides.

    Two policies on the same tasks are compared so: how hard a task is cancels. Parameters, return value and
    errors as `clustered_mean`; `rows` counts the rows of both sides that were used.

    Examples
    --------
    >>> interval = clustered_difference([1, 2, 3], ["s", "t", "u"], [0, 1, 2, 9], ["s", "t", "u", "only b"])
    >>> interval.estimate, interval.clusters
    (1.0, 3)
    """
    y, task_y = np.asarray(values_a, dtype=float), np.asarray(clusters_a)
    z, task_z = np.asarray(values_b, dtype=float), np.asarray(clusters_b)
    both = np.intersect1d(task_y, task_z)
    kept_y, kept_z = np.isin(task_y, both), np.isin(task_z, both)
    sums = []
    for values, labels in ((y[kept_y], task_y[kept_y]), (z[kept_z], task_z[kept_z])):
        values, code, size = _coded(values, labels)
        sums += [np.bincount(code, values, size), np.bincount(code, minlength=size).astype(float)]
    rows = int(kept_y.sum() + kept_z.sum())

    def difference(total: Floats) -> Floats:
        return ratio(total[:, :2]) - ratio(total[:, 2:])

    return cluster_bootstrap(np.stack(sums, axis=1), difference, rows=rows, level=level, draws=draws, seed=seed)[0]


def ratio(sums: Floats) -> Floats:
    """Sum over count, shape (B, 1), of `sums` with shape (B, 2); NaN where nothing was drawn."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return sums[:, :1] / sums[:, 1:2]


def cluster_bootstrap(
    sums: Floats,
    statistic: Callable[[Floats], Floats],
    *,
    rows: int,
    level: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> list[Interval]:
    """Intervals of statistics that are functions of sums over clusters; one set of draws serves them all.

    Parameters
    ----------
    sums : shape (C, M), what each cluster adds to M sums.
    statistic : from (B, M) sums to (B, S) values; a NaN value is left out of its quantiles.
    rows : reported in the intervals.

    Returns
    -------
    S intervals.
    """
    if not 0 < level < 1:
        raise ValueError(f"a confidence level lies in (0, 1): got {level}")
    clusters = sums.shape[0]
    estimates = statistic(sums.sum(axis=0)[None, :])[0]
    if clusters < 2:
        return [Interval(float(value), np.nan, np.nan, rows, clusters) for value in estimates]
    rng = np.random.default_rng(seed)
    merged = merge_clusters(sums, rng)
    totals = np.empty((draws, sums.shape[1]))
    even = np.full(len(merged), 1 / len(merged))
    for start in range(0, draws, 250):
        stop = min(draws, start + 250)
        totals[start:stop] = rng.multinomial(len(merged), even, size=stop - start) @ merged
    tail = expanded_tail(len(merged), level)
    values = statistic(totals)
    ends = [_quantiles(column, tail) for column in values.T]
    return [
        Interval(float(value), low, high, rows, clusters) for value, (low, high) in zip(estimates, ends, strict=True)
    ]


def merge_clusters(sums: Floats, rng: np.random.Generator) -> Floats:
    """At most `MOST_CLUSTERS` rows of sums: above, clusters are dealt at random into that many equal heaps."""
    if len(sums) <= MOST_CLUSTERS:
        return sums
    heap = rng.permutation(np.arange(len(sums)) % MOST_CLUSTERS)
    merged = np.zeros((MOST_CLUSTERS, sums.shape[1]))
    np.add.at(merged, heap, sums)
    return merged


def expanded_tail(clusters: int, level: float) -> float:
    """The tail probability whose percentiles give the nominal level with few clusters (Hesterberg 2015, 4.3)."""
    from scipy.stats import norm, t

    return float(norm.cdf(t.ppf((1 - level) / 2, clusters - 1) * np.sqrt(clusters / (clusters - 1))))


def _quantiles(values: Floats, tail: float) -> tuple[float, float]:
    kept = values[np.isfinite(values)]
    if not kept.size:
        return np.nan, np.nan
    low, high = np.quantile(kept, [tail, 1 - tail])
    return float(low), float(high)


def _coded(values: npt.ArrayLike, clusters: npt.ArrayLike) -> tuple[Floats, Ints, int]:
    y, labels = np.asarray(values, dtype=float), np.asarray(clusters)
    if y.ndim != 1 or y.shape != labels.shape:
        raise ValueError(f"a clustered mean needs one cluster a value: got shapes {y.shape} and {labels.shape}")
    if not np.isfinite(y).all():
        raise ValueError("a clustered mean needs finite values: leave lost ones out and count them")
    names, code = np.unique(labels, return_inverse=True)
    return y, code, names.size


class PredictionPowered(NamedTuple):
    """The mean real score by prediction-powered inference, beside the anchors alone."""

    powered: Interval
    anchors: Interval
    power: float  # lambda in [0, 1]: the share of the prediction that is trusted
    effective: float  # anchors alone that would give as narrow an interval; the gain is effective / rows


def prediction_powered_mean(
    predicted: npt.ArrayLike,
    real: npt.ArrayLike,
    clusters: npt.ArrayLike,
    unlabelled: npt.ArrayLike,
    unlabelled_clusters: npt.ArrayLike,
    *,
    level: float = 0.95,
) -> PredictionPowered:
    """Mean real score over all trajectories from anchors plus the predictions of those that were never executed.

    theta = mean(real) + lambda (mean(predicted, all unlabelled) - mean(predicted, anchors)), right for any
    predictor as long as anchors are drawn at random; lambda in [0, 1] makes the interval narrowest.

    Parameters
    ----------
    predicted, real : shape (N,), the anchors' scores in [0, 1].
    clusters : shape (N,), the anchors' groups.
    unlabelled : shape (M,), scores of trajectories without a real one.
    unlabelled_clusters : shape (M,), their groups, none of them an anchor's.

    Returns
    -------
    Student intervals from variances between clusters; NaN ends where either side has fewer than two.

    References
    ----------
    Angelopoulos et al. 2023, "Prediction-powered inference"; Angelopoulos, Duchi, Zrnic 2023, "PPI++".
    """
    f, group, size = _coded(predicted, clusters)
    y, _, _ = _coded(real, clusters)
    g, other, others = _coded(unlabelled, unlabelled_clusters)
    alone = _student(float(y.mean()) if y.size else np.nan, _variance(y, group, size), y.size, size, level)
    if size < 2 or others < 2:
        return PredictionPowered(Interval(np.nan, np.nan, np.nan, y.size, size), alone, 0.0, float(y.size))
    slope = _covariance(f, y, group, size) / max(_variance(f, group, size) + _variance(g, other, others), 1e-300)
    power = float(np.clip(slope, 0.0, 1.0))
    estimate = float(y.mean() + power * (g.mean() - f.mean()))
    variance = _variance(y - power * f, group, size) + power**2 * _variance(g, other, others)
    powered = _student(estimate, variance, y.size, size, level)
    gain = _variance(y, group, size) / variance if variance > 0 else 1.0
    return PredictionPowered(powered, alone, power, float(y.size * gain))


def _covariance(x: Floats, y: Floats, code: Ints, size: int) -> float:
    """Covariance of the two means between clusters, with the small-sample factor C / (C - 1)."""
    if size < 2:
        return np.nan
    a, b = np.bincount(code, x - x.mean(), size), np.bincount(code, y - y.mean(), size)
    return float((a * b).sum() / x.size**2 * size / (size - 1))


def _variance(x: Floats, code: Ints, size: int) -> float:
    return _covariance(x, x, code, size)


def _student(estimate: float, variance: float, rows: int, clusters: int, level: float) -> Interval:
    from scipy.stats import t

    if clusters < 2:
        return Interval(estimate, np.nan, np.nan, rows, clusters)
    half = float(t.ppf((1 + level) / 2, clusters - 1)) * float(np.sqrt(variance))
    return Interval(estimate, estimate - half, estimate + half, rows, clusters)
