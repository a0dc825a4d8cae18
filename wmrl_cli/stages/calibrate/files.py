"""Rows of a log in Parquet, CSV or JSON Lines, in batches of bounded size, with the place of every bad value."""

from __future__ import annotations

import csv
import difflib
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from wmrl_cli.errors import TableError

BATCH_ROWS = 65_536
NULLS = ["", "null", "NULL", "None", "NA", "N/A"]  # what an empty cell of a CSV file may say
FORMATS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "tsv"} | dict.fromkeys(
    (".jsonl", ".ndjson", ".json"), "jsonl"
)


@dataclass(frozen=True)
class Source:
    """A file to read; `name` is what messages call it."""

    path: Path
    name: str
    format: str  # parquet | csv | tsv | jsonl


@contextmanager
def spooled(stream: BinaryIO) -> Iterator[Path]:
    """Standard input as a file, so that any format can be read from it in bounded memory."""
    with tempfile.NamedTemporaryFile(prefix="wmrl-stdin-") as file:
        shutil.copyfileobj(stream, file)
        file.flush()
        yield Path(file.name)


def open_source(path: Path, *, name: str | None = None) -> Source:
    """The file with its format, by its name or else its first bytes. Raises TableError where it cannot be read."""
    shown = name or str(path)
    if path.is_dir():
        ours = path / "anchor_pairs.parquet"
        hint = f"its pairs are in `{ours}`" if ours.exists() else "give a Parquet, CSV or JSON Lines file"
        raise TableError(f"`{shown}` is a folder", hint)
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError as error:
        raise TableError(f"could not read `{shown}`: {error.strerror}") from error
    if not head.strip():
        raise TableError(f"`{shown}` is empty", "a log needs a header or a first line, and at least one pair")
    return Source(path, shown, _format(path, head))


def _format(path: Path, head: bytes) -> str:
    if head.startswith(b"PAR1"):
        return "parquet"
    named = FORMATS.get(path.suffix.lower())
    if named not in (None, "parquet"):
        return str(named)
    return "jsonl" if head.lstrip().startswith(b"{") else "parquet" if named else "csv"


def column_names(source: Source) -> list[str]:
    """The names of the source's columns; of JSON Lines, the keys of its first line."""
    try:
        match source.format:
            case "parquet":
                return list(pq.read_schema(source.path).names)
            case "jsonl":
                with source.path.open(encoding="utf-8") as file:
                    return list(_object(source, 1, next(line for line in file if line.strip())))
            case _:
                with source.path.open(newline="", encoding="utf-8-sig") as file:
                    return next(csv.reader(file, delimiter=_delimiter(source)))
    except UnicodeDecodeError as error:
        raise TableError(f"`{source.name}` is not UTF-8 text: {error.reason} at byte {error.start}") from error
    except (pa.ArrowInvalid, OSError) as error:
        raise TableError(f"`{source.name}` is not a Parquet file: {error}") from error


def missing_column(source: Source, name: str, names: Sequence[str], option: str) -> TableError:
    """The error for a column that is not there, with the nearest that is."""
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    guess = f"did you mean `{near[0]}`? " if near else ""
    hint = f"{guess}`{option} NAME` names it; there are `{'`, `'.join(names)}`"
    return TableError(f"`{source.name}` has no column `{name}`", hint)


def read_batches(source: Source, columns: Sequence[str]) -> Iterator[dict[str, pa.Array]]:
    """The columns by name, at most some `BATCH_ROWS` rows at a time. Raises TableError where the file is damaged."""
    try:
        match source.format:
            case "parquet":
                yield from _parquet(source, columns)
            case "jsonl":
                yield from _json_lines(source, columns)
            case _:
                yield from _csv(source, columns)
    except (pa.ArrowException, OSError) as error:
        raise TableError(f"`{source.name}` is damaged: {error}") from error


def _parquet(source: Source, columns: Sequence[str]) -> Iterator[dict[str, pa.Array]]:
    for batch in pq.ParquetFile(source.path).iter_batches(BATCH_ROWS, columns=list(columns)):
        yield {name: batch.column(name) for name in columns}


def _csv(source: Source, columns: Sequence[str]) -> Iterator[dict[str, pa.Array]]:
    # Text first: a number that does not parse is then named with its row, and nothing is guessed from the first block.
    convert = pa_csv.ConvertOptions(
        column_types=dict.fromkeys(columns, pa.string()),
        include_columns=list(columns),
        null_values=NULLS,
        strings_can_be_null=True,
    )
    options = {
        "read_options": pa_csv.ReadOptions(block_size=4 << 20, use_threads=False),
        "parse_options": pa_csv.ParseOptions(delimiter=_delimiter(source), newlines_in_values=True),
    }
    with pa_csv.open_csv(source.path, convert_options=convert, **options) as reader:
        for batch in reader:
            yield {name: batch.column(name) for name in columns}


def _json_lines(source: Source, columns: Sequence[str]) -> Iterator[dict[str, pa.Array]]:
    rows: list[dict[str, Any]] = []
    try:
        with source.path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    rows.append(_object(source, number, line))
                if len(rows) == BATCH_ROWS:
                    yield _arrays(rows, columns)
                    rows = []
    except UnicodeDecodeError as error:
        raise TableError(f"`{source.name}` is not UTF-8 text: {error.reason} at byte {error.start}") from error
    if rows:
        yield _arrays(rows, columns)


def _object(source: Source, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise TableError(f"line {number} of `{source.name}` is not JSON: {error.msg}") from error
    if not isinstance(row, dict):
        raise TableError(f"line {number} of `{source.name}` is not a JSON object: `{line.strip()[:60]}`")
    return row


def _arrays(rows: list[dict[str, Any]], columns: Sequence[str]) -> dict[str, pa.Array]:
    found = {}
    for name in columns:
        values = [row.get(name) for row in rows]
        if all(value is None or isinstance(value, int | float) for value in values):
            found[name] = pa.array([None if value is None else float(value) for value in values], pa.float64())
        else:
            found[name] = pa.array([None if value is None else str(value) for value in values], pa.string())
    return found


def _delimiter(source: Source) -> str:
    return "\t" if source.format == "tsv" else ","


def to_floats(source: Source, name: str, values: pa.Array, first_row: int) -> pa.Array:
    """The column as float64 with nulls; text that is no number is a TableError naming the row (from 1) and value."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        try:
            return pc.cast(pc.utf8_trim_whitespace(values), pa.float64())
        except pa.ArrowInvalid:
            for offset, value in enumerate(values.to_pylist()):
                if value is not None and not _is_number(value):
                    raise TableError(
                        f"row {first_row + offset} of `{source.name}` has `{name}` = `{value}`, which is not a number",
                        "leave a lost score empty (null); it is then left out and counted",
                    ) from None
            raise
    if pa.types.is_boolean(values.type):
        return pc.cast(values, pa.int8()).cast(pa.float64())
    if pa.types.is_null(values.type) or pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        return values.cast(pa.float64(), safe=False)
    if pa.types.is_decimal(values.type):
        return values.cast(pa.float64())
    raise TableError(f"column `{name}` of `{source.name}` holds `{values.type}`, numbers are needed there")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def to_texts(values: pa.Array) -> pa.Array:
    """The column as text; whole numbers without a decimal point, so that 3 in JSON and in Parquet are one name."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_floating(values.type) and pc.all(pc.equal(values, pc.round(values))).as_py() in (True, None):
        values = values.cast(pa.int64())
    return values.cast(pa.string())
