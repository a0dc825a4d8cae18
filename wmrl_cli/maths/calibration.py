"""The map from predicted to real scores: online debiasing's frozen value, and how one is fitted.

Axes: A anchor pairs, K knots. Scores are rewards in [0, 1]; NaN stands for a lost score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Fit = Callable[[Floats, Floats], "ScoreMap"]
CurveFit = Callable[[Floats, Floats], Callable[[Floats], Floats]]

FLAT = 1e-6  # a map whose values span less than this tells groups nothing


@dataclass(frozen=True, eq=False)
class ScoreMap:
    """A non-decreasing piecewise-linear map of scores, constant outside its knots.

    Parameters
    ----------
    knots : ascending predicted scores, shape (K,), in [0, 1].
    values : calibrated score at each knot, shape (K,), in [0, 1], non-decreasing.
    version : 0 is the identity; a calibrator counts its fits from 1.

    Examples
    --------
    >>> fit_isotonic([.1, .2, .8, .9], [0, 1, 0, 1])([0., .5, 1.])
    array([0. , 0.5, 1. ])
    """

    knots: Floats
    values: Floats
    version: int = 0

    def __post_init__(self) -> None:
        if self.knots.shape != self.values.shape or self.knots.ndim != 1 or not self.knots.size:
            raise ValueError(f"a map needs as many values as knots: got {self.knots.shape} and {self.values.shape}")
        if not (np.isfinite(self.knots).all() and np.isfinite(self.values).all()):
            raise ValueError("a map's knots and values must be finite")
        if (np.diff(self.knots) <= 0).any() or (np.diff(self.values) < 0).any():
            raise ValueError("a map's knots must ascend and its values may not fall")

    @classmethod
    def identity(cls) -> ScoreMap:
        """The map that changes nothing, version 0."""
        return cls(np.array([0.0, 1.0]), np.array([0.0, 1.0]), 0)

    def __call__(self, predicted: npt.ArrayLike) -> Floats:
        """Calibrated scores, in the shape of `predicted`; NaN (lost) stays NaN."""
        scores = np.asarray(predicted, dtype=float)
        # The identity is exact, and does not clip: interp would round some scores in their last bit.
        return scores.copy() if self.is_identity else np.interp(scores, self.knots, self.values)

    @property
    def is_identity(self) -> bool:
        return self.version == 0

    @property
    def low(self) -> float:
        """The smallest calibrated score that the map can give."""
        return float(self.values[0])

    @property
    def high(self) -> float:
        """The largest calibrated score that the map can give."""
        return float(self.values[-1])

    @property
    def is_flat(self) -> bool:
        """True where the map gives every score the same value: groups that pass through it have no advantage."""
        return self.high - self.low < FLAT

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers; `from_json` gives the same bits back."""
        return {"knots": self.knots.tolist(), "values": self.values.tolist(), "version": self.version}

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> ScoreMap:
        return cls(np.array(state["knots"], float), np.array(state["values"], float), int(state["version"]))


def check_pairs(predicted: npt.ArrayLike, real: npt.ArrayLike) -> tuple[Floats, Floats]:
    """The two arrays as float64, shape (A,), after naming the first pair that no fit may see.

    Raises
    ------
    ValueError : lengths differ, or a score is not finite or outside [0, 1].
    """
    x, y = np.asarray(predicted, dtype=float), np.asarray(real, dtype=float)
    if x.ndim != 1 or x.shape != y.shape:
        raise ValueError(f"pairs need two 1-d arrays of one length: got shapes {x.shape} and {y.shape}")
    bad = ~(np.isfinite(x) & np.isfinite(y) & (x >= 0) & (x <= 1) & (y >= 0) & (y <= 1))
    if bad.any():
        first = int(np.argmax(bad))
        raise ValueError(f"pair {first} (predicted {x[first]}, real {y[first]}) is not finite and in [0, 1]")
    return x, y


def is_fittable(predicted: npt.ArrayLike) -> bool:
    """True where a map can be fitted: at least two distinct predicted scores."""
    x = np.asarray(predicted, dtype=float)
    return x.size > 0 and bool(x.min() < x.max())


