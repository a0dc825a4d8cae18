"""A run folder as arrays: what the report draws, read once and checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from wmrl_cli.errors import ConfigError, TableError
from wmrl_cli.maths.calibration import ScoreMap
from wmrl_cli.tables import ANCHOR_PAIRS, EVALUATION, METRICS, SCORES, check_kind, read_table

_SCORE_COLUMNS = ("step", "group_id", "task_id", "trajectory_id", "scorer", "status", "reward", "wall_s")


@dataclass(frozen=True, eq=False)
class RunData:
    """What a run has written so far. `before` and `after` are evaluations; null where there is none."""

    folder: Path
    config: Mapping[str, Any]
    wmrl: str  # the version that wrote it
    metrics: pd.DataFrame  # one row a step
    pairs: pd.DataFrame  # one row an anchor pair
    scores: pd.DataFrame  # one row a script and scorer
    score_map: ScoreMap | None
    note: str  # the calibrator's own words on why there is no map, or on a useless one
    before: pa.Table | None
    after: pa.Table | None

    @property
    def steps(self) -> int:
        return len(self.metrics)

    @property
    def has_world_model(self) -> bool:
        return bool((self.metrics["scripts_simulated"] > 0).any())

    def rewards(self, scorer: str) -> pd.DataFrame:
        """Each trajectory's best reward by `scorer`, with its step and group; lost ones are left out."""
        scored = self.scores[(self.scores["scorer"] == scorer) & self.scores["reward"].notna()]
        keys = ["step", "group_id", "trajectory_id"]
        return scored.groupby(keys)["reward"].max().reset_index()

    def column(self, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        """A column of `metrics`, shape (steps,); null is NaN."""
        return self.metrics[name].to_numpy(dtype=np.float64)


def read_run(folder: Path) -> RunData:
    """The run in `folder`. Raises ConfigError where there is none, TableError where a table is bad."""
    if not folder.is_dir():
        raise ConfigError(f"`{folder}` is not a folder", "give the run folder that `wmrl train -o` wrote")
    config, metrics = folder / "config.json", folder / "metrics.parquet"
    if not config.exists():
        raise ConfigError(f"`{folder}` is not a run folder: it has no config.json", "`wmrl train -o` writes one")
    if not metrics.exists():
        raise ConfigError(f"the run in `{folder}` has no finished step yet", "wait for its first step")
    calibration = _json(folder / "calibration.json")
    state = calibration.get("calibrator", calibration)
    return RunData(
        folder=folder,
        config=_json(config)["config"],
        wmrl=str(check_kind(METRICS, metrics).get("wmrl", "")),
        metrics=read_table(METRICS, metrics).to_pandas(),
        pairs=read_table(ANCHOR_PAIRS, folder / "anchor_pairs.parquet").to_pandas(),
        scores=_scores(folder),
        score_map=ScoreMap.from_json(state["map"]) if "map" in state else None,
        note=str(state.get("note", "")),
        before=_evaluation(folder / "evaluation" / "before.parquet"),
        after=_evaluation(folder / "evaluation" / "after.parquet"),
    )


def _scores(folder: Path) -> pd.DataFrame:
    parts = [
        read_table(SCORES, path).select(list(_SCORE_COLUMNS))
        for path in sorted(folder.glob("steps/[0-9]*/scores.parquet"))
    ]
    whole = pa.concat_tables(parts) if parts else SCORES.schema.empty_table().select(list(_SCORE_COLUMNS))
    frame: pd.DataFrame = whole.to_pandas()
    return frame


def _evaluation(path: Path) -> pa.Table | None:
    return read_table(EVALUATION, path) if path.exists() else None


def _json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        values: dict[str, Any] = json.loads(path.read_text())
    except ValueError as error:
        raise TableError(f"`{path}` is not JSON: {error}", "the run is damaged: run its command again") from error
    return values
