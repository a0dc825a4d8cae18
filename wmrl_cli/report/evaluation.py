"""An evaluation for people: scores with intervals, and the difference from another policy."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Group, RenderableType

from wmrl_cli import console
from wmrl_cli.stages.evaluate import MEASURES, compare, summarise
from wmrl_cli.tables import EVALUATION, read_table


def read_result(path: Path, against: Path | None) -> dict[str, Any]:
    """The evaluation in `path`, with its difference from `against`, as one JSON-ready value."""
    table = read_table(EVALUATION, path)
    policy = table.column("policy")[0].as_py() if table.num_rows else None
    result = {"evaluation": str(path), "policy": policy, **_summary(table)}
    if against is not None:
        other = read_table(EVALUATION, against)
        difference = {name: interval._asdict() for name, interval in compare(table, other).items()}
        result |= {"against": str(against), "before": _summary(other), "difference": difference}
    return result


def _summary(table: pa.Table) -> dict[str, Any]:
    summary = summarise(table)
    return {**asdict(summary), "overall": {name: interval._asdict() for name, interval in summary.overall.items()}}


def render_result(result: dict[str, Any]) -> RenderableType:
    """One line a measure, then what became of the scripts."""
    if "difference" in result:
        columns = ["mean over trajectories [95 % by task]", "before", "after", "difference"]
        rows = [
            [
                _name(m),
                _words(result["before"]["overall"][m]),
                _words(result["overall"][m]),
                _words(result["difference"][m]),
            ]
            for m in MEASURES
        ]
    else:
        columns = ["mean over trajectories [95 % by task]", "score"]
        rows = [[_name(m), _words(result["overall"][m])] for m in MEASURES]
    categories = ", ".join(f"{name} {value:.1f}" for name, value in result["categories"].items())
    statuses = ", ".join(f"{name} {count}" for name, count in result["statuses"].items())
    words = [
        f"percentile by category: {categories}; mean over categories {result['mean_over_categories']:.1f},"
        f" over tasks {result['mean_over_tasks']:.1f}",
        f"{result['trajectories']} trajectories of `{result['policy']}`: {statuses}",
    ]
    return Group(console.table(columns, rows), *words)


def _name(measure: str) -> str:
    return {"reward": "reward", "valid": "valid share", "percentile": "leaderboard percentile"}[measure]


def _words(interval: dict[str, Any]) -> str:
    return f"{interval['estimate']:.3g} [{interval['low']:.3g}, {interval['high']:.3g}]"
