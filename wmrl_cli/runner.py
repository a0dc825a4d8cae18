"""Map a stage over a table in parts, so that an interrupted run goes on where it was.

Parts lie beside the target in `.{target}.{key}`. The key is a digest of all that decides their content (stage,
configuration, code, input, rows a part), so that parts of another configuration are never taken for ours.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from wmrl_cli import __version__, tables
from wmrl_cli.errors import ConfigError, StageError, TableError
from wmrl_cli.seeds import digest
from wmrl_cli.tables import TableKind

DEFAULT_BATCH_ROWS = 64
Stage = Callable[[pa.Table], "pa.Table | tuple[pa.Table, ...]"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A run that is about to happen: what goes in, what comes out, and what of it is done."""

    stage: str
    source: Path | pa.Table
    targets: Mapping[Path, TableKind]  # in the order in which the stage returns its tables
    key: str
    rows: int  # of the source
    batch_rows: int
    provenance: Mapping[str, Any]
    finished: bool  # every target holds what this plan would write

    @property
    def parts(self) -> int:
        return -(-self.rows // self.batch_rows)

    @property
    def folder(self) -> Path:
        first = next(iter(self.targets))
        return first.with_name(f".{first.name}.{self.key}")

    def part(self, index: int, kind: TableKind) -> Path:
        return self.folder / f"{index:06d}.{kind.name}.parquet"

    def done(self, index: int) -> bool:
        """Whether part `index` is on disk, whole (a part is written in one rename)."""
        return all(self.part(index, kind).exists() for kind in self.targets.values())

    @property
    def rows_done(self) -> int:
        """Rows whose parts an earlier run has written."""
        return sum(self._rows_in(index) for index in range(self.parts) if self.done(index))

    def _rows_in(self, index: int) -> int:
        return min(self.batch_rows, self.rows - index * self.batch_rows)


def plan(
    source: Path | pa.Table,
    targets: Mapping[Path, TableKind],
    *,
    stage: str,
    config: Mapping[str, Any],
    reads: TableKind | None = None,
    batch_rows: int = DEFAULT_BATCH_ROWS,
    force: bool = False,
) -> Plan:
    """The run of `stage` from `source` to `targets`; opens nothing expensive.

    Parameters: `reads` is the kind that `source` must be (a path is then checked); `config` holds all that decides
    the output, seeds and model digests included; `force` replaces targets that another configuration wrote.
    Raises TableError for a bad source, ConfigError where a target stands that this run did not write.
    """
    if batch_rows < 1:
        raise ConfigError(f"a part needs at least one row: got `{batch_rows}`")
    if isinstance(source, Path):
        tables.check_kind(reads, source) if reads else tables.read_schema(source)
        rows, content = pq.ParquetFile(source).metadata.num_rows, file_digest(source)
    else:
        rows, content = source.num_rows, table_digest(source)
    kinds = [kind.name for kind in targets.values()]
    settings = json.loads(json.dumps(config, default=str, sort_keys=True))
    key = digest(stage, settings, tables.VERSION, __version__, content, batch_rows, kinds, length=12)
    maker = tables.provenance(stage, config=settings, key=key, input=str(source) if isinstance(source, Path) else None)
    states = [_state(target, kind, key) for target, kind in targets.items()]
    if "foreign" in states and not force:
        foreign = list(targets)[states.index("foreign")]
        raise ConfigError(
            f"`{foreign}` was written by another configuration, input or version",
            "`--force` replaces it; another `-o` keeps both",
        )
    return Plan(
        stage=stage,
        source=source,
        targets=dict(targets),
        key=key,
        rows=rows,
        batch_rows=batch_rows,
        provenance={**maker, "input_digest": content},
        finished=all(state == "ours" for state in states),
    )


def run(work: Plan, stage: Stage) -> Iterator[int]:
    """Do what is missing of `work`, yielding the rows done so far; the targets stand when it is exhausted.

    Whatever stops it (Ctrl-C, a full disk, a kill) leaves the finished parts; the same plan goes on from them.
    Raises StageError where another process runs on one of the targets.
    """
    if work.finished:
        yield work.rows
        return
    with locked(*work.targets):
        try:
            work.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StageError(f"could not make `{work.folder}`: {error.strerror}") from error
        done = work.rows_done
        yield done
        for index, batch in enumerate(_batches(work)):
            if work.done(index):
                continue
            _write_part(work, index, stage(batch))
            done += batch.num_rows
            yield done
        seal(work)


def seal(work: Plan) -> None:
    """Join the parts into the targets and remove them. Raises StageError where a part is missing or not ours."""
    missing = [index for index in range(work.parts) if not work.done(index)]
    if missing:
        raise StageError(
            f"`{work.folder}` lacks part {missing[0]} of {work.parts}", "run the same command again to make it"
        )
    for target, kind in work.targets.items():
        tables.write_tables(kind, _parts(work, kind), target, provenance=work.provenance)
    shutil.rmtree(work.folder, ignore_errors=True)


def _parts(work: Plan, kind: TableKind) -> Iterator[pa.Table]:
    for index in range(work.parts):
        path = work.part(index, kind)
        maker = tables.check_kind(kind, path)
        if (maker.get("key"), maker.get("part")) != (work.key, index):
            raise StageError(f"`{path}` is not part {index} of this run", f"remove `{work.folder}` and run again")
        yield tables.read_table(kind, path)


def _write_part(work: Plan, index: int, result: pa.Table | tuple[pa.Table, ...]) -> None:
    results = result if isinstance(result, tuple) else (result,)
    for (_, kind), table in zip(work.targets.items(), results, strict=True):
        tables.write_table(kind, table, work.part(index, kind), provenance={"key": work.key, "part": index})


def _batches(work: Plan) -> Iterator[pa.Table]:
    if isinstance(work.source, Path):
        try:
            for batch in pq.ParquetFile(work.source).iter_batches(work.batch_rows):
                yield pa.Table.from_batches([batch]).replace_schema_metadata(None)
        except (pa.ArrowException, OSError) as error:
            raise TableError(f"`{work.source}` is damaged: {error}", "make it again") from error
    else:
        for start in range(0, work.rows, work.batch_rows):
            yield work.source.slice(start, work.batch_rows)


def _state(target: Path, kind: TableKind, key: str) -> str:
    """absent | ours | foreign"""
    if not target.exists():
        return "absent"
    try:
        return "ours" if tables.check_kind(kind, target).get("key") == key else "foreign"
    except TableError:
        return "foreign"


def file_digest(path: Path) -> str:
    """Digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def table_digest(table: pa.Table) -> str:
    """Digest of a table's columns and values, however they are chunked."""
    state = hashlib.sha256(repr(table.schema.remove_metadata()).encode())
    for batch in table.to_batches(max_chunksize=1024):
        for row in batch.to_pylist():
            state.update(repr(row).encode())
    return state.hexdigest()[:16]


@contextmanager
def locked(*targets: Path) -> Iterator[None]:
    """Hold each target for this process; the system lets go of them when the process ends, however it ends."""
    with ExitStack() as held:
        for target in sorted(targets):
            held.enter_context(_lock(target))
        yield


@contextmanager
def _lock(target: Path) -> Iterator[None]:
    path = target.with_name(f".{target.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _take(path)
    except BlockingIOError as error:
        raise StageError(
            f"another process is writing `{target}`", "wait for it, stop it, or choose another `-o`"
        ) from error
    except OSError as error:
        raise StageError(f"could not write beside `{target}`: {error.strerror}") from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _take(path: Path) -> int:
    """A descriptor that holds the lock at `path`. Raises BlockingIOError where another process holds it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # its owner removed the file between our open and our lock: take the new one
