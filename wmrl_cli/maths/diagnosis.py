"""What a log says about its world model: bias, noise, order, blind spots, drift, each with an interval.

Scores are judged out of fold (the map has not seen the group that it judges); in-sample numbers appear
nowhere. Intervals draw whole groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wmrl_cli.maths.calibration import Fit, Floats, ScoreMap, cross_fit, fit_isotonic
from wmrl_cli.maths.fidelity import (
    Confusion,
    Reliability,
    Ties,
    confusion,
    group_terms,
    pair_counts,
    rank_correlations,
    reliability,
    ties,
)
from wmrl_cli.maths.intervals import Interval, Ints, PredictionPowered, prediction_powered_mean
from wmrl_cli.maths.pair_log import Labels, PairLog
from wmrl_cli.maths.ratios import Ratios

FOLDS = 10
WINDOWS = 8
MOST_LABELS = 40  # tasks in a table; the others are counted together
BOTH = ("raw", "map")
CLEARLY = 0.05  # of gap-weighted order, beyond the intervals


class LabelRow(NamedTuple):
    """What the log says about one task, category, status or stretch of time."""

    name: str
    pairs: int
    bias_raw: Interval  # mean of predicted minus real
    bias_map: Interval
    noise_raw: Interval  # root mean squared error after each group's mean error is taken away
    noise_map: Interval
    accuracy: Interval  # share of pairs in the right order, of those with a member that has this label


class BlindSpot(NamedTuple):
    """A real status that the world model does not see: order weighted by how far the real scores are apart."""

    status: str
    accuracy: Interval  # of pairs with such a trajectory
    accuracy_others: Interval  # of pairs without


class StatusRow(NamedTuple):
    """One status, as it really was and as it was predicted."""

    status: str
    real: int
    predicted: int
    both: int

    @property
    def missed(self) -> float | None:
        """Share of its real cases that were predicted as something else; None without any."""
        return 1 - self.both / self.real if self.real else None

    @property
    def invented(self) -> float | None:
        """Share of its predicted cases that really were something else; None without any."""
        return 1 - self.both / self.predicted if self.predicted else None


@dataclass(frozen=True, kw_only=True, eq=False)
class Diagnosis:
    """The findings. `overall` has, for `raw` and `map`: bias_, noise_, error_ (root mean square), eta2_,
    accuracy_, rank_; and `left` (squared residual inside groups after the map over before), `wrong` (share of
    pairs ordered wrongly), `bent` (squared residual of a curve that may also fall over that of the map).
    """

    pairs: int
    groups: int
    pairs_alone: int  # in groups of one
    score_map: ScoreMap
    overall: Mapping[str, Interval]
    by: Mapping[str, list[LabelRow]]  # task, category, status, window
    statuses: list[StatusRow]
    confusion: Confusion | None
    ties_raw: Ties
    ties_map: Ties
    ties_real: Ties
    curve_raw: Reliability
    curve_map: Reliability
    blind: list[BlindSpot]
    mean_real: PredictionPowered
    calibrated: Floats  # shape (N,), out of fold


def diagnose(
    log: PairLog,
    *,
    fit: Fit = fit_isotonic,
    calibrated: Floats | None = None,
    seed: int = 0,
    draws: int = 1000,
    level: float = 0.95,
) -> Diagnosis:
    """The diagnosis of a log's pairs under the map that `fit` gives.

    Parameters
    ----------
    log : at least one pair.
    fit : from (predicted, real) to a map; `fit_isotonic`, `fit_centred` or one that returns the identity.
    calibrated : shape (N,), out-of-fold scores of another procedure (maps per label), instead of `fit`'s.
    seed : of the folds and of the bootstrap.
    draws, level : of the bootstrap that draws whole groups.
    """
    group = log.group.code
    if calibrated is None:
        calibrated = cross_fit(log.predicted, log.real, group, folds=FOLDS, seed=seed, fit=fit)
    ratios = Ratios(group, log.groups, seed=seed)
    scores = {"raw": log.predicted, "map": calibrated}
    off = {name: _inside(score - log.real, group, log.groups) for name, score in scores.items()}
    status = log.status_real
    by_status = (None, 0) if status is None else (status.code, len(status.names))
    counts = pair_counts(log.predicted, log.real, group, *by_status)
    _add_overall(ratios, log, scores, counts[:, 0], seed)
    labels = _label_columns(log)
    for kind, column in labels.items():
        _add_labels(ratios, kind, column, log, scores, off, counts)
    if status is not None:
        _add_blindness(ratios, status, pair_counts(log.predicted, log.real, group, *by_status, weighted=True))
    found = ratios.intervals(draws=draws, level=level)
    mean_real = prediction_powered_mean(log.predicted, log.real, group, log.simulated, log.simulated_group, level=level)
    rows = {kind: _label_rows(kind, column, found) for kind, column in labels.items()}
    table = _confusion(log)
    return Diagnosis(
        pairs=log.pairs,
        groups=log.groups,
        pairs_alone=int((np.bincount(group) == 1).sum()),
        score_map=fit(log.predicted, log.real),
        overall={name: interval for name, interval in found.items() if "/" not in name},
        by=rows,
        statuses=_status_rows(table),
        confusion=table,
        ties_raw=ties(log.predicted, group),
        ties_map=ties(calibrated, group),
        ties_real=ties(log.real, group),
        curve_raw=reliability(log.predicted, log.real),
        curve_map=reliability(calibrated, log.real),
        blind=_blind(found, status),
        mean_real=mean_real,
        calibrated=calibrated,
    )


@dataclass(frozen=True, eq=False)
class Steps:
    """A curve that may rise and fall: the mean real score in bins of the predicted one."""

    edges: Floats
    levels: Floats

    def __call__(self, predicted: Floats) -> Floats:
        calibrated: Floats = self.levels[np.searchsorted(self.edges, predicted, side="right")]
        return calibrated


def fit_steps(predicted: Floats, real: Floats, *, bins: int = 20) -> Steps:
    """Fit `Steps` with about equally full bins, equal scores together: what a map could do that need not rise."""
    levels = np.unique(predicted)
    edges = (levels[1:] + levels[:-1]) / 2 if levels.size <= bins else np.quantile(predicted, np.arange(1, bins) / bins)
    edges = np.unique(edges)
    code = np.searchsorted(edges, predicted, side="right")
    count = np.bincount(code, minlength=edges.size + 1)
    total = np.bincount(code, real, edges.size + 1)
    return Steps(edges, np.where(count > 0, total / np.maximum(count, 1), real.mean()))


def _inside(error: Floats, group: Ints, groups: int) -> Floats:
    """Each error minus its group's mean error; NaN in groups of one."""
    count = np.bincount(group, minlength=groups)
    mean = np.bincount(group, error, groups) / np.maximum(count, 1)
    return np.where(count[group] >= 2, error - mean[group], np.nan)


