"""How far a predicted score can be trusted: order inside groups, status confusion, bias, reliability.

Axes: N scored trajectories, C groups (in the order of their sorted labels), L labels. Scores lie in [0, 1].
Only order and differences inside a group matter to GRPO; a lost score is left out by the caller and counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wmrl_cli.maths.calibration import Floats
from wmrl_cli.maths.intervals import Ints

BLOCK = 4_000_000  # comparisons held at once


def encode(labels: npt.ArrayLike) -> tuple[Ints, int]:
    """Each row's label as a number from 0 in sorted order, shape (N,), and the number of labels."""
    names, code = np.unique(np.asarray(labels), return_inverse=True)
    return code.astype(np.int64), names.size


def group_blocks(code: Ints, size: int) -> Iterator[tuple[Ints, Ints]]:
    """Groups of equal size together: their numbers, shape (G,), and their rows, shape (G, n), n >= 2."""
    order = np.argsort(code, kind="stable")
    counts = np.bincount(code, minlength=size)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    for n in np.unique(counts[counts >= 2]):
        groups = np.flatnonzero(counts == n)
        step = max(1, BLOCK // int(n * n))
        for first in range(0, groups.size, step):
            part = groups[first : first + step]
            yield part, order[starts[part][:, None] + np.arange(n)]


class GroupTerms(NamedTuple):
    """Per group, shape (C,): pairs, e and v of `fusion.group_residual` (NaN with fewer than two pairs)."""

    pairs: Ints
    e: Floats
    v: Floats


def group_terms(score: npt.ArrayLike, real: npt.ArrayLike, groups: npt.ArrayLike) -> GroupTerms:
    """Residual and real variance of each group, as `fusion.group_residual` for all groups at once.

    Examples
    --------
    >>> group_terms([0.25, 0.75, 0.5], [0.0, 1.0, 0.5], ["a", "a", "b"])
    GroupTerms(pairs=array([2, 1]), e=array([0.0625,    nan]), v=array([0.25,  nan]))
    """
    c, r = np.asarray(score, dtype=float), np.asarray(real, dtype=float)
    code, size = encode(groups)
    counts = np.bincount(code, minlength=size)
    spread = _centred(r, code, counts)
    gap = _centred(c, code, counts)
    alone = counts < 2
    e = np.where(alone, np.nan, np.bincount(code, (gap - spread) ** 2, size) / np.maximum(counts, 1))
    v = np.where(alone, np.nan, np.bincount(code, spread**2, size) / np.maximum(counts, 1))
    return GroupTerms(counts, e, v)


def _centred(values: Floats, code: Ints, counts: Ints) -> Floats:
    """Values minus their group's mean; exactly 0 in a constant group."""
    size = counts.size
    low, high = np.full(size, np.inf), np.full(size, -np.inf)
    np.minimum.at(low, code, values)
    np.maximum.at(high, code, values)
    mean = np.bincount(code, values, size) / np.maximum(counts, 1)
    return np.where((low == high)[code], 0.0, values - mean[code])


def rank_correlations(predicted: npt.ArrayLike, real: npt.ArrayLike, groups: npt.ArrayLike) -> Floats:
    """Spearman's correlation inside each group, ties at their mean rank, shape (C,), in [-1, 1].

    NaN where fewer than two trajectories or a constant real score leave nothing to order; 0 where the
    predicted score is constant and the real one is not: it orders nothing.

    Examples
    --------
    >>> rank_correlations([.1, .2, .3, .5, .5], [0, .5, 1, 0, 1], [1, 1, 1, 2, 2])
    array([1., 0.])
    """
    from scipy.stats import rankdata

    p, r = np.asarray(predicted, dtype=float), np.asarray(real, dtype=float)
    code, size = encode(groups)
    correlation = np.full(size, np.nan)
    for part, rows in group_blocks(code, size):
        a, b = rankdata(p[rows], axis=1), rankdata(r[rows], axis=1)
        a, b = a - a.mean(axis=1, keepdims=True), b - b.mean(axis=1, keepdims=True)
        aa, bb = (a * a).sum(axis=1), (b * b).sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            rho = np.where(aa == 0, 0.0, (a * b).sum(axis=1) / np.sqrt(aa * bb))
        correlation[part] = np.where(bb == 0, np.nan, rho)
    return correlation


def pair_counts(
    predicted: npt.ArrayLike,
    real: npt.ArrayLike,
    groups: npt.ArrayLike,
    labels: npt.NDArray[np.int64] | None = None,
    n_labels: int = 0,
    *,
    weighted: bool = False,
) -> Floats:
    """Pairs of trajectories inside groups by whether the predicted score orders them as the real one does.

    Only pairs whose real scores differ are counted.

    Parameters
    ----------
    predicted, real, groups : shape (N,).
    labels : shape (N,), a number in [0, n_labels) for each trajectory (its true status).
    weighted : a pair counts as much as its real scores differ, so that near ties hardly matter.

    Returns
    -------
    Shape (C, 1 + n_labels, 3): right, wrong and tied (predicted scores are equal) of all pairs, then of the
    pairs of which at least one member has the label.

    Examples
    --------
    >>> pair_counts([.1, .2, .2], [0, 1, .5], ["g", "g", "g"])
    array([[[2., 0., 1.]]])
    """
    p, r = np.asarray(predicted, dtype=float), np.asarray(real, dtype=float)
    code, size = encode(groups)
    counts = np.zeros((size, 1 + n_labels, 3))
    for part, rows in group_blocks(code, size):
        first, second = np.triu_indices(rows.shape[1], 1)
        gap = r[rows[:, first]] - r[rows[:, second]]
        order = np.sign(p[rows[:, first]] - p[rows[:, second]]) * np.sign(gap)
        mass = np.abs(gap) if weighted else (gap != 0).astype(float)
        touched = [np.ones(gap.shape, dtype=bool)]
        if labels is not None:
            one, other = labels[rows[:, first]], labels[rows[:, second]]
            touched += [(one == label) | (other == label) for label in range(n_labels)]
        for k, sign in enumerate((1, -1, 0)):
            kind = np.where(order == sign, mass, 0.0)
            for slot, member in enumerate(touched):
                counts[part, slot, k] = (kind * member).sum(axis=1)
    return counts


def pair_accuracy(counts: Floats) -> Floats:
    """Share of pairs in the right order, a tie counting half, from (..., 3) counts; NaN without pairs.

    1 is perfect order, 0.5 what guessing gives, below it a reversed one.

    Examples
    --------
    >>> float(pair_accuracy(np.array([2., 0., 1.])).round(3))
    0.833
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        accuracy: Floats = (counts[..., 0] + 0.5 * counts[..., 2]) / counts.sum(axis=-1)
    return accuracy


class Confusion(NamedTuple):
    """Counts by predicted (row) and real (column) status, in the order of `names`."""

    names: tuple[str, ...]
    counts: Ints  # shape (L, L)


def confusion(predicted: Sequence[str], real: Sequence[str]) -> Confusion:
    """How often each real status was predicted as each status; nothing leaves the table.

    Examples
    --------
    >>> confusion(["valid", "valid", "timeout"], ["valid", "timeout", "timeout"])
    Confusion(names=('timeout', 'valid'), counts=array([[1, 0],
           [1, 1]]))
    """
    a, b = np.asarray(predicted), np.asarray(real)
    if a.shape != b.shape:
        raise ValueError(f"a confusion table needs two statuses a trajectory: got {a.size} and {b.size}")
    names = np.unique(np.concatenate([a, b]))
    cell = np.searchsorted(names, a) * names.size + np.searchsorted(names, b)
    counts = np.bincount(cell, minlength=names.size**2).reshape(names.size, names.size)
    return Confusion(tuple(str(name) for name in names), counts.astype(np.int64))


class Reliability(NamedTuple):
    """Mean score against mean real score by bin of the score, shape (bins,)."""

    score: Floats
    real: Floats
    counts: Ints

    @property
    def calibration_error(self) -> float:
        """Expected calibration error in reward units: the count-weighted mean of |score - real| over bins."""
        return float(np.average(np.abs(self.score - self.real), weights=self.counts)) if self.counts.size else np.nan


def reliability(score: npt.ArrayLike, real: npt.ArrayLike, *, bins: int = 12) -> Reliability:
    """The reliability curve with counts. Equal scores are never split between bins.

    Parameters
    ----------
    score, real : shape (N,).
    bins : at most this many, of about equal counts; where no more scores are distinct, one bin a score.

    Examples
    --------
    >>> curve = reliability([0.2, 0.2, 0.6], [0.0, 1.0, 0.6])
    >>> curve.counts, round(curve.calibration_error, 3)
    (array([2, 1]), 0.2)
    """
    c, r = np.asarray(score, dtype=float), np.asarray(real, dtype=float)
    levels, code = np.unique(c, return_inverse=True)
    if levels.size > bins:
        edges = np.unique(np.quantile(c, np.arange(1, bins) / bins))
        code = np.searchsorted(edges, c, side="right")
        code = np.unique(code, return_inverse=True)[1]
    counts = np.bincount(code)
    return Reliability(np.bincount(code, c) / counts, np.bincount(code, r) / counts, counts.astype(np.int64))


class Ties(NamedTuple):
    """What a score cannot tell apart inside groups."""

    groups: int  # with at least two trajectories
    dead: int  # of them, groups whose scores are all equal
    pairs: int  # pairs inside groups
    tied: int  # of them, with equal scores


def ties(score: npt.ArrayLike, groups: npt.ArrayLike) -> Ties:
    """Ties and dead groups of a score, counted exactly.

    Examples
    --------
    >>> ties([.1, .1, .2, .3, .3], ["a", "a", "a", "b", "b"])
    Ties(groups=2, dead=1, pairs=4, tied=2)
    """
    c = np.asarray(score, dtype=float)
    code, size = encode(groups)
    counts = np.bincount(code, minlength=size)
    order = np.lexsort((c, code))
    new = (np.diff(code[order], prepend=-1) != 0) | (np.diff(c[order], prepend=np.nan) != 0)
    same = np.diff(np.append(np.flatnonzero(new), c.size))  # lengths of the runs of equal scores
    pairs, tied = int((counts * (counts - 1) // 2).sum()), int((same * (same - 1) // 2).sum())
    low, high = np.full(size, np.inf), np.full(size, -np.inf)
    np.minimum.at(low, code, c)
    np.maximum.at(high, code, c)
    return Ties(int((counts >= 2).sum()), int(((low == high) & (counts >= 2)).sum()), pairs, tied)
