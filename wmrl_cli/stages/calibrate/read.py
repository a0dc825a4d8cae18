"""The log in any number of files: our scores or anchor pairs, or the columns of somebody else's."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from wmrl_cli.environment import SANDBOX, WORLD_MODEL
from wmrl_cli.errors import ConfigError, TableError
from wmrl_cli.maths.pair_log import Labels, PairLog, in_order
from wmrl_cli.stages.calibrate.collect import Columns, LogBuilder, assemble
from wmrl_cli.stages.calibrate.files import Source, column_names, missing_column, open_source, read_batches, spooled
from wmrl_cli.tables import ANCHOR_PAIRS, SCORES, TASKS, check_kind, read_schema, read_table

# What the columns of a log are called unless an option says otherwise; ours first.
DEFAULTS = Columns(
    predicted="predicted",
    real="real",
    group="group_id",
    task="task_id",
    category="category",
    step="step",
    status_predicted="status_predicted",
    status_real="status_real",
    seconds="seconds",
    trajectory="trajectory_id",
)
_SCORE_COLUMNS = ["trajectory_id", "turn", "group_id", "task_id", "step", "scorer", "status", "reward", "wall_s"]


def read_log(
    paths: Sequence[Path],
    *,
    asked: dict[str, str | None] | None = None,
    low: float = 0.0,
    high: float = 1.0,
    limit: int | None = None,
    tasks: Path | None = None,
    reward_turn: str = "best",
) -> PairLog:
    """The pairs in `paths` (`-`: standard input), in time order.

    Parameters
    ----------
    asked : column names by role (`Columns`), for logs that are not ours; None: the names of our tables.
    low, high : the scale of the scores.
    limit : reads only so many rows.
    tasks : a table of tasks, for the category of each.
    reward_turn : which turn of a trajectory in a scores table earns its reward, `best` or `last`.

    Raises
    ------
    TableError : a file is missing, empty, damaged, of a wrong version, or holds a bad value.
    ConfigError : scores and pairs are mixed, or the scale is empty.
    """
    if not paths:
        raise ConfigError("no log was given", "name score tables, or one or more files of pairs")
    if not low < high:
        raise ConfigError(f"`--range {low:g} {high:g}` is empty", "give the worst score, then the best")
    with ExitStack() as stack:
        sources = [_open(path, stack) for path in paths]
        kinds = [_kind(source) for source in sources]
        if SCORES.name in kinds and len(set(kinds)) > 1:
            raise ConfigError("score tables and tables of pairs cannot be mixed", "calibrate them one after the other")
        if kinds[0] == SCORES.name:
            log = _from_scores(sources, limit, reward_turn)
        else:
            log = _from_pairs(sources, asked or {}, low, high, limit)
    return log if tasks is None else _with_categories(log, tasks)


def _open(path: Path, stack: ExitStack) -> Source:
    if str(path) != "-":
        return open_source(path)
    return open_source(stack.enter_context(spooled(sys.stdin.buffer)), name="standard input")


def _kind(source: Source) -> str | None:
    """The kind of our own table, checked for its version; None for anybody else's file."""
    if source.format != "parquet":
        return None
    stamp = (read_schema(source.path).metadata or {}).get(b"wmrl.table")
    kind: str | None = None if stamp is None else stamp.decode()
    known = {SCORES.name: SCORES, ANCHOR_PAIRS.name: ANCHOR_PAIRS}
    if kind is not None and kind not in known:
        raise TableError(f"`{source.name}` holds a `{kind}` table", "scores or anchor pairs are needed here")
    if kind is not None:
        check_kind(known[kind], source.path)
    return kind


def _from_pairs(
    sources: Sequence[Source], asked: dict[str, str | None], low: float, high: float, limit: int | None
) -> PairLog:
    columns = _columns(sources, asked)
    builder = LogBuilder(columns, low=low, high=high, limit=limit)
    wanted = list(dict.fromkeys(columns.named().values()))
    for source in sources:
        first_row = 1
        for batch in read_batches(source, wanted):
            builder.add(source, batch, first_row)
            first_row += len(batch[wanted[0]])
            if builder.is_full:
                return builder.log()
    return builder.log()


