"""What calibrate writes: calibration.json, the replay's tables, calibrated scores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from wmrl_cli.errors import TableError
from wmrl_cli.maths.analysis import Analysis, CalibrateConfig, summary
from wmrl_cli.maths.calibration import Floats, ScoreMap
from wmrl_cli.maths.online import OnlineCalibrator
from wmrl_cli.maths.pair_log import PairLog
from wmrl_cli.maths.replay import replay
from wmrl_cli.tables import ANCHOR_PAIRS, METRICS, provenance, rows_to_table, write_atomically, write_tables

VERSION = 1
BATCH_PAIRS = 20_000


@dataclass(frozen=True, eq=False)
class SavedMap:
    """A map as `calibration.json` holds it, on the scale [low, high] of its log."""

    overall: ScoreMap
    by: str  # none | task | category
    own: dict[str, ScoreMap]
    low: float
    high: float

    def __call__(self, predicted: Floats, labels: list[str] | None) -> Floats:
        """Calibrated scores on the log's own scale; NaN stays NaN."""
        scaled = (predicted - self.low) / (self.high - self.low)
        calibrated = self.overall(scaled)
        if labels is not None:
            names = np.asarray(labels, dtype=str)
            for name, score_map in self.own.items():
                calibrated[names == name] = score_map(scaled[names == name])
        return self.low + calibrated * (self.high - self.low)


def as_json(analysis: Analysis, *, low: float, high: float, inputs: list[str]) -> dict[str, Any]:
    """The content of calibration.json; knots and values are on the scale [0, 1]."""
    maps = analysis.label_maps
    stamp = provenance("calibrate", config=asdict(analysis.config), inputs=inputs)
    return {
        "wmrl.calibration": VERSION,
        "map": analysis.score_map.to_json(),
        "range": [low, high],
        "by": analysis.config.by,
        "maps": None if maps is None else maps.to_json(),
        "online_map": analysis.prequential.calibrator.map.to_json(),
        "window": analysis.config.window,
        **summary(analysis),
        "provenance": stamp,
    }


def write_json(content: dict[str, Any], path: Path) -> None:
    """Write the object so that `path` holds all of it or is untouched."""
    text = json.dumps(_plain(content), indent=1, allow_nan=False) + "\n"
    write_atomically(path, lambda scratch: Path(scratch).write_text(text, encoding="utf-8"))


def _plain(value: Any) -> Any:
    """The value as JSON can hold it: what is not finite as null."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def read_map(path: Path) -> SavedMap:
    """The map in a calibration.json of `wmrl calibrate` or of a training run. Raises TableError."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.get("wmrl.calibration", VERSION) != VERSION:
            version = content["wmrl.calibration"]
            raise TableError(f"`{path}` has version `{version}`, this wmrl reads version {VERSION}", "calibrate again")
        low, high = content.get("range", [0.0, 1.0])
        own = (content.get("maps") or {"own": {}})["own"]
        return SavedMap(
            ScoreMap.from_json(content["map"]),
            content.get("by", "none"),
            {name: ScoreMap.from_json(state) for name, state in own.items()},
            float(low),
            float(high),
        )
    except OSError as error:
        raise TableError(f"could not read `{path}`: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        hint = "`wmrl calibrate ... -o calibration.json` writes one"
        raise TableError(f"`{path}` is not a calibration: {error}", hint) from error


def saved_map(analysis: Analysis, *, low: float, high: float) -> SavedMap:
    """The analysis' map, ready to be applied."""
    own = {} if analysis.label_maps is None else dict(analysis.label_maps.own)
    return SavedMap(analysis.score_map, analysis.config.by, own, low, high)


def write_online(log: PairLog, config: CalibrateConfig, pairs: Path | None, steps: Path | None) -> None:
    """Replay the log and write its pairs as training would have (`anchor_pairs`), and its steps (`metrics`)."""
    if pairs is None and steps is None:
        return
    stamp = provenance("calibrate --online", config=asdict(config))
    step_tables: list[pa.Table] = []
    pair_tables = _replayed(log, config, step_tables)
    if pairs is None:
        for _ in pair_tables:
            pass
    else:
        write_tables(ANCHOR_PAIRS, pair_tables, pairs, provenance=stamp)
    if steps is not None:
        write_tables(METRICS, step_tables, steps, provenance=stamp)


def _replayed(log: PairLog, config: CalibrateConfig, step_tables: list[pa.Table]) -> Iterator[pa.Table]:
    """The replay's pairs, some `BATCH_PAIRS` at a time; each batch's steps are appended to `step_tables`."""
    empty = dict.fromkeys(METRICS.schema.names)
    records: list[dict[str, Any]] = []
    metrics: list[dict[str, Any]] = []
    for step, observed in replay(log, OnlineCalibrator(config.online)):
        records += observed.records
        metrics.append(empty | observed.metrics | {"step": step})
        if len(records) >= BATCH_PAIRS:
            step_tables.append(rows_to_table(METRICS, metrics))
            yield rows_to_table(ANCHOR_PAIRS, records)
            records, metrics = [], []
    step_tables.append(rows_to_table(METRICS, metrics))
    yield rows_to_table(ANCHOR_PAIRS, records)
