"""The online calibrator: what a training run knows of its world model, updated by each step's anchor pairs.

Everything inside one step uses the state in force when the step starts: one map version, one rho. A pair is
judged by the map that was there before it (prequentially), never by a fit that has seen it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from wmrl_cli.maths.calibration import Floats, ScoreMap, cross_fit, fit_isotonic, is_fittable
from wmrl_cli.maths.fusion import Eta, Residual, RhoRule, group_residual, variance_ratio


@dataclass(frozen=True, kw_only=True)
class CalibratorConfig:
    """How the map and the weights follow the pairs."""

    min_pairs: int = 200  # pairs before the first fit; identity until then
    refit_every: int = 64  # new pairs between fits
    window: int = 5000  # newest pairs that a fit sees
    debias: bool = True  # off: the map stays the identity
    denoise: bool = True  # off: rho stays 1
    rho_rule: RhoRule = "relative"
    rho_max: float | None = None
    half_life: float = 64.0  # groups
    per_group: bool = False  # eta^2 as a mean of ratios, for comparison

    def __post_init__(self) -> None:
        if self.min_pairs < 2 or self.refit_every < 1 or self.window < self.min_pairs:
            raise ValueError("min_pairs must be at least 2, refit_every at least 1 and window at least min_pairs")
        if self.half_life <= 0 or (self.rho_max is not None and self.rho_max < 1):
            raise ValueError("half_life must be positive and rho_max at least 1")
        if self.rho_rule not in ("relative", "measured"):
            raise ValueError(f"rho_rule is `relative` or `measured`: got {self.rho_rule!r}")


@dataclass(frozen=True, kw_only=True)
class PairGroup:
    """One anchor group's trajectories, scored by both; NaN or None is a lost score and makes no pair."""

    group_id: str
    task_id: str
    trajectory_ids: Sequence[str]
    predicted: Sequence[float | None]  # rewards in [0, 1] by the world model, uncalibrated
    real: Sequence[float | None]  # rewards in [0, 1] by the sandbox
    status_predicted: Sequence[str]
    status_real: Sequence[str]


class Observed(NamedTuple):
    """What one step's pairs showed under the map in force before them."""

    records: list[dict[str, Any]]  # rows of the `anchor_pairs` table
    metrics: dict[str, float | None]  # columns of the `metrics` table; None: undefined in this step


