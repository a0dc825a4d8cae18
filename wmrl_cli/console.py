"""What a person sees: results on stdout; progress, notes and warnings on stderr."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console, RenderableType
from rich.table import Table

from wmrl_cli.launch import this_rank

LINE_EVERY_S = 5.0  # between two progress lines where stderr is no terminal
UNBROKEN = 10_000  # columns


@dataclass
class Settings:
    """What this process says and keeps to itself; `--quiet` sets `quiet` on every call."""

    quiet: bool = False
    speaks: bool = field(default_factory=lambda: this_rank().is_first)  # the other ranks of a job tell only errors


settings = Settings()
stderr = Console(stderr=True, highlight=False, emoji=False)


class Advance(Protocol):
    """Tell how far the work is: `done` units in all, and a few words on what goes on."""

    def __call__(self, done: int, words: str = "") -> None: ...


def note(text: str) -> None:
    """One line on stderr for a person; nothing with `--quiet`."""
    if settings.speaks and not settings.quiet:
        stderr.print(text, markup=False, soft_wrap=True)


def warn(text: str) -> None:
    """One line on stderr that a person should read, also with `--quiet`."""
    stderr.print(f"[yellow]warning:[/yellow] {escaped(text)}", soft_wrap=True)


def error(message: str, hint: str | None = None) -> None:
    """The failure as a sentence, then what to do next, on stderr."""
    stderr.print(f"[bold red]error:[/bold red] {escaped(message)}", soft_wrap=True)
    if hint:
        stderr.print(f"\n[bold cyan]hint:[/bold cyan] {escaped(hint)}", soft_wrap=True)


def emit(result: Mapping[str, Any], *, as_json: bool, render: Callable[[], RenderableType] | None = None) -> None:
    """The result on stdout: one JSON object, or what `render` returns, by default a line for each key."""
    if not settings.speaks:
        return
    if as_json:
        sys.stdout.write(json.dumps(plain(result), allow_nan=False) + "\n")
        sys.stdout.flush()
        return
    width = None if sys.stdout.isatty() else UNBROKEN  # a pipe or a file gets whole lines
    Console(highlight=False, emoji=False, width=width).print(render() if render else key_values(result))


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None) -> Table:
    """A table for people: numbers to the right, null as a dash, no colour needed to read it."""
    grid = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for index, name in enumerate(columns):
        numeric = any(isinstance(row[index], int | float) for row in rows)
        grid.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(escaped(number(cell)) for cell in row))
    return grid


def key_values(result: Mapping[str, Any]) -> Table:
    """One line for each key of a flat result."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    for name, value in result.items():
        grid.add_row(name.replace("_", " "), escaped(number(value)))
    return grid


def number(value: object) -> str:
    """A cell's text: three significant digits for a fraction, a dash for what is not known."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            if not math.isfinite(value):
                return "-"
            return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3g}"
        case _:
            return str(value)


def duration(seconds: float) -> str:
    """Seconds as words that a person reads at a glance: `8 s`, `3 min 20 s`, `2 h 5 min`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


@contextmanager
def progress(label: str, total: int | None = None, unit: str = "rows") -> Iterator[Advance]:
    """Show how far `label` is: a bar with the time left on a terminal, else a line every few seconds.

    `total` counts units; null: not known. With `--quiet` nothing is shown.
    """
    if settings.quiet or not settings.speaks:
        yield lambda done, words="": None
    elif stderr.is_terminal:
        with _bar(label, total, unit) as advance:
            yield advance
    else:
        yield _lines(label, total, unit)


@contextmanager
def _bar(label: str, total: int | None, unit: str) -> Iterator[Advance]:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[words]}", style="dim"),
    )
    with Progress(*columns, console=stderr, transient=False) as bar:
        task = bar.add_task(escaped(label), total=total, words="")
        yield lambda done, words="": bar.update(task, completed=done, words=escaped(words))


def _lines(label: str, total: int | None, unit: str) -> Advance:
    started = last = time.monotonic()
    first: int | None = None  # work that an earlier run had done does not count towards the speed

    def advance(done: int, words: str = "") -> None:
        nonlocal last, first
        now = time.monotonic()
        first = done if first is None else first
        if now - last < LINE_EVERY_S and done != total:
            return
        last = now
        rate = (done - first) / (now - started) if now > started else 0.0
        parts = [f"{label}: {done}{f'/{total}' if total is not None else ''} {unit}", f"{duration(now - started)}"]
        if rate > 0 and total is not None and done < total:
            parts.append(f"about {duration((total - done) / rate)} left")
        note(", ".join(parts + ([words] if words else [])))

    return advance


def plain(value: Any) -> Any:
    """The value as JSON can hold it: paths as text, arrays as lists, what is not finite as null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # numpy's scalars and arrays
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def escaped(text: str) -> str:
    """The text with rich's markup switched off."""
    from rich.markup import escape

    return escape(text)
