"""What a task's public folder holds, measured from the files themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from wmrl_cli.task import Column, DataFile

EXAMPLES, EXAMPLE_CHARACTERS = 3, 80
IMAGES = {".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".dcm"}
LARGE_TABLE, SAMPLE_ROWS = 64 << 20, 20_000  # of a larger CSV, in bytes, the first rows are measured
MANY_FILES = 20  # more files of one kind in one folder are one entry


def take_inventory(public: Path) -> tuple[DataFile, ...]:
    """Every file under `public`, in the order of its path; many files of one kind in one folder are one entry."""
    kinds: dict[tuple[Path, str], list[Path]] = {}
    for path in sorted(path for path in public.rglob("*") if path.is_file()):
        kinds.setdefault((path.parent, path.suffix.lower()), []).append(path)
    entries = []
    for (folder, suffix), files in kinds.items():
        if len(files) <= MANY_FILES:
            entries += [measure(path, path.relative_to(public).as_posix()) for path in files]
            continue
        place = (folder.relative_to(public) / f"*{suffix}").as_posix()
        kind = "image" if suffix in IMAGES else "other"
        name = f"{place} ({len(files)} files, such as {files[0].name})"
        entries.append(DataFile(path=name, kind=kind, bytes=sum(path.stat().st_size for path in files)))
    return tuple(sorted(entries, key=lambda entry: entry.path))


def measure(path: Path, name: str) -> DataFile:
    """One file: its columns if it is a readable CSV, its shape if it is a NumPy array, else its size alone."""
    size, suffix = path.stat().st_size, path.suffix.lower()
    if suffix == ".csv":
        try:
            frame = pd.read_csv(path, nrows=SAMPLE_ROWS if size > LARGE_TABLE else None)
            rows = _count_rows(path) if size > LARGE_TABLE else len(frame)
        except (ValueError, OSError):  # pandas' parser, empty-data and decoding errors are ValueErrors
            return DataFile(path=name, kind="other", bytes=size)
        columns = tuple(_column(str(column), frame[column]) for column in frame.columns)
        return DataFile(path=name, kind="csv", bytes=size, rows=rows, columns=columns)
    if suffix == ".npy":
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError):  # no array, or one of Python objects, which is never unpickled
            return DataFile(path=name, kind="other", bytes=size)
        return DataFile(path=name, kind="npy", bytes=size, shape=tuple(map(int, array.shape)), dtype=str(array.dtype))
    return DataFile(path=name, kind="image" if suffix in IMAGES else "other", bytes=size)


def _count_rows(path: Path) -> int:
    return sum(len(chunk) for chunk in pd.read_csv(path, usecols=[0], chunksize=500_000))


def _column(name: str, values: pd.Series) -> Column:
    present = values.dropna()
    distinct = present.unique()
    return Column(
        name=name,
        dtype=_type_word(values),
        missing=float(values.isna().mean()) if len(values) else 0.0,
        distinct=len(distinct),
        examples=tuple(_short(str(value)) for value in distinct[:EXAMPLES]),
    )


def _type_word(values: pd.Series) -> str:
    if pd.api.types.is_bool_dtype(values):
        return "bool"
    if pd.api.types.is_integer_dtype(values):
        return "int"
    return "float" if pd.api.types.is_float_dtype(values) else "string"


def _short(text: str) -> str:
    return text if len(text) <= EXAMPLE_CHARACTERS else text[: EXAMPLE_CHARACTERS - 1] + "…"