class OnlineCalibrator:
    """Map, eta^2 and rho, as training goes.

    `map` and `rho` are in force now, for the step to come; `observe` closes a step and moves them on.
    `to_json` and `from_json` keep every bit.

    Examples
    --------
    >>> calibrator = OnlineCalibrator(CalibratorConfig(min_pairs=4, window=8))
    >>> group = PairGroup(group_id="g", task_id="t", trajectory_ids="abcd", predicted=[.2, .4, .6, .8],
    ...                   real=[0, 0, .5, 1], status_predicted=["valid"] * 4, status_real=["valid"] * 4)
    >>> observed = calibrator.observe(0, [group])
    >>> calibrator.map([.2, .5, .8]), calibrator.pairs
    (array([0.  , 0.25, 1.  ]), 4)
    """

    def __init__(self, config: CalibratorConfig | None = None) -> None:
        self.config = config or CalibratorConfig()
        self.map = ScoreMap.identity()
        self.pairs = 0  # seen so far
        self.groups = 0  # with at least one pair, so far
        self.note = ""  # why there is no map, in words
        self.eta2_cal: float | None = None  # set when warm-up ends
        self._eta = self._new_eta()
        self._fitted_at: int | None = None  # pairs seen at the last fit
        self._predicted: Floats = np.empty(0)
        self._real: Floats = np.empty(0)
        self._group = np.empty(0, dtype=np.int64)

    @property
    def eta2(self) -> float | None:
        """The world model's relative noise, >= 0; None: every group so far was constant."""
        return self._eta.value

    @property
    def rho(self) -> float:
        """V_WM / V_E for the step to come; 1 before the end of warm-up and without denoising."""
        if not self.config.denoise:
            return 1.0
        return variance_ratio(self.eta2, self.eta2_cal, rule=self.config.rho_rule, rho_max=self.config.rho_max)

    def observe(self, step: int, groups: Sequence[PairGroup]) -> Observed:
        """Close a step: judge its pairs by the map in force, take them in, refit when due.

        Parameters
        ----------
        step : the step's number, written with each record.
        groups : the step's anchor groups, in order; may be empty.

        Returns
        -------
        The pairs as records, and the step's metrics: `map_version`, `map_low`, `map_high`, `eta2`,
        `eta2_cal` and `rho` as they were in force during the step, `pairs` seen including this step,
        `residual_*` the root of the mean squared error inside groups, `bias_*` the mean of predicted
        minus real, both before (`raw`) and after (`calibrated`) the map in force.

        Raises
        ------
        ValueError : a score outside [0, 1], or a group whose columns differ in length.
        """
        kept = [pairs for group in groups if (pairs := _pairs(step, group, self.map))]
        metrics = {**self._in_force(), **_judge(kept)}
        for pairs in kept:
            self._take(pairs)
        metrics["pairs"] = float(self.pairs)
        if self._is_due():
            self._refit()
        return Observed([record for pairs in kept for record in pairs], metrics)

    def _in_force(self) -> dict[str, float | None]:
        return {
            "map_version": float(self.map.version),
            "map_low": self.map.low,
            "map_high": self.map.high,
            "eta2": self.eta2,
            "eta2_cal": self.eta2_cal,
            "rho": self.rho,
        }

    def _take(self, pairs: list[dict[str, Any]]) -> None:
        keep = self.config.window
        self._predicted = np.append(self._predicted, [pair["predicted"] for pair in pairs])[-keep:]
        self._real = np.append(self._real, [pair["real"] for pair in pairs])[-keep:]
        self._group = np.append(self._group, [self.groups] * len(pairs))[-keep:]
        self.pairs += len(pairs)
        self.groups += 1
        if residual := _residual(pairs, "calibrated"):
            self._eta = self._eta.push(residual)

    def _is_due(self) -> bool:
        if self._fitted_at is None:
            return self.pairs >= self.config.min_pairs
        return self.pairs - self._fitted_at >= self.config.refit_every

    def _refit(self) -> None:
        if self.config.debias and not is_fittable(self._predicted):
            self.note = "the world model gave one score to all pairs: there is no map to fit, the identity stays"
            return
        self._fitted_at, self.note = self.pairs, ""
        if self.config.debias:
            self.map = fit_isotonic(self._predicted, self._real, version=self.map.version + 1)
            if self.map.is_flat:
                self.note = (
                    "the map is flat: the world model's order is useless, and simulated groups have no advantage"
                )
        if self.eta2_cal is None:
            self._end_warm_up()

    def _end_warm_up(self) -> None:
        """Restart eta^2 from the warm-up groups as the new map sees them out of fold, so that rho starts at 2."""
        if self.config.debias:
            calibrated = cross_fit(self._predicted, self._real, self._group)
        else:
            calibrated = self._predicted
        eta = self._new_eta()
        for group in np.unique(self._group):
            member = self._group == group
            if residual := group_residual(calibrated[member], self._real[member]):
                eta = eta.push(residual)
        if eta.value is None:  # tried again at the next fit
            self.note = "the real reward was constant in every group so far: eta^2 is undefined and rho stays 1"
            return
        self._eta, self.eta2_cal = eta, eta.value

    def _new_eta(self) -> Eta:
        return Eta(half_life=self.config.half_life, per_group=self.config.per_group)

    def to_json(self) -> dict[str, Any]:
        """Configuration and state as plain values for `json`; `from_json` continues bit for bit."""
        return {
            "config": dataclasses.asdict(self.config),
            "map": self.map.to_json(),
            "pairs": self.pairs,
            "groups": self.groups,
            "note": self.note,
            "eta2": self.eta2,  # for readers; follows from `eta`
            "rho": self.rho,
            "eta2_cal": self.eta2_cal,
            "eta": [self._eta.numerator, self._eta.denominator, self._eta.groups],
            "fitted_at": self._fitted_at,
            "predicted": self._predicted.tolist(),
            "real": self._real.tolist(),
            "group": self._group.tolist(),
        }

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> OnlineCalibrator:
        calibrator = cls(CalibratorConfig(**state["config"]))
        calibrator.map = ScoreMap.from_json(state["map"])
        calibrator.pairs, calibrator.groups = state["pairs"], state["groups"]
        calibrator.note, calibrator.eta2_cal = state["note"], state["eta2_cal"]
        numerator, denominator, groups = state["eta"]
        calibrator._eta = dataclasses.replace(
            calibrator._eta, numerator=numerator, denominator=denominator, groups=groups
        )
        calibrator._fitted_at = state["fitted_at"]
        calibrator._predicted = np.array(state["predicted"], dtype=float)
        calibrator._real = np.array(state["real"], dtype=float)
        calibrator._group = np.array(state["group"], dtype=np.int64)
        return calibrator


def _pairs(step: int, group: PairGroup, score_map: ScoreMap) -> list[dict[str, Any]]:
    """The group's pairs as records; lost on either side makes none."""
    columns = (group.trajectory_ids, group.predicted, group.real, group.status_predicted, group.status_real)
    if len({len(column) for column in columns}) != 1:
        raise ValueError(f"group `{group.group_id}` has columns of different lengths")
    predicted = np.array([np.nan if score is None else score for score in group.predicted], dtype=float)
    real = np.array([np.nan if score is None else score for score in group.real], dtype=float)
    for scores in (predicted, real):
        wrong = ~np.isnan(scores) & ~((scores >= 0) & (scores <= 1))
        if wrong.any():
            raise ValueError(f"group `{group.group_id}` has a score outside [0, 1]: {scores[wrong][0]}")
    calibrated = score_map(predicted)
    return [
        {
            "step": step,
            "group_id": group.group_id,
            "task_id": group.task_id,
            "trajectory_id": group.trajectory_ids[i],
            "predicted": float(predicted[i]),
            "real": float(real[i]),
            "calibrated": float(calibrated[i]),
            "map_version": score_map.version,
            "status_predicted": str(group.status_predicted[i]),
            "status_real": str(group.status_real[i]),
        }
        for i in range(len(predicted))
        if np.isfinite(predicted[i]) and np.isfinite(real[i])
    ]


def _residual(pairs: list[dict[str, Any]], score: str) -> Residual | None:
    return group_residual([pair[score] for pair in pairs], [pair["real"] for pair in pairs])


def _judge(groups: list[list[dict[str, Any]]]) -> dict[str, float | None]:
    """Residual and bias of the step's pairs, before and after the map."""
    judged: dict[str, float | None] = {}
    for name, score in (("raw", "predicted"), ("calibrated", "calibrated")):
        terms = [residual.e for pairs in groups if (residual := _residual(pairs, score))]
        gaps = [pair[score] - pair["real"] for pairs in groups for pair in pairs]
        judged[f"residual_{name}"] = float(np.sqrt(np.mean(terms))) if terms else None
        judged[f"bias_{name}"] = float(np.mean(gaps)) if gaps else None
    return judged
