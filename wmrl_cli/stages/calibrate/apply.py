"""A map applied to a table of predicted scores: the same table with a column `calibrated`, in batches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from wmrl_cli.environment import WORLD_MODEL
from wmrl_cli.errors import ConfigError, TableError
from wmrl_cli.stages.calibrate.files import (
    FORMATS,
    Source,
    column_names,
    missing_column,
    open_source,
    read_batches,
    to_floats,
    to_texts,
)
from wmrl_cli.stages.calibrate.files_out import SavedMap
from wmrl_cli.tables import SCORES, write_atomically

CALIBRATED = "calibrated"


def apply_map(saved: SavedMap, table: Path, output: Path, *, predicted: str | None, label: str | None) -> int:
    """Write `table` with the map's scores as a column `calibrated` to `output`; returns the rows.

    Parameters
    ----------
    predicted : column of the scores; None: `reward` of our scores (the world model's rows only), else `predicted`.
    label : column of the task or category, for a map that has some of its own; None: `task_id` or `category`.
    """
    source = open_source(table)
    form = FORMATS.get(output.suffix.lower())
    if form is None:
        raise ConfigError(f"`{output}` has no known ending", "end it with .parquet, .csv or .jsonl")
    names = column_names(source)
    is_scores = source.format == "parquet" and _stamp(source.path) == SCORES.name
    score = predicted or ("reward" if is_scores else "predicted")
    wanted = {"--predicted": score}
    if saved.by != "none" and saved.own:
        wanted["--" + saved.by] = label or {"task": "task_id", "category": "category"}[saved.by]
    for option, name in wanted.items():
        if name not in names:
            raise missing_column(source, name, names, option)
    by = next((name for option, name in wanted.items() if option != "--predicted"), None)
    batches = _calibrated(saved, source, names, score, by, only_world_model=is_scores)
    rows = 0

    def write(scratch: str) -> None:
        nonlocal rows
        rows = _write(form, batches, scratch)

    write_atomically(output, write)
    return rows


def _stamp(path: Path) -> str | None:
    value = (pq.read_schema(path).metadata or {}).get(b"wmrl.table")
    return None if value is None else value.decode()


def _calibrated(
    saved: SavedMap, source: Source, names: list[str], score: str, by: str | None, *, only_world_model: bool
) -> Iterator[pa.Table]:
    first_row = 1
    for batch in read_batches(source, names):
        values = to_floats(source, score, batch[score], first_row)
        known = values.is_valid().to_numpy(zero_copy_only=False)
        if only_world_model:
            known &= pc.equal(batch["scorer"], WORLD_MODEL).to_numpy(zero_copy_only=False)
        numbers = np.where(known, values.to_numpy(zero_copy_only=False), np.nan)
        outside = known & ~((numbers >= saved.low) & (numbers <= saved.high))
        if outside.any():
            at = int(np.argmax(outside))
            place = f"row {first_row + at} of `{source.name}` has `{score}` = `{numbers[at]:g}`"
            raise TableError(f"{place}, which is outside the map's [{saved.low:g}, {saved.high:g}]")
        labels = None if by is None else to_texts(batch[by]).fill_null("").to_pylist()
        calibrated = pa.array(saved(numbers, labels), mask=~known)
        columns = {name: values for name, values in batch.items() if name != CALIBRATED}
        yield pa.table({**columns, CALIBRATED: calibrated})
        first_row += len(values)


def _write(form: str, tables: Iterator[pa.Table], scratch: str) -> int:
    rows = 0
    if form == "jsonl":
        with Path(scratch).open("w", encoding="utf-8") as file:
            for table in tables:
                file.writelines(json.dumps(row, allow_nan=False, default=str) + "\n" for row in table.to_pylist())
                rows += table.num_rows
        return rows
    writer: pq.ParquetWriter | pa_csv.CSVWriter | None = None
    try:
        for table in tables:
            if writer is None:
                delimiter = pa_csv.WriteOptions(delimiter="\t" if form == "tsv" else ",")
                writer = (
                    pq.ParquetWriter(scratch, table.schema, compression="zstd")
                    if form == "parquet"
                    else pa_csv.CSVWriter(scratch, table.schema, write_options=delimiter)
                )
            writer.write_table(table.cast(writer.schema) if form == "parquet" else table)
            rows += table.num_rows
    finally:
        if writer is not None:
            writer.close()
    return rows
