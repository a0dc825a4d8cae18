"""A task's files in words, within a budget: what the agent and the world model know of the data."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from wmrl_cli.task import Column, DataFile

EXAMPLE_CHARACTERS = 40
_PIECES = re.compile(r"[A-Za-z]+|\n+|[ \t]+|.", re.DOTALL)
_NUMBERED = re.compile(r"(.*?)(\d+)$")
# From full detail to the bare list of files: (columns a file, examples a column).
_DETAIL = ((64, 3), (32, 3), (24, 2), (12, 1), (6, 0), (0, 0))


def token_estimate(text: str) -> int:
    """A cautious estimate of the tokens of `text` in a vocabulary of 100,000 or more; no tokenizer is needed.

    A word of letters counts one token for every four of them, every digit and every other sign counts one,
    a single blank none, because it joins the next word.
    """
    return sum(_piece_tokens(piece) for piece in _PIECES.findall(text))


def _piece_tokens(piece: str) -> int:
    if piece.isascii() and piece.isalpha():
        return (len(piece) + 3) // 4
    return 0 if piece == " " else 1


def cut_to(text: str, budget: int, *, note: str) -> str:
    """The lines of `text` that fit `budget` tokens from its start, then `note` where some are left out."""
    if token_estimate(text) <= budget:
        return text
    kept: list[str] = []
    left = budget - token_estimate(note) - 1
    for line in text.splitlines():
        cost = token_estimate(line) + 1
        if cost > left:
            kept.append(_cut_line(line, left - 1))
            break
        kept.append(line)
        left -= cost
    return "\n".join([*kept, note]).strip()


def _cut_line(line: str, budget: int) -> str:
    taken, used = [], 0
    for piece in _PIECES.findall(line):
        used += _piece_tokens(piece)
        if used > budget:
            break
        taken.append(piece)
    return "".join(taken).rstrip()


def inventory_text(files: Sequence[DataFile], *, folder: str, budget: int) -> str:
    """The files below `folder` with rows, columns, types, missing values and examples, in at most `budget` tokens.

    Detail shrinks evenly until it fits: fewer examples, then fewer columns of each file, then fewer files.
    """
    for columns, examples in _DETAIL:
        text = "\n".join(_file_lines(files, folder, columns, examples))
        if token_estimate(text) <= budget:
            return text
    return cut_to(text, budget, note="[... more files, see the folder]")


def _file_lines(files: Sequence[DataFile], folder: str, columns: int, examples: int) -> Iterable[str]:
    for file in files:
        yield f"{folder}/{file.path}: {_measures(file)}"
        if columns:
            runs = list(_runs(file.columns))
            yield from (f"  - {_run_words(run, examples)}" for run in runs[:columns])
            if hidden := sum(len(run) for run in runs[columns:]):
                yield f"  - ... and {hidden} more columns"


def _measures(file: DataFile) -> str:
    words = [file.kind]
    if file.rows is not None:
        words.append(f"{file.rows} rows")
    if file.columns:
        words.append(f"{len(file.columns)} columns")
    if file.shape is not None:
        words.append(f"shape {'x'.join(map(str, file.shape))} {file.dtype or ''}".strip())
    return ", ".join([*words, f"{file.bytes} bytes"])


@dataclass(frozen=True)
class _Place:
    stem: str
    dtype: str
    offset: int  # number minus place in the table: constant along a run such as pixel_0, pixel_1, ...


def _runs(columns: Sequence[Column]) -> Iterable[tuple[Column, ...]]:
    """Columns in order; a run of at least four numbered neighbours of one type stands together."""
    for _, group in groupby(enumerate(columns), key=_place):
        run = tuple(column for _, column in group)
        if len(run) >= 4:
            yield run
        else:
            yield from ((column,) for column in run)


def _place(item: tuple[int, Column]) -> _Place:
    index, column = item
    match = _NUMBERED.fullmatch(column.name)
    if match is None:
        return _Place(column.name, column.dtype, index)
    return _Place(match[1], column.dtype, int(match[2]) - index)


def _run_words(run: Sequence[Column], examples: int) -> str:
    first, last = run[0], run[-1]
    if len(run) > 1:
        missing = _missing(max(column.missing for column in run), "up to ")
        return f"{_quoted(first.name)} to {_quoted(last.name)} ({len(run)} columns): {first.dtype}{missing}"
    shown = ", ".join(_example(value, first.dtype) for value in first.examples[:examples])
    words = f"{_quoted(first.name)}: {first.dtype}{_missing(first.missing)}, {first.distinct} distinct"
    return f"{words}, e.g. {shown}" if shown else words


def _missing(share: float, most: str = "") -> str:
    if share <= 0:
        return ""
    return f", {most}{share:.0%} missing" if share >= 0.01 else ", under 1% missing"


def _example(value: str, dtype: str) -> str:
    short = value if len(value) <= EXAMPLE_CHARACTERS else value[:EXAMPLE_CHARACTERS] + "..."
    return _quoted(short) if dtype == "string" else short


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
