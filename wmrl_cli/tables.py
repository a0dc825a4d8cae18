"""The Parquet tables that stages exchange: schemas, versions, provenance, atomic writes.

A table is whole or absent. Its schema metadata hold `wmrl.table`, `wmrl.version` and `wmrl.provenance`
(JSON). Readers accept exactly one version.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from wmrl_cli import __version__
from wmrl_cli.errors import StageError, TableError

VERSION = 1

_text, _int, _float, _bool = pa.string(), pa.int64(), pa.float64(), pa.bool_()


def _must(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


def _may(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=True)


@dataclass(frozen=True)
class TableKind:
    """Name and columns of one of our tables."""

    name: str
    schema: pa.Schema


_column = pa.struct(
    [
        _must("name", _text),
        _must("dtype", _text),
        _must("missing", _float),
        _must("distinct", _int),
        _must("examples", pa.list_(_text)),
    ]
)
_file = pa.struct(
    [
        _must("path", _text),
        _must("kind", _text),
        _must("bytes", _int),
        _may("rows", _int),
        _must("columns", pa.list_(_column)),
        _may("shape", pa.list_(_int)),
        _may("dtype", _text),
    ]
)
_contract = pa.struct(
    [
        _must("file", _text),
        _must("id_column", _text),
        _must("target_columns", pa.list_(_text)),
        _must("rows", _int),
        _must("prediction", _text),
    ]
)
_board = pa.struct([_must("name", _text), _must("scores", pa.list_(_float))])
_verdict = pa.struct(
    [
        _must("expert", _text),
        _must("abstained", _bool),
        _may("fails", _float),
        _may("line", _int),
        _may("error_class", _text),
        _may("output", _text),
    ]
)

TASKS = TableKind(
    "tasks",
    pa.schema(
        [
            _must("task_id", _text),
            _must("suite", _text),
            _must("split", _text),
            _must("category", _text),
            _must("metric", _text),
            _must("higher_is_better", _bool),
            _must("description", _text),
            _must("inventory", pa.list_(_file)),
            _must("contract", _contract),
            _must("public_dir", _text),
            _must("private_dir", _text),
            _must("leaderboards", pa.list_(_board)),
            _must("known_issues", pa.list_(_text)),
            _must("digest", _text),
        ]
    ),
)

TRAJECTORIES = TableKind(
    "trajectories",
    pa.schema(
        [
            _must("trajectory_id", _text),
            _must("group_id", _text),
            _must("task_id", _text),
            _must("step", _int),
            _must("turn", _int),  # from 1
            _must("environment", _text),  # who answered: world_model | sandbox
            _must("prompt_ids", pa.list_(pa.int32())),  # added before this reply: turn 1 all, later the observation
            _must("response_ids", pa.list_(pa.int32())),
            _must("sampler_logprobs", pa.list_(pa.float32())),  # nats, one a response token
            _must("finish_reason", _text),  # stop | length
            _must("text", _text),
            _may("script", _text),  # null: no closed code block
            _may("script_digest", _text),
            _may("observation", _text),  # what came back after this turn; null after the last
            _must("policy_digest", _text),
            _must("seed", _int),
            _must("seconds", _float),
        ]
    ),
)

SCORES = TableKind(
    "scores",
    pa.schema(
        [
            _must("trajectory_id", _text),
            _must("turn", _int),
            _must("group_id", _text),
            _must("task_id", _text),
            _must("step", _int),
            _must("scorer", _text),  # world_model | sandbox
            _must("status", _text),
            _may("reward", _float),  # in [0, 1]; null: lost
            _may("q", _float),  # leaderboard position in [0, 1]
            _may("raw_metric", _float),
            _may("error_class", _text),
            _may("error_line", _int),
            _must("verdicts", pa.list_(_verdict)),
            _must("feedback", _text),
            _may("queue_s", _float),
            _may("wall_s", _float),
            _may("cpu_s", _float),
            _may("gpu_s", _float),
            _may("peak_memory_bytes", _int),
            _must("backend", _text),
            _must("enforcement", _text),
            _must("cached", _bool),
            _must("detail", _text),
        ]
    ),
)

ANCHOR_PAIRS = TableKind(
    "anchor_pairs",
    pa.schema(
        [
            _must("step", _int),
            _must("group_id", _text),
            _must("task_id", _text),
            _must("trajectory_id", _text),
            _must("predicted", _float),  # trajectory reward by the world model, in [0, 1]
            _must("real", _float),  # trajectory reward by the sandbox, in [0, 1]
            _must("calibrated", _float),  # by the map in force before this pair was added
            _must("map_version", _int),  # 0 = identity
            _must("status_predicted", _text),
            _must("status_real", _text),
        ]
    ),
)

EVALUATION = TableKind(
    "evaluation",
    pa.schema(
        [
            _must("policy", _text),  # model name or folder
            _must("policy_digest", _text),
            _must("task_id", _text),
            _must("category", _text),
            _must("split", _text),
            _must("trajectory_id", _text),
            _may("reward", _float),
            _may("q", _float),
            _must("status", _text),
            _may("best_turn", _int),
            _may("raw_metric", _float),
            _may("wall_s", _float),
        ]
    ),
)

METRIC_WORDS = {
    "anchor_share_asked": "share of groups that were to be executed",
    "anchor_share_realised": "share that was",
    "groups": "groups that trained: at least two trajectories with a reward",
    "anchors": "executed groups",
    "pairs": "anchor pairs so far, this step's included",
    "map_version": "version of the map in force; 0 is the identity",
    "map_low": "smallest value of the map",
    "map_high": "largest value of the map",
    "flattened_groups": "share of the groups with different predictions that the map makes all equal",
    "residual_raw": "root mean squared error inside groups before the map, reward units",
    "residual_calibrated": "the same after the map that was in force before the pairs were seen",
    "bias_raw": "mean of predicted minus real reward",
    "bias_calibrated": "mean of calibrated minus real reward",
    "eta2": "the score's error inside groups as a share of the real variance",
    "eta2_cal": "its value when warm-up ended; null before",
    "rho": "variance of a simulated group's gradient relative to an executed one's",
    "weight_executed": "mean weight of executed groups; the mean over all groups is 1",
    "weight_simulated": "mean weight of simulated groups",
    "dead_share_executed": "share of executed groups whose rewards are all equal",
    "dead_share_simulated": "share of simulated groups whose rewards are all equal",
    "lost_world_model": "trajectories that the world model lost",
    "lost_sandbox": "trajectories that the sandbox lost",
    "trajectories": "trajectories of the step",
    "reward_raw": "mean predicted reward",
    "reward_calibrated": "mean calibrated reward",
    "reward_real": "mean real reward of the executed groups",
    "reward_used": "mean of the rewards that trained",
    "loss": "loss of the step",
    "kl": "divergence from the start, nats a token",
    "entropy": "entropy of the policy, nats a token",
    "clip_share": "share of tokens whose ratio was clipped",
    "gradient_norm": "norm before clipping",
    "learning_rate": "learning rate of the step",
    "sampler_logprob_diff_mean": "mean difference of sampler and learner, nats a token",
    "sampler_logprob_diff_max": "largest difference, nats",
    "effective_sample_share": "effective sample size of the sampler's correction, as a share",
    "truncated_share": "share of trajectories cut by the token limit",
    "seconds_generate": "wall-clock seconds the agent generated",
    "seconds_simulate": "wall-clock seconds the world model scored",
    "seconds_execute": "wall-clock seconds the sandbox was at work, beside the rest",
    "seconds_wait": "wall-clock seconds nothing else went on than execution",
    "seconds_train": "wall-clock seconds of the learner",
    "seconds_step": "wall-clock seconds of the whole step",
    "gpu_seconds": "GPU seconds of the executed scripts",
    "scripts_executed": "scripts really executed",
    "scripts_simulated": "scripts simulated",
    "seconds_per_execution": "mean wall-clock seconds of one execution",
    "seconds_if_all_executed": "estimate: executing every script of the step on the same slots",
    "speed_up": "estimate: the step with everything executed and nothing simulated, over the step as it was",
}

METRICS = TableKind("metrics", pa.schema([_must("step", _int), *(_may(name, _float) for name in METRIC_WORDS)]))

KINDS = {kind.name: kind for kind in (TASKS, TRAJECTORIES, SCORES, ANCHOR_PAIRS, METRICS, EVALUATION)}


def rows_to_table(kind: TableKind, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """The rows as a table; a missing, unknown or wrongly null column is a ValueError, never dropped or filled."""
    rows = list(rows)
    names = set(kind.schema.names)
    for row in rows:
        if row.keys() != names:
            wrong = sorted(row.keys() ^ names)
            raise ValueError(f"a row of `{kind.name}` has missing or unknown columns: {wrong}")
    table = pa.Table.from_pylist(rows, schema=kind.schema)
    for field in kind.schema:
        for chunk in table.column(field.name).chunks:
            if place := _forbidden_null(chunk, field, field.name):
                raise ValueError(f"`{place}` of `{kind.name}` may not be null")
    return table


def _forbidden_null(array: pa.Array, field: pa.Field, place: str) -> str | None:
    """Where the first null stands that the field does not allow; list items are never null."""
    if not field.nullable and array.null_count:
        return place
    if pa.types.is_list(field.type):
        item = field.type.value_field.with_nullable(False)
        return _forbidden_null(array.flatten(), item, f"{place}[]")
    if pa.types.is_struct(field.type):
        present = array.drop_null()
        for inner, child in zip(field.type, present.flatten(), strict=True):
            if found := _forbidden_null(child, inner, f"{place}.{inner.name}"):
                return found
    return None


def provenance(stage: str, *, config: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """What a table records about its making: code version, stage, resolved configuration, inputs."""
    return {"wmrl": __version__, "stage": stage, "config": dict(config or {}), **more}


def write_table(kind: TableKind, table: pa.Table, path: Path, *, provenance: Mapping[str, Any]) -> None:
    """Write `table` so that `path` either holds all of it or is untouched."""
    write_tables(kind, [table], path, provenance=provenance)


def write_tables(kind: TableKind, tables: Iterable[pa.Table], path: Path, *, provenance: Mapping[str, Any]) -> None:
    """Write the tables one after the other as one, holding one at a time; `path` holds all of them or is untouched.

    Raises StageError where the disk refuses, ValueError where a table is of another kind.
    """
    stamp = {
        "wmrl.table": kind.name,
        "wmrl.version": str(VERSION),
        "wmrl.provenance": json.dumps(provenance, sort_keys=True, default=str),
    }
    schema = kind.schema.with_metadata(stamp)

    def write(scratch: str) -> None:
        with pq.ParquetWriter(scratch, schema, compression="zstd") as writer:
            for table in tables:
                if not table.schema.equals(kind.schema, check_metadata=False):
                    raise ValueError(f"this is not a `{kind.name}` table: {table.schema}")
                writer.write_table(table.replace_schema_metadata(stamp))

    write_atomically(path, write)


def write_atomically(path: Path, write: Callable[[str], object]) -> None:
    """Call `write(scratch path)` beside `path`, then rename: `path` is whole or untouched. OSError: StageError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".scratch")
        os.close(descriptor)
        try:
            write(scratch)
            os.chmod(scratch, 0o644)
            os.replace(scratch, path)
        finally:
            Path(scratch).unlink(missing_ok=True)
    except OSError as error:
        raise StageError(
            f"could not write `{path}`: {error.strerror or error}",
            "what was written before is untouched: free space or choose another place, then run the same command again",
        ) from error


