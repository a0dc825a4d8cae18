"""Inverse-variance denoising: what the world model's noise is, and what weight simulated groups deserve.

Letters: K groups in a step; e and v are a group's squared residual and its real variance, both centred
inside the group, because GRPO sees nothing else. c calibrated score, r real score, all in [0, 1].
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from wmrl_cli.maths.calibration import Floats

RhoRule = Literal["relative", "measured"]
ETA2_FLOOR = 1e-4  # a residual of 0.01 % of the real variance is a perfect world model: no ratio of two such is formed


class Residual(NamedTuple):
    """One anchor group's terms, in squared reward units."""

    e: float  # mean(((c - mean c) - (r - mean r))^2)
    v: float  # mean((r - mean r)^2)


def group_residual(calibrated: npt.ArrayLike, real: npt.ArrayLike) -> Residual | None:
    """The residual and the real variance of one group; None with fewer than two pairs.

    Parameters
    ----------
    calibrated, real : shape (n,), finite.

    References
    ----------
    arXiv 2608.12564, Inverse-Variance Denoising: eta^2 is a ratio of means of these terms.

    Examples
    --------
    >>> group_residual([0.25, 0.75], [0.0, 1.0])
    Residual(e=0.0625, v=0.25)
    """
    c, r = np.asarray(calibrated, dtype=float), np.asarray(real, dtype=float)
    if c.shape != r.shape or c.ndim != 1 or not (np.isfinite(c).all() and np.isfinite(r).all()):
        raise ValueError(f"a group's residual needs two finite 1-d arrays of one length: got {c} and {r}")
    if c.size < 2:
        return None
    real_spread = np.zeros_like(r) if (r == r[0]).all() else r - r.mean()  # a constant group has v = 0, exactly
    gap = np.zeros_like(c) if (c == c[0]).all() else c - c.mean()
    return Residual(float(np.mean((gap - real_spread) ** 2)), float(np.mean(real_spread**2)))


@dataclass(frozen=True)
class Eta:
    """The world model's relative noise eta^2, tracked over anchor groups: a value, pushed to give the next.

    A ratio of exponentially weighted means, (mean of e) / (mean of v), so that groups of constant real
    reward count: there, every difference that the world model sees is noise.

    Parameters
    ----------
    half_life : groups after which a group counts half.
    per_group : the mean of the ratios e/v over groups with v > 0 instead, as in the authors' code, for
        comparison: it explodes on a nearly constant group.

    Examples
    --------
    >>> Eta().push(Residual(0.1, 0.4)).push(Residual(0.1, 0.0)).value > 0.25
    True
    """

    half_life: float = 64.0
    per_group: bool = False
    numerator: float = 0.0
    denominator: float = 0.0
    groups: int = 0

    def push(self, residual: Residual) -> Eta:
        """The tracker after one more group."""
        e, v = residual
        if self.per_group:
            if v == 0.0:
                return self
            e, v = e / v, 1.0
        decay = 0.5 ** (1.0 / self.half_life)
        return replace(
            self, numerator=decay * self.numerator + e, denominator=decay * self.denominator + v, groups=self.groups + 1
        )

    @property
    def value(self) -> float | None:
        """eta^2 >= 0; None as long as every group was constant."""
        return self.numerator / self.denominator if self.denominator > 0 else None


def variance_ratio(
    eta2: float | None, eta2_cal: float | None, *, rule: RhoRule = "relative", rho_max: float | None = None
) -> float:
    """rho = V_WM / V_E >= 1, how many times noisier a simulated group's gradient is than an executed one's.

    Parameters
    ----------
    eta2 : the residual now; None: undefined.
    eta2_cal : the residual at the end of warm-up; None: warm-up is not over, and rho is 1.
    rule : `relative`, 1 + eta2 / eta2_cal (2 at the end of warm-up); `measured`, 1 + eta2.
    rho_max : upper bound; None: none, so that training can fall back to plain GRPO.

    References
    ----------
    arXiv 2608.12564, formula (5) and the text below it.

    Examples
    --------
    >>> variance_ratio(0.3, 0.3), variance_ratio(0.9, 0.3), variance_ratio(0.3, None)
    (2.0, 4.0, 1.0)
    """
    if eta2 is None or eta2_cal is None:
        return 1.0
    if rule == "relative":
        rho = 1.0 + max(eta2, ETA2_FLOOR) / max(eta2_cal, ETA2_FLOOR)
    elif rule == "measured":
        rho = 1.0 + eta2
    else:
        raise ValueError(f"the rule for rho is `relative` or `measured`: got {rule!r}")
    return rho if rho_max is None else min(rho, rho_max)


def fuse_weights(executed: npt.ArrayLike, valid_counts: npt.ArrayLike, rho: float) -> Floats:
    """Weights w_k of a step's groups, with mean 1 over those that count.

    w_k = K v_k / sum_j v_j with v = 1 for executed and 1/rho for simulated groups: the mean over groups of
    w_k times the group's gradient is then the inverse-variance combination, and learning rate and clip norm
    keep their meaning. One source only gives w = 1.

    Parameters
    ----------
    executed : shape (K,), True for groups whose rewards are real; all groups of the step, over all ranks.
    valid_counts : shape (K,), trajectories that are not lost.
    rho : V_WM / V_E, > 0.

    Returns
    -------
    Shape (K,). Groups with fewer than two valid trajectories get 0 and are not part of the mean.

    References
    ----------
    arXiv 2608.12564, formula (5).

    Examples
    --------
    >>> fuse_weights([True, False, False], [8, 8, 8], 2.0)
    array([1.5 , 0.75, 0.75])
    """
    is_executed, counts = np.asarray(executed, dtype=bool), np.asarray(valid_counts)
    if is_executed.shape != counts.shape or is_executed.ndim != 1:
        raise ValueError(f"weights need one flag and one count a group: got {is_executed.shape} and {counts.shape}")
    if not (np.isfinite(rho) and rho > 0):
        raise ValueError(f"rho must be finite and positive: got {rho}")
    counts_in = counts >= 2
    if not counts_in.any():
        return np.zeros(counts.shape)
    if is_executed[counts_in].all() or not is_executed[counts_in].any():
        return counts_in.astype(float)  # exactly 1, not K times a rounded share
    precision = np.where(is_executed, 1.0, 1.0 / rho) * counts_in
    weights: Floats = counts_in.sum() * precision / precision.sum()
    return weights
