"""Small things that the sections of a run's report share: curves with a title, rolling means, numbers in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from wmrl_cli.report.svg import Line, figure

SMOOTH = 5  # steps in a rolling mean
Floats = npt.NDArray[np.float64]


def curve(
    x: Floats,
    y: Floats,
    name: str = "",
    *,
    low: Floats | None = None,
    high: Floats | None = None,
    step: bool = False,
    markers: bool = False,
) -> Line:
    """A line from arrays."""
    band = (None if low is None else low.tolist(), None if high is None else high.tolist())
    return Line(x=x.tolist(), y=y.tolist(), name=name, low=band[0], high=band[1], step=step, markers=markers)


def titled(title: str, chart: str, caption: str) -> str:
    """A chart below its title, above the sentence that says what it shows."""
    return f"<h3>{title}</h3>{figure(chart, caption)}"


def rolling(values: Floats) -> Floats:
    """Mean over the last `SMOOTH` steps, leaving out those without a value."""
    return pd.Series(values).rolling(SMOOTH, min_periods=1).mean().to_numpy(dtype=np.float64)


def ends(values: Floats) -> tuple[float, float]:
    """First and last finite value; NaN without any."""
    known = values[np.isfinite(values)]
    return (float(known[0]), float(known[-1])) if known.size else (float("nan"), float("nan"))


def mean(values: Floats) -> float | None:
    """Mean of the finite values; null without any."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else None


def total(values: Floats) -> float:
    """Sum of the finite values."""
    return float(np.nansum(values))


def with_interval(interval: Any) -> str:
    """`0.31 [0.28, 0.34]`; an interval needs two clusters."""
    estimate, low, high = interval.estimate, interval.low, interval.high
    ends_words = f"[{low:.3g}, {high:.3g}]" if np.isfinite([low, high]).all() else "[one cluster: no interval]"
    return f"{estimate:.3g} {ends_words}"


def moved(change: float) -> str:
    """The verb for a change."""
    return "rose" if change > 0 else "fell" if change < 0 else "stayed"


def steps_words(count: int) -> str:
    return "step" if count == 1 else f"{count} steps"