def read_table(kind: TableKind, path: Path) -> pa.Table:
    """The table in `path`, checked: its kind, version and columns. Raises TableError."""
    check_kind(kind, path)
    try:
        # not `pq.read_table`, which takes a folder named `a=b` above the file for a column
        table = pq.ParquetFile(path).read()
    except (pa.ArrowException, OSError) as error:
        raise TableError(f"`{path}` is damaged: {error}", "make it again with the command that wrote it") from error
    return table


def check_kind(kind: TableKind, path: Path) -> dict[str, Any]:
    """The provenance of the table in `path`, once its kind, version and columns are right. Raises TableError."""
    schema, stamp = read_schema(path), table_stamp(path)
    found, version = stamp.get("wmrl.table"), stamp.get("wmrl.version")
    if found is None:
        raise TableError(f"`{path}` was not written by wmrl", f"a `{kind.name}` table is needed here")
    if found != kind.name:
        raise TableError(f"`{path}` holds a `{found}` table, a `{kind.name}` table is needed here")
    maker: dict[str, Any] = json.loads(stamp.get("wmrl.provenance", "{}"))
    if version != str(VERSION):
        writer = maker.get("wmrl", "its version is not recorded")
        raise TableError(
            f"`{path}` has table version `{version}`, this wmrl reads version {VERSION}",
            f"write it again with this wmrl ({__version__}), or use the one that wrote it ({writer})",
        )
    if not schema.equals(kind.schema, check_metadata=False):
        missing = [name for name in kind.schema.names if name not in schema.names]
        extra = [name for name in schema.names if name not in kind.schema.names]
        wrong = f"missing {missing}, unknown {extra}" if missing or extra else "their types or order differ"
        raise TableError(f"`{path}` does not have the columns of a `{kind.name}` table: {wrong}")
    return maker


def table_stamp(path: Path) -> dict[str, str]:
    """What a Parquet file says of itself under `wmrl.`; empty where we did not write it. Raises TableError."""
    metadata = read_schema(path).metadata or {}
    return {key.decode(): value.decode() for key, value in metadata.items() if key.startswith(b"wmrl.")}


def read_schema(path: Path) -> pa.Schema:
    """The schema of a Parquet file, with its metadata. Raises TableError where it is missing or unreadable."""
    if not path.exists():
        raise TableError(f"`{path}` does not exist")
    if path.is_dir():
        raise TableError(f"`{path}` is a folder, a Parquet file is needed here")
    try:
        return pq.read_schema(path)
    except (pa.ArrowException, OSError) as error:
        raise TableError(f"`{path}` is not a Parquet file: {error}") from error
