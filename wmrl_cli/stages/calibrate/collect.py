"""Columns of any origin become one `PairLog`: checked, rescaled, in time order, with what was left out counted."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wmrl_cli.errors import TableError
from wmrl_cli.maths.calibration import Floats
from wmrl_cli.maths.intervals import Ints
from wmrl_cli.maths.pair_log import Labels, PairLog, first_step, in_order
from wmrl_cli.stages.calibrate.files import Source, to_floats, to_texts

MOST_ROWS = 20_000_000  # held as numbers; a bound on memory, about 2 GB
LOST = "lost"
LABELS = ("group", "task", "category", "status_predicted", "status_real")


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which column holds what; None: the log does not say."""

    predicted: str = "predicted"
    real: str = "real"
    group: str | None = None
    task: str | None = None
    category: str | None = None
    step: str | None = None
    status_predicted: str | None = None
    status_real: str | None = None
    seconds: str | None = None
    trajectory: str | None = None

    def named(self) -> dict[str, str]:
        """Role to column, of those that the log has."""
        pairs = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {role: name for role, name in pairs if name is not None}


class Encoder:
    """Names to numbers, batch after batch; null is the name ``."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}
        self.parts: list[Ints] = []

    def add(self, values: pa.Array) -> None:
        encoded = to_texts(values).fill_null("").dictionary_encode()
        names = encoded.dictionary.to_pylist()
        place = np.array([self.codes.setdefault(name, len(self.codes)) for name in names], dtype=np.int64)
        self.parts.append(place[encoded.indices.to_numpy(zero_copy_only=False)])

    def labels(self) -> Labels:
        return Labels(list(self.codes), np.concatenate(self.parts))


class LogBuilder:
    """Takes batches of columns and gives the log. Scores are mapped from [low, high] to [0, 1]."""

    def __init__(self, columns: Columns, *, low: float = 0.0, high: float = 1.0, limit: int | None = None) -> None:
        self.columns, self.low, self.high, self.limit = columns, low, high, limit
        self.rows = 0
        self.numbers: dict[str, list[Floats]] = {"predicted": [], "real": [], "step": [], "seconds": []}
        self.encoders = {role: Encoder() for role in LABELS if role in columns.named()}
        self.trajectories: list[pa.Array] = []

    @property
    def is_full(self) -> bool:
        return self.limit is not None and self.rows >= self.limit

    def add(self, source: Source, batch: dict[str, pa.Array], first_row: int) -> None:
        """Take in a batch whose first row is the source's row `first_row` (from 1)."""
        size = len(next(iter(batch.values())))
        if self.limit is not None and self.rows + size > self.limit:
            size = self.limit - self.rows
            batch = {name: values[:size] for name, values in batch.items()}
        self.rows += size
        if self.rows > MOST_ROWS:
            raise TableError(
                f"`{source.name}` and what came before hold more than {MOST_ROWS:,} rows",
                "the first rows are enough for a map: `--limit N` reads only N",
            )
        for role, name in self.columns.named().items():
            if role in self.encoders:
                self._no_null_group(source, role, name, batch[name], first_row)
                self.encoders[role].add(batch[name])
            elif role == "trajectory":
                self.trajectories.append(to_texts(batch[name]))
            else:
                values = to_floats(source, name, batch[name], first_row)
                checked = self._checked(source, role, name, values, first_row)
                self.numbers[role].append(checked)

    def _no_null_group(self, source: Source, role: str, name: str, values: pa.Array, first_row: int) -> None:
        if role == "group" and values.null_count:
            row = first_row + int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
            raise TableError(f"row {row} of `{source.name}` has no `{name}`", "a group's rows need its name")

    def _checked(self, source: Source, role: str, name: str, values: pa.Array, first_row: int) -> Floats:
        numbers: Floats = values.to_numpy(zero_copy_only=False).astype(float)
        known = values.is_valid().to_numpy(zero_copy_only=False)

        def refuse(wrong: npt.NDArray[np.bool_], why: str, hint: str) -> NoReturn:
            at = int(np.argmax(wrong))
            raise TableError(f"row {first_row + at} of `{source.name}` has `{name}` = `{numbers[at]:g}`, {why}", hint)

        if (wrong := known & ~np.isfinite(numbers)).any():
            refuse(wrong, "which is no score", "leave a lost score empty (null); it is then left out and counted")
        if role == "step" and (wrong := ~known | (numbers != np.floor(numbers))).any():
            refuse(wrong, "which is no whole number", "steps are whole numbers; leave `--step` away to use row order")
        if role in ("predicted", "real"):
            if (wrong := known & ~((numbers >= self.low) & (numbers <= self.high))).any():
                why = f"which is outside [{self.low:g}, {self.high:g}]"
                refuse(wrong, why, "`--range LOW HIGH` declares another scale")
            numbers = (numbers - self.low) / (self.high - self.low)
        return numbers

    def log(self) -> PairLog:
        """The log of all batches. Raises TableError where no pair is left."""
        numbers = {role: np.concatenate(parts) for role, parts in self.numbers.items() if parts}
        labels = {role: encoder.labels() for role, encoder in self.encoders.items() if encoder.parts}
        trajectory = pa.chunked_array(self.trajectories) if self.trajectories else None
        if trajectory is not None and len(trajectory) != pc.count_distinct(trajectory).as_py():
            twice = next(row["values"] for row in trajectory.value_counts().to_pylist() if row["counts"] > 1)
            raise TableError(f"trajectory `{twice}` has two pairs", "was a file given twice?")
        return assemble(numbers, labels, None if trajectory is None else trajectory.to_pylist())


