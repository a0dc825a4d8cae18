"""What simulate and execute wrote, in a few numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from wmrl_cli.tables import SCORES, read_table


def summarise_scores(trajectories: Path | None, scores: Path | None) -> dict[str, Any]:
    """Rows written, the share of each status and the mean reward; lost rows are counted and in no mean."""
    result: dict[str, Any] = {}
    if trajectories is not None:
        result |= {"trajectories": str(trajectories), "turns": pq.read_metadata(trajectories).num_rows}
    if scores is None:
        return result
    table = read_table(SCORES, scores)
    statuses = table.column("status").to_pylist()
    rewards = [reward for reward in table.column("reward").to_pylist() if reward is not None]
    shares = {status: statuses.count(status) / len(statuses) for status in sorted(set(statuses) - {"lost"})}
    return {
        **result,
        "scores": str(scores),
        "scored": len(rewards),
        "lost": statuses.count("lost"),
        "mean_reward": float(np.mean(rewards)) if rewards else None,
        **{f"share_{status}": share for status, share in shares.items()},
    }
