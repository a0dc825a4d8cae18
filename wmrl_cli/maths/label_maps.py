"""Maps per task or category, shrunk to the global map where held-out residuals get better, and only there.

Letters: f the global map, f_l a label's own, share s_l: the label uses (1 - s_l) f + s_l f_l.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from wmrl_cli.maths.calibration import Fit, Floats, ScoreMap, cross_fit, fit_isotonic
from wmrl_cli.maths.fidelity import group_terms
from wmrl_cli.maths.intervals import Ints
from wmrl_cli.maths.pair_log import Labels

SHARES = (0.25, 0.5, 0.75, 1.0)
CLEARLY = 2.0  # standard errors


class LabelFit(NamedTuple):
    """One label's share of its own map, and what decided it: mean squared residuals inside held-out groups."""

    name: str
    pairs: int
    share: float  # 0: the global map
    residual_global: float
    residual_own: float  # with `share`


@dataclass(frozen=True, eq=False)
class LabelMaps:
    """A global map and, for some labels, a map of their own."""

    overall: ScoreMap
    own: Mapping[str, ScoreMap]
    fits: tuple[LabelFit, ...] = ()

    def __call__(self, predicted: Floats, labels: Labels) -> Floats:
        """Calibrated scores, shape of `predicted`; labels without a map of their own use the global one."""
        calibrated = self.overall(predicted)
        for code, name in enumerate(labels.names):
            if name in self.own:
                rows = labels.code == code
                calibrated[rows] = self.own[name](predicted[rows])
        return calibrated

    def to_json(self) -> dict[str, Any]:
        return {
            "own": {name: score_map.to_json() for name, score_map in self.own.items()},
            "fits": [fit._asdict() for fit in self.fits],
        }


def mix(overall: ScoreMap, own: ScoreMap, share: float) -> ScoreMap:
    """(1 - share) overall + share own, exactly, on the union of their knots.

    Examples
    --------
    >>> flat = ScoreMap(np.array([0., 1.]), np.array([.5, .5]), 1)
    >>> mix(ScoreMap.identity(), flat, 0.5)([0., 1.])
    array([0.25, 0.75])
    """
    knots = np.union1d(overall.knots, own.knots)
    values = (1 - share) * overall(knots) + share * own(knots)
    return ScoreMap(knots, np.maximum.accumulate(values), max(1, overall.version))


def fit_label_maps(
    predicted: Floats,
    real: Floats,
    group: Ints,
    labels: Labels,
    *,
    fit: Fit = fit_isotonic,
    folds: int = 5,
    seed: int = 0,
) -> LabelMaps:
    """A map for each label, as far from the global one as held-out groups justify.

    A label leaves the global map for the share that has the smallest mean squared residual inside held-out
    groups, and only where the improvement is larger than twice its standard error over groups.

    Parameters
    ----------
    predicted, real : shape (N,), in [0, 1].
    group : shape (N,), group numbers; a group lies inside one label.
    labels : shape (N,).
    folds : whole groups are dealt into so many.
    """
    overall_out = cross_fit(predicted, real, group, folds=folds, seed=seed, fit=fit)
    overall = fit(predicted, real)
    own: dict[str, ScoreMap] = {}
    fits = []
    for code, name in enumerate(labels.names):
        rows = labels.code == code
        x, y, members = predicted[rows], real[rows], group[rows]
        if np.unique(members).size < 2 * folds or np.unique(x).size < 2:
            continue
        own_out = cross_fit(x, y, members, folds=folds, seed=seed, fit=fit)
        share, before, after = _best_share(overall_out[rows], own_out, y, members)
        fits.append(LabelFit(name, int(rows.sum()), share, before, after))
        if share > 0:
            own[name] = mix(overall, fit(x, y), share)
    return LabelMaps(overall, own, tuple(fits))


def _best_share(overall: Floats, own: Floats, real: Floats, group: Ints) -> tuple[float, float, float]:
    base = group_terms(overall, real, group).e
    kept = np.isfinite(base)
    if kept.sum() < 2:
        return 0.0, float("nan"), float("nan")
    base = base[kept]
    best, best_mean = 0.0, float(base.mean())
    for share in SHARES:
        e = group_terms((1 - share) * overall + share * own, real, group).e[kept]
        gain = base - e
        if gain.mean() > CLEARLY * gain.std(ddof=1) / np.sqrt(gain.size) and e.mean() < best_mean:
            best, best_mean = share, float(e.mean())
    return best, float(base.mean()), best_mean


def cross_fit_labels(
    predicted: Floats,
    real: Floats,
    group: Ints,
    labels: Labels,
    *,
    fit: Fit = fit_isotonic,
    folds: int = 5,
    seed: int = 0,
) -> Floats:
    """Out-of-fold scores of the whole procedure, the choice of shares included, shape (N,)."""
    names = np.unique(group)
    fold_of = np.random.default_rng(seed).permutation(np.arange(names.size) % folds)
    fold = fold_of[np.searchsorted(names, group)]
    calibrated = predicted.copy()
    for number in range(folds):
        held = fold == number
        if held.any() and np.unique(predicted[~held]).size >= 2:
            kept = Labels(labels.names, labels.code[~held])
            maps = fit_label_maps(predicted[~held], real[~held], group[~held], kept, fit=fit, folds=folds, seed=seed)
            calibrated[held] = maps(predicted[held], Labels(labels.names, labels.code[held]))
    return calibrated
