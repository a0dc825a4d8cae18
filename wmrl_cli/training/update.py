"""From two streams of rewards to one policy update: map, advantages, weights. Pure arithmetic on arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wmrl_cli.maths.advantages import group_advantages
from wmrl_cli.maths.calibration import ScoreMap
from wmrl_cli.maths.fusion import fuse_weights

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Update:
    """What the learner is told. Arrays of shape (groups, group_size) unless said otherwise; nan = lost."""

    calibrated: Floats  # predicted rewards under the step's map, in [0, 1]
    used: Floats  # the reward that trains: real where executed, calibrated elsewhere
    advantages: Floats  # w_k * A_i; nan where the trajectory is lost or its group left the step
    weights: Floats  # (groups,), mean 1 over the groups that train, 0 for those that left
    dead: Bools  # (groups,), all valid rewards equal

    @property
    def groups(self) -> int:
        """K: the groups with at least two valid trajectories."""
        return int((self.weights > 0).sum())


def make_update(
    predicted: Floats, real: Floats, executed: Bools, *, score_map: ScoreMap, rho: float, standardize: bool
) -> Update:
    """Fuse the executed and the simulated groups of one step.

    Parameters
    ----------
    predicted, real : trajectory rewards in [0, 1], shape (groups, group_size); nan where lost or not scored.
    executed : which groups are anchors, shape (groups,).
    rho : V_WM / V_E, at least 1.

    Source: arXiv 2608.12564, formula (5), as weights with mean 1 (method: sections 3.3, 4.5, 5).
    """
    known = ~np.isnan(predicted)
    calibrated = np.full_like(predicted, np.nan)
    calibrated[known] = score_map(predicted[known])
    used = np.where(executed[:, None], real, calibrated)
    valid = (~np.isnan(used)).sum(axis=1)
    weights = fuse_weights(executed, valid, rho)
    advantages = np.full_like(used, np.nan)
    dead = np.zeros(len(used), dtype=bool)
    for index, rewards in enumerate(used):
        if weights[index] > 0:
            raw = group_advantages(rewards, standardize=standardize)
            advantages[index] = weights[index] * raw
            dead[index] = bool((raw[~np.isnan(raw)] == 0).all())
    return Update(calibrated=calibrated, used=used, advantages=advantages, weights=weights, dead=dead)
