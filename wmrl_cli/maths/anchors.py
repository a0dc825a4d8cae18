"""Which groups of a step are executed for real: at random, seeded, in an exact share."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
import numpy.typing as npt

from wmrl_cli.seeds import row_seed


def choose_anchors(
    seed: int, step: int, groups: int, anchor_frac: float, *, min_per_step: int = 0, groups_before: int | None = None
) -> npt.NDArray[np.bool_]:
    """Which of a step's groups are anchors: a pure function of its arguments, so a resumed run draws the same.

    The share's remainder is carried from step to step (8 groups x 0.1 = 0.8 anchors: four steps of five
    have one), from a seeded phase, so every group has the chance `anchor_frac` and after any number of
    steps the count is less than one away from the share asked for.

    Parameters
    ----------
    seed : the run's.
    step : from 0.
    groups : groups in this step.
    anchor_frac : share of groups that are executed, in [0, 1].
    min_per_step : smallest number of anchors in a step; above `groups * anchor_frac` it raises the share.
    groups_before : groups in all earlier steps; None: `step * groups`, right where every step has as many.

    Returns
    -------
    Shape (groups,), True for an anchor.

    Raises
    ------
    ValueError : a share outside [0, 1] or a negative count.

    Examples
    --------
    >>> [int(choose_anchors(0, step, 8, 0.1).sum()) for step in range(10)]
    [1, 1, 0, 1, 1, 1, 1, 0, 1, 1]
    """
    if not 0.0 <= anchor_frac <= 1.0:
        raise ValueError(f"the anchor share must lie in [0, 1]: got {anchor_frac}")
    if min(step, groups, min_per_step, groups_before or 0) < 0:
        raise ValueError("step, groups and min_per_step may not be negative")
    before = step * groups if groups_before is None else groups_before
    share = Fraction(str(float(anchor_frac)))  # the decimal that was asked for, so that 0.1 is a tenth
    phase = Fraction(row_seed(seed, "anchor phase"), 2**63)
    count = floor(phase + share * (before + groups)) - floor(phase + share * before)
    count = min(groups, max(count, min_per_step))
    chosen = np.zeros(groups, dtype=bool)
    random = np.random.default_rng(row_seed(seed, "anchors", step))
    chosen[random.choice(groups, size=count, replace=False)] = True
    return chosen
