"""A task as every room sees it: what the agent is told, where its data lie, how it is graded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

TRAIN, HELD_OUT = "train", "held_out"


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a public table, measured from the file."""

    name: str
    dtype: str  # int | float | string | bool
    missing: float  # share of empty cells, in [0, 1]
    distinct: int
    examples: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """One public file; `rows` and `columns` are null and empty where it is not a table, `shape` where it is no array."""

    path: str  # relative to the public folder
    kind: str  # csv | npy | image | other
    bytes: int
    rows: int | None = None
    columns: tuple[Column, ...] = ()
    shape: tuple[int, ...] | None = None
    dtype: str | None = None


@dataclass(frozen=True, kw_only=True)
class Contract:
    """What a submission must look like."""

    file: str  # submission.csv
    id_column: str
    target_columns: tuple[str, ...]
    rows: int
    prediction: str  # label | probability | number: what the target columns hold


@dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """Scores that others reached, in the metric's unit, any order."""

    name: str
    scores: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Task:
    """One research question. `public_dir` is all that a sandbox ever sees; answers lie in `private_dir`."""

    task_id: str
    suite: str
    split: str  # train | held_out
    category: str  # tabular | text | image
    metric: str
    higher_is_better: bool
    description: str
    inventory: tuple[DataFile, ...]
    contract: Contract
    public_dir: str  # relative to the folder that holds tasks.parquet
    private_dir: str
    leaderboards: tuple[Leaderboard, ...]
    known_issues: tuple[str, ...] = ()
    digest: str = ""  # of the public and private files' contents
    root: Path = Path()  # folder that holds tasks.parquet; set by the reader, not stored

    @property
    def public_path(self) -> Path:
        return self.root / self.public_dir

    @property
    def private_path(self) -> Path:
        return self.root / self.private_dir

    @property
    def boards(self) -> tuple[tuple[float, ...], ...]:
        return tuple(board.scores for board in self.leaderboards)

    def to_row(self) -> dict[str, Any]:
        """The task as a row of the `tasks` table."""
        row = asdict(self)
        del row["root"]
        return row

    @classmethod
    def from_row(cls, row: Mapping[str, Any], root: Path) -> Task:
        """The task in a row of the `tasks` table that lies in `root`."""
        files = tuple(
            DataFile(
                **{
                    **file,
                    "columns": tuple(Column(**{**c, "examples": tuple(c["examples"])}) for c in file["columns"]),
                    "shape": None if file["shape"] is None else tuple(file["shape"]),
                }
            )
            for file in row["inventory"]
        )
        contract = Contract(**{**row["contract"], "target_columns": tuple(row["contract"]["target_columns"])})
        boards = tuple(Leaderboard(name=b["name"], scores=tuple(b["scores"])) for b in row["leaderboards"])
        rest = {k: v for k, v in row.items() if k not in ("inventory", "contract", "leaderboards", "known_issues")}
        return cls(
            **rest,
            inventory=files,
            contract=contract,
            leaderboards=boards,
            known_issues=tuple(row["known_issues"]),
            root=root,
        )
