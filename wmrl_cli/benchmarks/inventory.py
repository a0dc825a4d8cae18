"""What a task's public folder holds, measured from the files themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from wmrl_cli.task import Column, DataFile

EXAMPLES, EXAMPLE_CHARACTERS = 3, 80
IMAGES = {".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".dcm"}
LARGEST_TABLE = 64 * 2**20  # bytes; a larger CSV is listed without measuring its columns


def take_inventory(public: Path) -> tuple[DataFile, ...]:
    """Every file under `public`, in the order of its path. Folders of images are counted by their files."""
    files = sorted(path for path in public.rglob("*") if path.is_file())
    return tuple(measure(path, path.relative_to(public).as_posix()) for path in files)


def measure(path: Path, name: str) -> DataFile:
    """One file: its columns if it is a readable CSV, its shape if it is a NumPy array, else its size alone."""
    size, suffix = path.stat().st_size, path.suffix.lower()
    if suffix == ".csv" and size <= LARGEST_TABLE:
        try:
            frame = pd.read_csv(path)
        except (ValueError, OSError):  # pandas' parser, empty-data and decoding errors are ValueErrors
            return DataFile(path=name, kind="other", bytes=size)
        columns = tuple(_column(str(column), frame[column]) for column in frame.columns)
        return DataFile(path=name, kind="csv", bytes=size, rows=len(frame), columns=columns)
    if suffix == ".npy":
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        return DataFile(path=name, kind="npy", bytes=size, shape=tuple(map(int, array.shape)), dtype=str(array.dtype))
    return DataFile(path=name, kind="image" if suffix in IMAGES else "other", bytes=size)


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
