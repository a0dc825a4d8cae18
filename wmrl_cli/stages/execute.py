"""execute: scripts of a trajectories table, or a random share of its groups, scored by real execution."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from wmrl_cli.environment import Environment
from wmrl_cli.errors import TableError, UnavailableError
from wmrl_cli.maths.anchors import choose_anchors
from wmrl_cli.maths.outcomes import RewardLadder
from wmrl_cli.sandbox.base import Capabilities
from wmrl_cli.sandbox.cache import CONFIRMED, DISAGREED
from wmrl_cli.sandbox.config import SandboxConfig
from wmrl_cli.stages.rows import status_summary
from wmrl_cli.stages.simulate import Score
from wmrl_cli.tables import TRAJECTORIES, check_kind
from wmrl_cli.task import Task

COLUMNS = ("trajectory_id", "turn", "group_id", "task_id", "step", "script", "seed")


@dataclass(frozen=True, kw_only=True)
class ExecuteConfig:
    """What of a table is executed: a seeded draw of groups, a share of that draw, the first rows of that share."""

    anchor_frac: float = 0.1  # share of groups, in [0, 1]
    min_per_step: int = 0  # anchor groups that a step has at least
    shard: tuple[int, int] = (0, 1)  # (i, n): every n-th drawn group from the i-th
    limit: int | None = None  # rows
    seed: int = 0
    cache: Path | None = None  # folder of results that are used again
    verify_cache: int = 0  # how many of them are run again, to see whether they still hold
    sandbox: SandboxConfig = field(default_factory=SandboxConfig)
    reward: RewardLadder = field(default_factory=RewardLadder)

    def __post_init__(self) -> None:
        if not 0.0 <= self.anchor_frac <= 1.0:
            raise ValueError(f"`anchor_frac` must lie in [0, 1]: got {self.anchor_frac}")
        if not 0 <= self.shard[0] < self.shard[1]:
            raise ValueError(f"a shard is i/n with 0 <= i < n: got {self.shard[0]}/{self.shard[1]}")


def read_scripts(path: Path, tasks: Sequence[Task]) -> pa.Table:
    """The columns that execution needs of a trajectories table. Raises TableError, also for a task that is missing."""
    check_kind(TRAJECTORIES, path)
    try:
        table = pq.read_table(path, columns=list(COLUMNS)).replace_schema_metadata(None)
    except (pa.ArrowException, OSError) as error:
        raise TableError(f"`{path}` is damaged: {error}", "make it again") from error
    if not table.num_rows:
        raise TableError(f"`{path}` holds no trajectories")
    known = {task.task_id for task in tasks}
    if unknown := sorted(set(table.column("task_id").to_pylist()) - known):
        raise TableError(
            f"`{path}` has trajectories of task `{unknown[0]}`, which the task table does not have",
            "give the table that the trajectories were made from with --tasks",
        )
    return table


def choose_rows(table: pa.Table, config: ExecuteConfig) -> pa.Table:
    """The rows to execute, in their order. Whole groups, drawn by (seed, step) alone, so that shards agree."""
    steps, groups = table.column("step").to_pylist(), table.column("group_id").to_pylist()
    by_step: dict[int, dict[str, None]] = {}
    for step, group in zip(steps, groups, strict=True):
        by_step.setdefault(step, {})[group] = None
    drawn: list[tuple[int, str]] = []
    before = 0
    for step in sorted(by_step):
        names = list(by_step[step])
        anchors = choose_anchors(
            config.seed,
            step,
            len(names),
            config.anchor_frac,
            min_per_step=config.min_per_step,
            groups_before=before,
        )
        drawn += [(step, name) for name, is_anchor in zip(names, anchors, strict=True) if is_anchor]
        before += len(names)
    first, every = config.shard
    kept = set(drawn[first::every])
    chosen = table.filter(pa.array([pair in kept for pair in zip(steps, groups, strict=True)], pa.bool_()))
    return chosen if config.limit is None else chosen.slice(0, config.limit)


class Execute:
    """`trajectories` -> `scores` by the sandbox.

    A lost row is a row. But where the backend itself is gone, as `check` says, the part is not written and the
    stage stops with UnavailableError, so that a later run does it; with `check=None` it goes on regardless.
    """

    def __init__(
        self, tasks: Sequence[Task], environment: Environment, check: Callable[[], Capabilities] | None
    ) -> None:
        self._score = Score(tasks, environment)
        self._check = check

    def __call__(self, batch: pa.Table) -> pa.Table:
        scores = self._score(batch)
        if self._check is not None and "lost" in scores.column("status").to_pylist():
            found = self._check()
            if not found.available:
                raise UnavailableError(
                    f"the `{found.backend}` sandbox stopped working: {found.reason}",
                    "repair it and run the same command again: finished parts are kept; --keep-going writes lost rows",
                )
        return scores


def totals(scores: pa.Table) -> dict[str, Any]:
    """What scores cost and showed: sums in seconds; shares and means without the lost rows, which are counted."""
    rows = scores.drop_columns(["verdicts", "feedback"]).to_pylist()
    fresh = [row for row in rows if not row["cached"]]
    ran = [row for row in fresh if row["wall_s"] is not None]
    peaks = [row["peak_memory_bytes"] for row in rows if row["peak_memory_bytes"] is not None]
    return {
        "scripts": len(rows),
        "executed": len(ran),
        "cached": len(rows) - len(fresh),
        "cache_verified": sum(CONFIRMED in row["detail"] or DISAGREED in row["detail"] for row in rows),
        "cache_disagreed": sum(DISAGREED in row["detail"] for row in rows),
        **status_summary(scores),
        **{name: _sum(fresh, name) for name in ("queue_s", "wall_s", "cpu_s", "gpu_s")},
        "saved_s": _sum([row for row in rows if row["cached"]], "wall_s"),
        "peak_memory_bytes": max(peaks, default=None),
        "enforcement": " | ".join(
            sorted({f"{row['backend']}: {row['enforcement']}" for row in rows if row["enforcement"]})
        ),
    }


def _sum(rows: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Sum over the rows that have it; null where none has."""
    values = [row[name] for row in rows if row[name] is not None]
    return float(sum(values)) if values else None


def estimate(rows: int, walls: Sequence[float], *, slots: int, wall_limit_s: float) -> dict[str, float | None]:
    """Seconds that `rows` more scripts take: expected from wall times seen before (null: none), and at most."""
    expected = None if not walls else rows * float(np.mean(walls)) / slots
    return {"expected_s": expected, "at_most_s": rows * wall_limit_s / slots}
