"""The verdict on a world model in words, with the numbers that decided."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from wmrl_cli.maths.diagnosis import Diagnosis
from wmrl_cli.maths.intervals import Interval

SMALL_GAIN = 0.05  # share of the squared residual that a map must take away to be worth having
SMALL_NOISE = 0.05  # eta^2 of raw scores below which there is nothing to repair
SMALL_BIAS = 0.05  # reward units
FEW_GROUPS = 10


class Use(StrEnum):
    """How far the predicted score may be trusted."""

    AS_IS = "usable as is"
    AFTER_MAP = "usable after the map"
    RANKING = "trust only the ranking"
    NOT = "do not use"


@dataclass(frozen=True)
class Verdict:
    """What to do, and the sentences that say why; the first reason decided."""

    use: Use
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]


def judge(found: Diagnosis, *, min_pairs: int = 200) -> Verdict:
    """The verdict on a diagnosis.

    `do not use`: the order inside groups cannot be told from guessing, or the map is flat. `trust only the
    ranking`: the order is better than guessing, but the calibrated differences are no better than none
    (eta^2 of held-out groups reaches 1). `usable as is`: a map would take away less than 5 % of the
    held-out residual, or raw eta^2 is below 0.05. Otherwise `usable after the map`. Without groups, the
    errors over all pairs stand in.
    """
    use, reasons = _decide(found)
    return Verdict(use, reasons, tuple(_warnings(found, min_pairs)))


def _decide(found: Diagnosis) -> tuple[Use, tuple[str, ...]]:
    order, eta2, left = found.overall["accuracy_raw"], found.overall["eta2_map"], found.overall["left"]
    if not np.isfinite(order.estimate):
        return _without_order(found)
    if not order.low > 0.5:
        if order.high < 0.5:
            words = f"it orders trajectories against the truth: {percent(order)} of the pairs inside groups are right"
        else:
            words = f"its order cannot be told from guessing: {percent(order)} of the pairs inside groups are right"
        return Use.NOT, (words,)
    better = f"it orders {percent(order)} of the pairs inside groups rightly, where guessing gives 50 %"
    if found.score_map.is_flat:
        return Use.NOT, ("the best non-decreasing map is flat: every group that passes through it is dead", better)
    if not eta2.estimate < 1:
        noise = f"the calibrated differences are noise: eta^2 of held-out groups is {interval(eta2)}"
        return Use.RANKING, (f"{noise}, and 1 is no better than calling all trajectories of a group equal", better)
    gain, raw = 1 - left.estimate, found.overall["eta2_raw"]
    if raw.high < SMALL_NOISE:
        return Use.AS_IS, (f"raw differences inside groups are nearly exact: eta^2 is {interval(raw)}", better)
    if not gain > SMALL_GAIN:
        words = f"takes only {gain:.0%} of" if gain > 0 else f"adds {-gain:.0%} to"
        return Use.AS_IS, (f"a map {words} the squared residual inside held-out groups", better)
    words = f"the map takes {gain:.0%} of the squared residual inside held-out groups away"
    return Use.AFTER_MAP, (f"{words}, eta^2 is then {interval(eta2)}", better)


def _without_order(found: Diagnosis) -> tuple[Use, tuple[str, ...]]:
    """No group has two different real scores: only errors over all pairs can be judged."""
    why = "no group has two pairs with different real scores, so its order inside groups is unknown"
    before, after = found.overall["error_raw"], found.overall["error_map"]
    if found.score_map.is_flat or found.score_map.is_identity:
        return Use.NOT, ("no rising map can be fitted to the pairs", why)
    if after.estimate < (1 - SMALL_GAIN) * before.estimate:
        words = f"the map brings the held-out error from {before.estimate:.3f} to {after.estimate:.3f}"
        return Use.AFTER_MAP, (words, why)
    return Use.AS_IS, (f"a map does not make the held-out error of {before.estimate:.3f} smaller", why)


def _warnings(found: Diagnosis, min_pairs: int) -> list[str]:
    words = []
    if found.pairs < min_pairs:
        words.append(f"only {found.pairs} pairs: training would still use the identity below {min_pairs}")
    if found.groups < FEW_GROUPS:
        words.append(f"only {found.groups} groups: the intervals are rough")
    if found.score_map.is_identity:
        words.append("the predicted scores have fewer than two distinct values: there is no map to fit")
    elif found.score_map.is_flat:
        words.append("the map is flat: all simulated groups would have zero advantage")
    if found.blind:
        words += [
            f"it does not see `{spot.status}`: {percent(spot.accuracy)} of the order with such trajectories is right, "
            f"{percent(spot.accuracy_others)} without (weighted by the real difference); the error is not monotone, "
            "and no non-decreasing map repairs it"
            for spot in found.blind
        ]
    bent = found.overall["bent"]
    if bent.high < 1 - SMALL_GAIN:
        words.append(
            f"its error is not monotone: a curve that may fall would take {1 - bent.estimate:.0%} of the residual away "
            "that the map leaves"
        )
    dead = found.ties_map.dead - found.ties_raw.dead
    if found.ties_map.groups and dead / found.ties_map.groups > 0.05:
        words.append(f"the map makes {dead} of {found.ties_map.groups} groups dead that were not")
    bias = found.overall["bias_raw"]
    if abs(bias.estimate) > SMALL_BIAS and not bias.low <= 0 <= bias.high:
        way = "high" if bias.estimate > 0 else "low"
        words.append(f"raw scores are {abs(bias.estimate):.2f} too {way} on average: do not report them as results")
    if drift := _drift(found):
        words.append(drift)
    return words


def _drift(found: Diagnosis) -> str | None:
    windows = found.by.get("window", [])
    if len(windows) < 2:
        return None
    first, last = windows[0].bias_raw, windows[-1].bias_raw
    if first.high < last.low or last.high < first.low:
        return (
            f"the world model drifts: its bias went from {first.estimate:+.2f} (steps {windows[0].name}) "
            f"to {last.estimate:+.2f} (steps {windows[-1].name}), so refit as training goes"
        )
    return None


def percent(found: Interval) -> str:
    """`71 % [66, 75]`, or without the interval where it is undefined."""
    ends = f" [{found.low * 100:.0f}, {found.high * 100:.0f}]" if np.isfinite(found.low) else ""
    return f"{found.estimate * 100:.0f} %{ends}"


def interval(found: Interval) -> str:
    """`0.42 [0.31, 0.55]`, or without the interval where it is undefined."""
    if not np.isfinite(found.estimate):
        return "undefined"
    ends = f" [{found.low:.3g}, {found.high:.3g}]" if np.isfinite(found.low) else ""
    return f"{found.estimate:.3g}{ends}"