def _columns(sources: Sequence[Source], asked: dict[str, str | None]) -> Columns:
    """The columns that all sources have; one that was asked for, or a score, must be in each."""
    chosen: Columns = replace(DEFAULTS, **{role: name for role, name in asked.items() if name})
    for source in sources:
        names = column_names(source)
        for field in fields(Columns):
            name = getattr(chosen, field.name)
            if name is None or name in names:
                continue
            if asked.get(field.name) or field.name in ("predicted", "real"):
                raise missing_column(source, name, names, "--" + field.name.replace("_", "-"))
            chosen = replace(chosen, **{field.name: None})  # type: ignore[arg-type]
    return chosen


def _from_scores(sources: Iterable[Source], limit: int | None, reward_turn: str) -> PairLog:
    tables = [pq.ParquetFile(source.path).read(_SCORE_COLUMNS) for source in sources]
    turns = pa.concat_tables(tables).to_pandas()
    if limit is not None:
        turns = turns.head(limit)
    turns["place"] = np.arange(len(turns))
    _refuse_twice(turns)
    by = {scorer: _trajectories(turns[turns["scorer"] == scorer], reward_turn) for scorer in (WORLD_MODEL, SANDBOX)}
    both = by[WORLD_MODEL].add_suffix("_predicted").join(by[SANDBOX].add_suffix("_real"), how="outer")
    if both.empty:
        raise TableError("the score tables are empty")
    for name in ("group_id", "task_id", "step", "place"):
        both[name] = both[f"{name}_predicted"].fillna(both[f"{name}_real"])
    both = both.sort_values("place", kind="stable")
    lost = {
        "lost by the world model": both["status_predicted"] == "lost",
        "lost by the sandbox": (both["status_real"] == "lost") & (both["status_predicted"] != "lost"),
    }
    kept = both[~np.logical_or.reduce(list(lost.values()))]
    labels = {
        "group": _labels(kept["group_id"]),
        "task": _labels(kept["task_id"]),
        "status_predicted": _labels(kept["status_predicted"].fillna("")),
        "status_real": _labels(kept["status_real"].fillna("")),
    }
    numbers = {
        "predicted": kept["reward_predicted"].to_numpy(float),
        "real": kept["reward_real"].to_numpy(float),
        "step": kept["step"].to_numpy(float),
        "seconds": kept["wall_s_real"].to_numpy(float),
    }
    counted = {reason: int(rows.sum()) for reason, rows in lost.items() if rows.any()}
    return assemble(numbers, labels, [str(name) for name in kept.index], counted)


def _refuse_twice(turns: pd.DataFrame) -> None:
    twice = turns.duplicated(["trajectory_id", "turn", "scorer"])
    if twice.any():
        row = turns[twice].iloc[0]
        raise TableError(
            f"turn {row['turn']} of trajectory `{row['trajectory_id']}` is scored twice by `{row['scorer']}`",
            "was a file given twice?",
        )


def _trajectories(turns: pd.DataFrame, reward_turn: str) -> pd.DataFrame:
    """One row a trajectory: the reward and status of its best (or last) turn; a lost turn makes it lost."""
    order = ["trajectory_id", "turn"] if reward_turn == "last" else ["trajectory_id", "reward", "turn"]
    ascending = [True, False] if reward_turn == "last" else [True, False, True]
    by_id = turns.groupby("trajectory_id", sort=False)
    chosen = turns.sort_values(order, ascending=ascending, kind="stable").drop_duplicates("trajectory_id")
    chosen = chosen.set_index("trajectory_id")
    lost = by_id["reward"].count() < by_id.size()
    chosen["reward"] = chosen["reward"].mask(lost)
    chosen["status"] = chosen["status"].mask(lost, "lost")
    chosen["wall_s"] = by_id["wall_s"].sum(min_count=1)
    chosen["place"] = by_id["place"].min()
    return chosen[["group_id", "task_id", "step", "status", "reward", "wall_s", "place"]]


def _labels(column: pd.Series) -> Labels:
    return in_order(column.to_numpy(str)) if len(column) else Labels([], np.empty(0, dtype=np.int64))


def _with_categories(log: PairLog, tasks: Path) -> PairLog:
    table = read_table(TASKS, tasks)
    category = dict(zip(table.column("task_id").to_pylist(), table.column("category").to_pylist(), strict=True))
    if log.task is None:
        raise ConfigError("`--tasks` needs the log's task of each row", "`--task NAME` names its column")
    unknown = [name for name in log.task.names if name not in category]
    if unknown:
        raise TableError(f"`{tasks}` does not have the task `{unknown[0]}` of the log")
    names = sorted(set(category.values()))
    place = np.array([names.index(category[name]) for name in log.task.names], dtype=np.int64)
    return replace(log, category=Labels(names, place[log.task.code]))
