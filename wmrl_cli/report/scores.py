"""What simulate and execute wrote, in a few numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from wmrl_cli.stages.rows import status_summary
from wmrl_cli.tables import SCORES, read_table


def summarise_scores(trajectories: Path | None, scores: Path | None) -> dict[str, Any]:
    """Rows written, the share of each status and the mean reward; lost rows are counted and in no mean."""
    result: dict[str, Any] = {}
    if trajectories is not None:
        result |= {"trajectories": str(trajectories), "turns": pq.read_metadata(trajectories).num_rows}
    if scores is None:
        return result
    table = read_table(SCORES, scores)
    summary = status_summary(table)
    return {**result, "scores": str(scores), "scored": table.num_rows - summary["lost"], **summary}
