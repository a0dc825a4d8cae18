"""All that `wmrl calibrate` finds in a log, in one value: the map, the diagnosis, the verdict, the replay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from wmrl_cli.maths.calibration import Floats, ScoreMap
from wmrl_cli.maths.comparison import FOLDS, METHODS, MapRow, compare_maps
from wmrl_cli.maths.diagnosis import Diagnosis, diagnose
from wmrl_cli.maths.fusion import RhoRule
from wmrl_cli.maths.intervals import Interval
from wmrl_cli.maths.label_maps import LabelMaps, cross_fit_labels, fit_label_maps
from wmrl_cli.maths.online import CalibratorConfig
from wmrl_cli.maths.pair_log import Labels, PairLog
from wmrl_cli.maths.replay import Prequential, replay_arrays
from wmrl_cli.maths.study import FractionRow, study_fractions
from wmrl_cli.maths.verdict import Verdict, judge


@dataclass(frozen=True, kw_only=True)
class CalibrateConfig:
    """How a log is calibrated and judged."""

    method: Literal["isotonic", "centred", "identity"] = "isotonic"
    by: Literal["none", "task", "category"] = "none"  # maps per label, where held-out residuals get better
    window: int | None = None  # newest pairs that a fit sees; null: all for the map, 5000 online
    min_pairs: int = 200  # pairs before the first online fit
    refit_every: int = 64  # new pairs between online fits
    rho_rule: RhoRule = "relative"
    rho_max: float | None = None
    half_life: float = 64.0  # groups after which an anchor group counts half in eta^2
    reward_turn: Literal["best", "last"] = "best"  # of a trajectory in a scores table
    repeats: int = 10  # random draws for each fraction of the study
    draws: int = 1000  # of the bootstrap
    level: float = 0.95  # confidence of the intervals
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.repeats, self.draws) < 1 or not 0 < self.level < 1:
            raise ValueError("repeats and draws must be at least 1 and level in (0, 1)")
        _ = self.online  # its own checks

    @property
    def online(self) -> CalibratorConfig:
        return CalibratorConfig(
            min_pairs=self.min_pairs,
            refit_every=self.refit_every,
            window=max(self.min_pairs, 5000) if self.window is None else self.window,
            rho_rule=self.rho_rule,
            rho_max=self.rho_max,
            half_life=self.half_life,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Analysis:
    """What a log gives. `comparison` and `study` are None where they were not asked for."""

    config: CalibrateConfig
    log: PairLog
    score_map: ScoreMap
    label_maps: LabelMaps | None
    diagnosis: Diagnosis
    verdict: Verdict
    prequential: Prequential
    comparison: list[MapRow] | None = None
    study: list[FractionRow] | None = None

    @property
    def fitted_pairs(self) -> int:
        return self.diagnosis.pairs


def analyse(
    log: PairLog,
    config: CalibrateConfig | None = None,
    *,
    compare: bool = False,
    fractions: Sequence[float] = (),
    advance: Callable[[int], None] = lambda done: None,
) -> Analysis:
    """The map that fits the log's newest `window` pairs, how far to trust it, and the log's online replay.

    Parameters
    ----------
    log : at least one pair.
    compare : also judge all kinds of map on the same folds.
    fractions : also run the anchor-fraction study on these, each in (0, 1]; needs groups.
    advance : told how many of the study's replays are done.

    Raises
    ------
    ValueError : maps by a label that the log does not have, a study without groups, a fraction outside (0, 1].
    """
    config = config or CalibrateConfig()
    if fractions and not log.has_groups:
        raise ValueError("an anchor-fraction study needs the groups of the log")
    recent = log if config.window is None else log.newest(config.window)
    fit = METHODS[config.method]
    maps, calibrated = _label_maps(recent, config)
    found = diagnose(recent, fit=fit, calibrated=calibrated, seed=config.seed, draws=config.draws, level=config.level)
    study = None
    if fractions:
        options: dict[str, Any] = {"repeats": config.repeats, "seed": config.seed, "level": config.level}
        study = study_fractions(log, fractions, config=config.online, advance=advance, **options)
    return Analysis(
        config=config,
        log=log,
        score_map=found.score_map,
        label_maps=maps,
        diagnosis=found,
        verdict=judge(found, min_pairs=config.min_pairs),
        prequential=replay_arrays(log, config.online),
        comparison=compare_maps(recent, seed=config.seed, draws=config.draws, level=config.level) if compare else None,
        study=study,
    )


def _label_maps(log: PairLog, config: CalibrateConfig) -> tuple[LabelMaps | None, Floats | None]:
    labels: Labels | None = {"none": None, "task": log.task, "category": log.category}[config.by]
    if config.by == "none":
        return None, None
    if labels is None:
        raise ValueError(f"maps by {config.by} need the log's {config.by} of each pair")
    fit, arrays = METHODS[config.method], (log.predicted, log.real, log.group.code)
    maps = fit_label_maps(*arrays, labels, fit=fit, folds=FOLDS, seed=config.seed)
    return maps, cross_fit_labels(*arrays, labels, fit=fit, folds=FOLDS, seed=config.seed)


def numbers(found: Interval) -> dict[str, float | int]:
    """An interval as plain values for JSON."""
    return found._asdict()


def summary(analysis: Analysis) -> dict[str, Any]:
    """The analysis as nested plain values: what `calibration.json` and `--json` hold beside the maps."""
    found, calibrator = analysis.diagnosis, analysis.prequential.calibrator
    mean = found.mean_real
    values: dict[str, Any] = {
        "pairs": analysis.log.pairs,
        "groups": analysis.log.groups if analysis.log.has_groups else None,
        "fitted_pairs": analysis.fitted_pairs,
        "simulated": analysis.log.simulated.size,
        "dropped": dict(analysis.log.dropped),
        "method": analysis.config.method,
        "map_low": analysis.score_map.low,
        "map_high": analysis.score_map.high,
        "eta2": calibrator.eta2,
        "eta2_cal": calibrator.eta2_cal,
        "rho": calibrator.rho,
        "note": calibrator.note,
        "verdict": {"use": str(analysis.verdict.use), "reasons": list(analysis.verdict.reasons)},
        "warnings": list(analysis.verdict.warnings),
        "measures": {name: numbers(interval) for name, interval in found.overall.items()},
        "calibration_error": {"raw": found.curve_raw.calibration_error, "map": found.curve_map.calibration_error},
        "ties": {"raw": found.ties_raw._asdict(), "map": found.ties_map._asdict(), "real": found.ties_real._asdict()},
        "breakdown": {kind: [_row(row) for row in rows] for kind, rows in found.by.items()},
        "statuses": [{**row._asdict(), "missed": row.missed, "invented": row.invented} for row in found.statuses],
        "blind": [_row(spot) for spot in found.blind],
        "mean_real": {"anchors": numbers(mean.anchors), "powered": numbers(mean.powered), "effective": mean.effective},
    }
    if found.confusion is not None:
        table = found.confusion
        values["confusion"] = {"statuses": list(table.names), "predicted_by_real": table.counts.tolist()}
    if analysis.comparison is not None:
        values["comparison"] = [_row(row) for row in analysis.comparison]
    if analysis.study is not None:
        values["study"] = [_row(row) for row in analysis.study]
    return values


def _row(row: Any) -> dict[str, Any]:
    """A named tuple as a dictionary, its intervals too."""
    return {k: numbers(v) if isinstance(v, Interval) else v for k, v in row._asdict().items()}