def fit_isotonic(
    predicted: npt.ArrayLike, real: npt.ArrayLike, *, weights: npt.ArrayLike | None = None, version: int = 1
) -> ScoreMap:
    """The non-decreasing map with the least squared error on the exact pairs.

    Parameters
    ----------
    predicted, real : shape (A,), in [0, 1].
    weights : shape (A,), positive; a weight of 2 is the pair twice. None: all 1.
    version : stamped on the map.

    Returns
    -------
    The map; the identity (version 0) where fewer than two predicted scores are distinct.

    Raises
    ------
    ValueError : as `check_pairs`, or for weights that are not positive.

    References
    ----------
    arXiv 2608.12564, Online Debiasing; Barlow et al. 1972 (pool adjacent violators, in scikit-learn).

    Examples
    --------
    >>> fit_isotonic([0, 1, 1, 2/3, 1/3], [0, 0, 1, 0, 1]).values.round(3)
    array([0. , 0.5, 0.5])
    """
    from sklearn.isotonic import IsotonicRegression

    x, y = check_pairs(predicted, real)
    mass = None if weights is None else np.asarray(weights, dtype=float)
    if mass is not None and (mass.shape != x.shape or not np.isfinite(mass).all() or (mass <= 0).any()):
        raise ValueError("weights must be positive, finite and as many as the pairs")
    if not is_fittable(x):
        return ScoreMap.identity()
    model = IsotonicRegression(increasing=True, y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(x, y, mass)
    # Pooling leaves residues of one unit in the last place between equal blocks; a map may not fall.
    return ScoreMap(
        np.asarray(model.X_thresholds_, float), np.maximum.accumulate(np.asarray(model.y_thresholds_, float)), version
    )


def fit_centred(predicted: npt.ArrayLike, real: npt.ArrayLike, *, version: int = 1) -> ScoreMap:
    """Centred isotonic regression: each pooled block becomes one knot at its mean score.

    Strictly increasing between the first and the last block, so it makes ties only outside them.
    Parameters, return value and errors as `fit_isotonic`.

    References
    ----------
    Oron and Flournoy 2017, "Centered isotonic regression", Stat. Biopharm. Res. 9(3).

    Examples
    --------
    >>> fit_centred([.1, .2, .8, .9], [0, 1, 0, 1])([.1, .5, .9])
    array([0. , 0.5, 1. ])
    """
    x, y = check_pairs(predicted, real)
    if not is_fittable(x):
        return ScoreMap.identity()
    fitted = fit_isotonic(x, y)(x)
    levels, block = np.unique(fitted, return_inverse=True)
    count = np.bincount(block)
    centres = np.bincount(block, weights=x) / count
    return ScoreMap(centres, levels, version)


def cross_fit(
    predicted: npt.ArrayLike,
    real: npt.ArrayLike,
    groups: npt.ArrayLike,
    *,
    folds: int | None = None,
    seed: int = 0,
    fit: CurveFit = fit_isotonic,
) -> Floats:
    """Calibrated scores out of fold: each pair is mapped by a fit that has not seen its group.

    Parameters
    ----------
    predicted, real : shape (A,), in [0, 1].
    groups : shape (A,), any labels.
    folds : number of folds that whole groups are dealt into, seeded; None: one fold a group.
    fit : from (predicted, real) to a map.

    Returns
    -------
    Shape (A,). With a single group there is nothing to fit on, and its scores stay as they are.
    """
    x, y = check_pairs(predicted, real)
    labels, code = np.unique(np.asarray(groups), return_inverse=True)
    if folds is None or folds >= labels.size:
        fold_of_group = np.arange(labels.size)
    else:
        fold_of_group = np.random.default_rng(seed).permutation(np.arange(labels.size) % folds)
    fold = fold_of_group[code]
    calibrated = x.copy()
    for number in range(int(fold_of_group.max(initial=-1)) + 1):
        held = fold == number
        if is_fittable(x[~held]):
            calibrated[held] = fit(x[~held], y[~held])(x[held])
    return calibrated
