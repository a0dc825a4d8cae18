"""GRPO advantages inside a group, and groups that carry no signal.

Axis: n trajectories of one group. Rewards lie in [0, 1]; NaN is a lost trajectory, never a zero.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from wmrl_cli.maths.calibration import Floats

STD_FLOOR = 1e-4


def group_advantages(rewards: npt.ArrayLike, *, standardize: bool = False) -> Floats:
    """Each trajectory's reward minus the mean over the group's valid ones.

    Parameters
    ----------
    rewards : shape (n,); NaN: lost.
    standardize : divide by the population standard deviation + 1e-4.

    Returns
    -------
    Shape (n,), in reward units (or standard deviations). NaN for lost trajectories, and for all where
    fewer than two are valid: such a group leaves the step. Exactly 0 where all valid rewards are equal.

    Raises
    ------
    ValueError : an infinite reward.

    Examples
    --------
    >>> group_advantages([0.0, 0.5, float("nan"), 1.0])
    array([-0.5,  0. ,  nan,  0.5])
    >>> group_advantages([0.1, 0.1, 0.1], standardize=True)
    array([0., 0., 0.])
    """
    r = np.asarray(rewards, dtype=float)
    if r.ndim != 1 or np.isinf(r).any():
        raise ValueError(f"rewards must be one finite (or NaN) number a trajectory: got {r}")
    advantages = np.full(r.shape, np.nan)
    valid = np.isfinite(r)
    if valid.sum() < 2:
        return advantages
    kept = r[valid]
    if is_dead(kept):  # compared exactly: one residue of rounding over a tiny deviation would be a huge advantage
        advantages[valid] = 0.0
        return advantages
    # Sorted sums make the result independent of the order of trajectories, to the last bit.
    mean = np.sort(kept).mean()
    centred = kept - mean
    advantages[valid] = centred / (np.sqrt(np.sort(centred**2).mean()) + STD_FLOOR) if standardize else centred
    return advantages


def is_dead(rewards: npt.ArrayLike) -> bool:
    """True where at least two rewards are valid and all valid ones are equal: the group has no advantage."""
    kept = np.asarray(rewards, dtype=float)
    kept = kept[np.isfinite(kept)]
    return kept.size >= 2 and bool((kept == kept[0]).all())


def dead_share(groups: Iterable[npt.ArrayLike]) -> float | None:
    """Share in [0, 1] of dead groups among those with at least two valid rewards; None where there is none.

    Examples
    --------
    >>> dead_share([[0.1, 0.1], [0.1, 0.2], [0.5]])
    0.5
    """
    kept = [np.asarray(rewards, dtype=float) for rewards in groups]
    kept = [rewards for rewards in kept if np.isfinite(rewards).sum() >= 2]
    return sum(map(is_dead, kept)) / len(kept) if kept else None