def _add_overall(ratios: Ratios, log: PairLog, scores: Mapping[str, Floats], counts: Floats, seed: int) -> None:
    group = log.group.code
    terms = {name: group_terms(score, log.real, group) for name, score in scores.items()}
    for name, score in scores.items():
        ratios.add_rows(f"bias_{name}", score - log.real)
        ratios.add_rows(f"error_{name}", (score - log.real) ** 2, root=True)
        ratios.add_groups(f"noise_{name}", terms[name].e, np.ones(log.groups), root=True)
        ratios.add_groups(f"eta2_{name}", terms[name].e, terms[name].v)
        rank = rank_correlations(score, log.real, group)
        ratios.add_groups(f"rank_{name}", rank, np.ones(log.groups))
    ratios.add_groups("left", terms["map"].e, terms["raw"].e)
    free = cross_fit(log.predicted, log.real, group, folds=FOLDS, seed=seed, fit=fit_steps)
    ratios.add_groups("bent", group_terms(free, log.real, group).e, terms["map"].e)
    mapped = pair_counts(scores["map"], log.real, group)[:, 0]
    for name, counted in (("raw", counts), ("map", mapped)):
        ratios.add_groups(f"accuracy_{name}", *_accuracy(counted))
    ratios.add_groups("wrong", counts[:, 1], counts.sum(axis=1))


def _accuracy(counts: Floats) -> tuple[Floats, Floats]:
    return counts[:, 0] + 0.5 * counts[:, 2], counts.sum(axis=1)


def _label_columns(log: PairLog) -> dict[str, Labels]:
    """The columns that the findings are split by, rare labels gathered."""
    columns = {"task": log.task, "category": log.category, "status": log.status_real, "window": _windows(log)}
    return {kind: _gather(column) for kind, column in columns.items() if column is not None}


