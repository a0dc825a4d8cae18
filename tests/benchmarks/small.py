"""A task small enough to compute by hand, built by the real builder from a table of our own."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from wmrl_cli.benchmarks.offline import build_task
from wmrl_cli.benchmarks.offline_specs import OfflineSpec
from wmrl_cli.benchmarks.sources import Source
from wmrl_cli.task import Task

ROWS = 40
TABLE = Source(
    pd.DataFrame(
        {
            "size": [float(i) for i in range(ROWS)],
            "shop": ["north", "south", None, "west"] * (ROWS // 4),
            "price": [3.0 * i + 1 for i in range(ROWS)],
            "kind": ["a", "b"] * (ROWS // 2),
            "count": [i % 3 for i in range(ROWS)],
        }
    )
)


def spec(**changes: object) -> OfflineSpec:
    """A spec over `TABLE`; `changes` replace its fields."""
    values: dict[str, object] = {
        "task_id": "small",
        "title": "Small",
        "about": "Rows made for a test.",
        "source": "test:table",
        "licence": "none",
        "split": "train",
        "category": "tabular",
        "metric": "mae",
        "target": "price",
        "columns": ("size", "shop"),
        "id_column": "row_id",
        "rows": ROWS,
        "test_share": 0.25,
    }
    return OfflineSpec(**{**values, **changes})  # type: ignore[arg-type]


def small_task(folder: Path, scores: tuple[float, ...] = (1.0, 2.0, 3.0, 4.0), **changes: object) -> Task:
    """The task of `spec(**changes)`, its files below `folder`."""
    return build_task(spec(**changes), folder / "small", root=folder, scores=scores, source=TABLE)


def answers(task: Task) -> pd.DataFrame:
    return pd.read_csv(task.private_path / "answers.csv")


def submission(task: Task, **columns: object) -> bytes:
    """The answers as a submission, with some columns replaced."""
    return answers(task).assign(**columns).to_csv(index=False).encode()
