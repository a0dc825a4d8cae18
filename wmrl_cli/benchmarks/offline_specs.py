"""The offline suite's specifications: TOML files and stored leaderboards in `tasks/offline/`."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wmrl_cli.benchmarks.metrics import METRICS, PROBABILITY
from wmrl_cli.config import build_config
from wmrl_cli.errors import StageError
from wmrl_cli.names import unknown_name

SUITE = "offline"


@dataclass(frozen=True, kw_only=True)
class OfflineSpec:
    """How one task is cut from a data set; the fields of a TOML file in `tasks/offline/`."""

    task_id: str
    title: str
    about: str  # what the rows are, a sentence or two for the agent
    source: str  # package:item, see `sources.load_source`
    licence: str  # of the data, for people
    split: str  # train | held_out
    category: str  # tabular | text | image
    metric: str
    target: str  # the data set's own name of the column to predict
    target_name: str = ""  # its name in the task; empty: `target`
    positive: str = ""  # the target's value that counts as 1; for metrics of a probability
    columns: tuple[str, ...] = ()  # features, by the data set's own names; empty with images
    rename: Mapping[str, str] = field(default_factory=dict)  # own name -> name in the task
    id_column: str = "id"
    id_prefix: str = ""  # makes ids text, such as P0012
    rows: int = 1500  # at most; train and test together
    test_share: float = 0.3
    missing: float = 0.0  # share of cells emptied on purpose, besides those that are empty in the data
    missing_columns: tuple[str, ...] = ()
    binned: tuple[str, ...] = ()  # numbers cut at their terciles into low, mid, high
    seed: int = 0

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise ValueError(unknown_name("metric", self.metric, METRICS)[0])
        if self.split not in ("train", "held_out") or self.category not in ("tabular", "text", "image"):
            raise ValueError(f"split and category of `{self.task_id}` are not known: `{self.split}`, `{self.category}`")
        if (METRICS[self.metric].prediction == PROBABILITY) != bool(self.positive):
            raise ValueError(f"`{self.task_id}`: `positive` belongs to metrics of a probability, and only to them")
        for name, known in (("missing_columns", self.columns), ("binned", self.columns), ("rename", self.columns)):
            if unknown := set(getattr(self, name)) - set(known):
                raise ValueError(f"`{self.task_id}`: `{name}` names columns that it does not have: {sorted(unknown)}")

    @property
    def target_out(self) -> str:
        return self.target_name or self.target


def tasks_folder() -> Path:
    """The `tasks/` data: inside an installed wheel as `wmrl_cli/_tasks`, in a checkout beside the package."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "_tasks", package.parent / "tasks"):
        if (folder / SUITE).is_dir():
            return folder
    raise StageError(f"the task specifications are not beside the package `{package}`", "install wmrl-cli again")


def load_specs() -> dict[str, OfflineSpec]:
    """All specs of the suite by task id, training tasks first. Raises ConfigError for a wrong file."""
    specs = []
    for path in sorted((tasks_folder() / SUITE).glob("*.toml")):
        values: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        lists: dict[str, Any] = {
            name: tuple(values[name]) for name in ("columns", "missing_columns", "binned") if name in values
        }
        specs.append(build_config(OfflineSpec, {"task_id": path.stem, **values, **lists}, where=str(path)))
    return {spec.task_id: spec for spec in sorted(specs, key=lambda spec: (spec.split != "train", spec.task_id))}


def load_board(task_id: str) -> tuple[float, ...]:
    """The stored scores of the reference solutions on this task, in the metric's unit. Raises StageError."""
    path = tasks_folder() / SUITE / "leaderboards" / f"{task_id}.json"
    try:
        return tuple(json.loads(path.read_text())["scores"])
    except OSError as error:
        raise StageError(
            f"task `{task_id}` has no stored leaderboard", "python scripts/build_leaderboards.py makes them"
        ) from error