def _windows(log: PairLog) -> Labels | None:
    """Up to `WINDOWS` stretches of time with about as many pairs each, whole steps together; None for one step."""
    steps, first = np.unique(log.step, return_index=True)
    wanted = min(WINDOWS, steps.size, max(1, log.pairs // 30))
    if wanted < 2:
        return None
    edges = np.unique(np.searchsorted(first, log.pairs * np.arange(1, wanted) / wanted))
    code = np.searchsorted(edges, np.searchsorted(steps, log.step), side="right")
    kept, code = np.unique(code, return_inverse=True)
    names = [f"{log.step[code == k][0]}-{log.step[code == k][-1]}" for k in range(kept.size)]
    return Labels(names, code.astype(np.int64))


def _gather(labels: Labels) -> Labels:
    if len(labels.names) <= MOST_LABELS:
        return labels
    kept = np.sort(np.argsort(-np.bincount(labels.code), kind="stable")[:MOST_LABELS])
    place = np.full(len(labels.names), MOST_LABELS, dtype=np.int64)
    place[kept] = np.arange(MOST_LABELS)
    return Labels([*(labels.names[i] for i in kept), "all others"], place[labels.code])


def _add_labels(
    ratios: Ratios,
    kind: str,
    labels: Labels,
    log: PairLog,
    scores: Mapping[str, Floats],
    off: Mapping[str, Floats],
    counts: Floats,
) -> None:
    first = log.first_rows()
    for code, name in enumerate(labels.names):
        rows = labels.code == code
        for score in BOTH:
            ratios.add_rows(f"{kind}/{name}/bias_{score}", scores[score] - log.real, rows)
            ratios.add_rows(f"{kind}/{name}/noise_{score}", off[score] ** 2, rows, root=True)
        if kind == "status":
            ratios.add_groups(f"{kind}/{name}/accuracy", *_accuracy(counts[:, 1 + code]))
        else:
            inside = (labels.code[first] == code)[:, None]
            ratios.add_groups(f"{kind}/{name}/accuracy", *_accuracy(counts[:, 0] * inside))


def _label_rows(kind: str, labels: Labels, found: Mapping[str, Interval]) -> list[LabelRow]:
    count = np.bincount(labels.code, minlength=len(labels.names))
    columns = ("bias_raw", "bias_map", "noise_raw", "noise_map", "accuracy")
    return [
        LabelRow(name, int(count[code]), *(found[f"{kind}/{name}/{column}"] for column in columns))
        for code, name in enumerate(labels.names)
    ]


def _confusion(log: PairLog) -> Confusion | None:
    if log.status_predicted is None or log.status_real is None:
        return None
    predicted = np.asarray(log.status_predicted.names)[log.status_predicted.code]
    return confusion(predicted, np.asarray(log.status_real.names)[log.status_real.code])  # type: ignore[arg-type]


def _status_rows(table: Confusion | None) -> list[StatusRow]:
    if table is None:
        return []
    return [
        StatusRow(name, int(table.counts[:, i].sum()), int(table.counts[i].sum()), int(table.counts[i, i]))
        for i, name in enumerate(table.names)
    ]


def _add_blindness(ratios: Ratios, status: Labels, counts: Floats) -> None:
    for code, name in enumerate(status.names):
        ratios.add_groups(f"blind/{name}/with", *_accuracy(counts[:, 1 + code]))
        ratios.add_groups(f"blind/{name}/without", *_accuracy(counts[:, 0] - counts[:, 1 + code]))


def _blind(found: Mapping[str, Interval], status: Labels | None) -> list[BlindSpot]:
    """Statuses whose pairs are ordered clearly worse than those without them: no monotone map repairs that.

    One unseen status drags down all others in its pairs, so of several the worst is named, and those that
    are no better than guessing. Where the order as a whole is no better than that, no status is to blame.
    """
    names = [] if status is None else status.names
    spots = [BlindSpot(name, found[f"blind/{name}/with"], found[f"blind/{name}/without"]) for name in names]
    worse = [
        spot
        for spot in spots
        if spot.accuracy.high < spot.accuracy_others.low - CLEARLY and spot.accuracy_others.low > 0.5
    ]
    worst = min((spot.accuracy.estimate for spot in worse), default=np.nan)
    return [spot for spot in worse if spot.accuracy.high < 0.5 or spot.accuracy.estimate == worst]
