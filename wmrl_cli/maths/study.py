"""How many real runs are enough: the anchor fraction against what it buys, from a log of executed groups.

Of a log whose groups were all scored by both sides, a random fraction plays the anchors; the other groups
play the simulated ones, and their real scores, which training would not have had, judge the map.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from wmrl_cli.maths.calibration import Floats, ScoreMap
from wmrl_cli.maths.fidelity import group_terms, rank_correlations
from wmrl_cli.maths.intervals import Interval, Ints
from wmrl_cli.maths.online import CalibratorConfig, OnlineCalibrator
from wmrl_cli.maths.pair_log import PairLog
from wmrl_cli.maths.ratios import Ratios
from wmrl_cli.maths.replay import pair_group
from wmrl_cli.seeds import row_seed

MOST_GROUPS = 2000  # of the log's newest; more would not change the answer


class FractionRow(NamedTuple):
    """What one anchor fraction buys, over the groups that were not anchors; `fraction` is of the log's groups."""

    fraction: float
    anchor_groups: float  # mean over repeats
    noise: Interval  # root mean squared error inside groups under the map in force, reward units
    noise_raw: Interval  # the same without any map
    rank: Interval  # mean rank correlation inside groups, after the map
    flattened: Interval  # share of groups that the map made dead
    rho: float  # median over repeats at the end of the log
    rho_low: float  # quartiles over repeats
    rho_high: float
    rho_error: float  # median over repeats of |rho / rho of the whole log - 1|
    fitted: float  # share of repeats in which a map was fitted at all
    seconds: float | None  # executing the anchors took so long, mean over repeats; None: not in the log


def study_fractions(
    log: PairLog,
    fractions: Sequence[float],
    *,
    config: CalibratorConfig | None = None,
    repeats: int = 10,
    seed: int = 0,
    draws: int = 500,
    level: float = 0.95,
    advance: Callable[[int], None] = lambda done: None,
) -> list[FractionRow]:
    """One row a fraction: whole groups drawn at random, the calibrator run online on them, the rest judged.

    Parameters
    ----------
    log : pairs with groups; its newest `MOST_GROUPS` groups are used.
    fractions : each in (0, 1].
    repeats : random draws of groups a fraction; a group's numbers are averaged over them, and the intervals
        draw groups.
    advance : told after each replay how many are done, of `len(fractions) * repeats + 1`.

    Returns
    -------
    At a fraction of 1 no group is left to judge: its intervals are NaN.

    Raises
    ------
    ValueError : a fraction outside (0, 1].
    """
    if not all(0 < fraction <= 1 for fraction in fractions):
        raise ValueError(f"fractions lie in (0, 1]: got {list(fractions)}")
    config = config or CalibratorConfig()
    if log.groups > MOST_GROUPS:
        log = log.take(np.flatnonzero(log.group.code >= log.groups - MOST_GROUPS))
    steps = list(log.steps())
    whole = _run(log, steps, np.ones(log.groups, dtype=bool), config)
    advance(1)
    rows = []
    for number, fraction in enumerate(fractions):
        runs = []
        for repeat in range(repeats):
            random = np.random.default_rng(row_seed(seed, "study", fraction, repeat))
            size = max(1, round(fraction * log.groups))
            anchors = np.zeros(log.groups, dtype=bool)
            anchors[random.choice(log.groups, size=size, replace=False)] = True
            runs.append((anchors, _run(log, steps, anchors, config)))
            advance(1 + number * repeats + repeat + 1)
        rows.append(_row(log, fraction, runs, whole.rho, seed=seed, draws=draws, level=level))
    return rows


class _Run(NamedTuple):
    calibrated: Floats  # shape (N,), by the map in force at that step
    rho: float
    fitted: bool


def _run(log: PairLog, steps: list[tuple[int, list[Ints]]], anchors: np.ndarray, config: CalibratorConfig) -> _Run:
    calibrator = OnlineCalibrator(config)
    calibrated = np.empty(log.pairs)
    score_map: ScoreMap = calibrator.map
    for step, groups in steps:
        rows = np.concatenate(groups)
        calibrated[rows] = score_map(log.predicted[rows])
        chosen = [group for group in groups if anchors[log.group.code[group[0]]]]
        if chosen:
            calibrator.observe(step, [pair_group(log, group) for group in chosen])
            score_map = calibrator.map
    return _Run(calibrated, calibrator.rho, not calibrator.map.is_identity)


def _row(
    log: PairLog,
    fraction: float,
    runs: list[tuple[np.ndarray, _Run]],
    rho_whole: float,
    *,
    seed: int,
    draws: int,
    level: float,
) -> FractionRow:
    group, shape = log.group.code, (len(runs), log.groups)
    e, rank, flat = np.full(shape, np.nan), np.full(shape, np.nan), np.full(shape, np.nan)
    spread_raw = _spread(log.predicted, group, log.groups)
    for i, (anchors, run) in enumerate(runs):
        judged = ~anchors
        e[i, judged] = group_terms(run.calibrated, log.real, group).e[judged]
        rank[i, judged] = rank_correlations(run.calibrated, log.real, group)[judged]
        dead = (_spread(run.calibrated, group, log.groups) == 0) & (spread_raw > 0)
        flat[i, judged] = dead[judged]
    ratios = Ratios(np.arange(log.groups), log.groups, seed=seed)
    raw = group_terms(log.predicted, log.real, group).e
    raw[np.isnan(e).all(axis=0)] = np.nan
    for name, per_run in (("noise", e), ("rank", rank), ("flattened", flat)):
        ratios.add_groups(name, _mean(per_run), np.ones(log.groups), root=name == "noise")
    ratios.add_groups("noise_raw", raw, np.ones(log.groups), root=True)
    found = ratios.intervals(draws=draws, level=level)
    rho = np.array([run.rho for _, run in runs])
    low, middle, high = np.quantile(rho, [0.25, 0.5, 0.75])
    return FractionRow(
        fraction=fraction,
        anchor_groups=float(np.mean([anchors.sum() for anchors, _ in runs])),
        noise=found["noise"],
        noise_raw=found["noise_raw"],
        rank=found["rank"],
        flattened=found["flattened"],
        rho=float(middle),
        rho_low=float(low),
        rho_high=float(high),
        rho_error=float(np.median(np.abs(rho / rho_whole - 1))),
        fitted=float(np.mean([run.fitted for _, run in runs])),
        seconds=_seconds(log, [anchors for anchors, _ in runs]),
    )


def _mean(per_run: Floats) -> Floats:
    """Mean over runs of each group's known values, NaN where it was always an anchor."""
    known = np.isfinite(per_run)
    total = np.where(known, per_run, 0.0).sum(axis=0)
    return np.where(known.any(axis=0), total / np.maximum(known.sum(axis=0), 1), np.nan)


def _spread(score: Floats, group: Ints, groups: int) -> Floats:
    low, high = np.full(groups, np.inf), np.full(groups, -np.inf)
    np.minimum.at(low, group, score)
    np.maximum.at(high, group, score)
    spread: Floats = high - low
    return spread


def _seconds(log: PairLog, chosen: list[np.ndarray]) -> float | None:
    if log.seconds is None or not np.isfinite(log.seconds).any():
        return None
    seconds = np.where(np.isfinite(log.seconds), log.seconds, np.nanmean(log.seconds))
    per_group = np.bincount(log.group.code, seconds, log.groups)
    return float(np.mean([per_group[anchors].sum() for anchors in chosen]))