def assemble(
    numbers: dict[str, Floats],
    labels: dict[str, Labels],
    trajectory: list[str] | None,
    lost: dict[str, int] | None = None,
) -> PairLog:
    """The log of aligned columns; NaN in `predicted` and `real` is a score that is not there.

    A row without a real score is a simulated trajectory if its whole group has none, and lost otherwise.
    """
    predicted, real = numbers.get("predicted", np.empty(0)), numbers.get("real", np.empty(0))
    size = predicted.size
    group = labels.get("group", Labels(range(size), np.arange(size)))  # type: ignore[arg-type]
    has_real = np.bincount(group.code, np.isfinite(real), len(group.names)) > 0
    simulated = np.isfinite(predicted) & ~has_real[group.code]
    if "status_real" in labels:
        simulated &= np.asarray(labels["status_real"].names)[labels["status_real"].code] != LOST
    pair = np.isfinite(predicted) & np.isfinite(real)
    reasons = {
        "no predicted score": ~np.isfinite(predicted) & np.isfinite(real),
        "no real score, in an executed group": np.isfinite(predicted) & ~np.isfinite(real) & ~simulated,
        "neither score": ~np.isfinite(predicted) & ~np.isfinite(real),
    }
    dropped = dict(lost or {}) | {reason: int(rows.sum()) for reason, rows in reasons.items() if rows.any()}
    if not pair.any():
        counted = ", ".join(f"{count} with {reason}" for reason, count in dropped.items())
        raise TableError(
            f"no row has both a predicted and a real score ({size} rows{': ' + counted if counted else ''})",
            "pairs come from groups that were scored by both: `wmrl execute` scores trajectories for real",
        )
    rows = _in_time(np.flatnonzero(pair), numbers.get("step"))
    pair_group = in_order(group.code[rows])
    names = [str(group.names[int(name)]) for name in pair_group.names]
    steps = numbers["step"][rows].astype(np.int64) if _has_steps(numbers, rows) else first_step(pair_group.code)
    columns = {role: Labels(column.names, column.code[rows]) for role, column in labels.items() if role != "group"}
    return PairLog(
        predicted=predicted[rows],
        real=real[rows],
        group=Labels(names, pair_group.code),
        step=steps,
        has_groups="group" in labels,
        trajectory=None if trajectory is None else [trajectory[row] for row in rows],
        seconds=numbers["seconds"][rows] if "seconds" in numbers else None,
        simulated=predicted[simulated],
        simulated_group=in_order(group.code[simulated]).code,
        dropped=dropped,
        **columns,
    )


def _has_steps(numbers: dict[str, Floats], rows: Ints) -> bool:
    """A log whose steps are all one number has none: its row order is its time order."""
    return "step" in numbers and np.unique(numbers["step"][rows]).size > 1


def _in_time(rows: Ints, step: Floats | None) -> Ints:
    return rows if step is None else rows[np.argsort(step[rows], kind="stable")]
