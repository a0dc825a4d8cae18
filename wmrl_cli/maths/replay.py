"""A log replayed as training would have seen it: step by step, by the same calibrator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from wmrl_cli.maths.calibration import Floats
from wmrl_cli.maths.online import CalibratorConfig, Observed, OnlineCalibrator, PairGroup
from wmrl_cli.maths.pair_log import Labels, PairLog


def replay(log: PairLog, calibrator: OnlineCalibrator) -> Iterator[tuple[int, Observed]]:
    """Each step's number and what it showed; the calibrator is left as training would have left it.

    `Observed.metrics` gains `weight_executed` and `weight_simulated` for a step that has the log's shares of
    executed and simulated groups; None where the log holds no simulated ones.
    """
    for step, groups in log.steps():
        rho = calibrator.rho
        observed = calibrator.observe(step, [pair_group(log, rows) for rows in groups])
        executed, simulated = _weights(log, rho)
        observed.metrics.update(weight_executed=executed, weight_simulated=simulated)
        yield step, observed


def pair_group(log: PairLog, rows: np.ndarray) -> PairGroup:
    """The pairs in `rows`, all of one group, as the calibrator takes them."""
    first = int(rows[0])
    return PairGroup(
        group_id=log.group.names[log.group.code[first]],
        task_id="" if log.task is None else log.task.names[log.task.code[first]],
        trajectory_ids=[f"row/{row}" if log.trajectory is None else log.trajectory[row] for row in rows.tolist()],
        predicted=log.predicted[rows].tolist(),
        real=log.real[rows].tolist(),
        status_predicted=_names(log.status_predicted, rows),
        status_real=_names(log.status_real, rows),
    )


def _names(labels: Labels | None, rows: np.ndarray) -> list[str]:
    return [""] * rows.size if labels is None else [labels.names[code] for code in labels.code[rows].tolist()]


def _weights(log: PairLog, rho: float) -> tuple[float | None, float | None]:
    """What `fuse_weights` gives executed and simulated groups, in closed form for the log's share of both."""
    simulated = log.simulated_groups
    if not simulated:  # the log does not say how many groups were simulated beside its anchors
        return None, None
    share = log.groups / (log.groups + simulated)
    executed = 1.0 / (share + (1.0 - share) / rho)
    return executed, executed / rho


class Prequential(NamedTuple):
    """A whole replay in arrays: pair by pair in the log's order, and step by step."""

    calibrated: Floats  # shape (N,), by the map in force before the pair
    map_version: np.ndarray  # shape (N,), 0 = identity
    steps: dict[str, Floats]  # by metric, shape (steps,), NaN where undefined
    calibrator: OnlineCalibrator  # as the log left it


def replay_arrays(log: PairLog, config: CalibratorConfig | None = None) -> Prequential:
    """The replay without the records: what diagnosis and figures need of it."""
    calibrator = OnlineCalibrator(config)
    calibrated = np.empty(log.pairs)
    version = np.empty(log.pairs, dtype=np.int64)
    steps: dict[str, list[float]] = {}
    for step, groups in log.steps():
        rows = np.concatenate(groups)
        calibrated[rows] = calibrator.map(log.predicted[rows])
        version[rows] = calibrator.map.version
        metrics = calibrator.observe(step, [pair_group(log, group) for group in groups]).metrics
        for name, value in {"step": step, **metrics}.items():
            steps.setdefault(name, []).append(np.nan if value is None else float(value))
    return Prequential(calibrated, version, {name: np.array(values) for name, values in steps.items()}, calibrator)
