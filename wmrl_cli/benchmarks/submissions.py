"""What a script submitted, read as hostile bytes: a table that fits the task's contract, or a typed refusal."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from enum import StrEnum

import pandas as pd

from wmrl_cli.maths.outcomes import Status
from wmrl_cli.task import Contract

BYTES_BASE, BYTES_PER_ROW = 1 << 20, 1 << 10  # largest submission: one MiB and one KiB a row
ROWS_FACTOR = 4  # a file with more lines than this times the rows is refused unread


class Refusal(StrEnum):
    """Why a submission cannot be graded."""

    UNREADABLE = "unreadable"  # empty, too large, not UTF-8, not CSV
    WRONG_COLUMNS = "wrong_columns"
    WRONG_ROWS = "wrong_rows"
    DUPLICATE_IDS = "duplicate_ids"
    WRONG_IDS = "wrong_ids"  # unknown, or some of the test set's are missing
    NOT_FINITE = "not_finite"  # an empty, NaN or infinite prediction, or metric
    NOT_A_NUMBER = "not_a_number"  # text where a number belongs
    NOT_A_LABEL = "not_a_label"  # no class of the task
    OUT_OF_RANGE = "out_of_range"  # a probability outside [0, 1]
    GRADER = "grader"  # a benchmark's own grader refused it


@dataclass(frozen=True, kw_only=True)
class Graded:
    """A graded submission. `raw_metric` in the metric's unit and `q` in [0, 1] are null unless `valid`."""

    status: Status
    raw_metric: float | None = None
    q: float | None = None
    reason: str = ""  # for people and for the agent: why it was refused; never says what the answers are
    refusal: Refusal | None = None


class Refused(Exception):
    """Inside the grader: this submission cannot be graded."""

    def __init__(self, refusal: Refusal, reason: str) -> None:
        super().__init__(refusal, reason)
        self.refusal, self.reason = refusal, reason


def parse_submission(contract: Contract, submission: bytes) -> pd.DataFrame:
    """The submission as text with exactly the contract's columns and rows. Raises Refused."""
    wanted = [contract.id_column, *contract.target_columns]
    if len(submission) > BYTES_BASE + BYTES_PER_ROW * contract.rows:
        raise Refused(
            Refusal.UNREADABLE, f"`{contract.file}` is too large: {len(submission):,} bytes for {contract.rows} rows"
        )
    try:
        text = submission.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refused(Refusal.UNREADABLE, f"`{contract.file}` is not UTF-8 text") from error
    if text.count("\n") > ROWS_FACTOR * contract.rows + 100:
        raise Refused(
            Refusal.WRONG_ROWS, f"`{contract.file}` has {text.count(chr(10))} lines, {contract.rows} rows are expected"
        )
    if text.partition("\n")[0].count(",") > len(wanted) + 100:
        raise Refused(
            Refusal.WRONG_COLUMNS, f"`{contract.file}` has more than 100 columns too many, expected {_words(wanted)}"
        )
    try:
        header, *rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except (ValueError, csv.Error) as error:
        raise Refused(Refusal.UNREADABLE, f"`{contract.file}` is empty or no CSV file") from error
    if sorted(header) != sorted(wanted):
        found = [column[:40] for column in header[:8]]
        raise Refused(
            Refusal.WRONG_COLUMNS,
            f"`{contract.file}` has the columns {_words(found)}, expected {_words(wanted)}",
        )
    if len(rows) != contract.rows:
        raise Refused(Refusal.WRONG_ROWS, f"`{contract.file}` has {len(rows)} rows, expected {contract.rows}")
    if uneven := next((row for row in rows if len(row) != len(wanted)), None):
        raise Refused(
            Refusal.UNREADABLE, f"`{contract.file}` has a row of {len(uneven)} fields, expected {len(wanted)}"
        )
    return pd.DataFrame(rows, columns=header, dtype=str)


def align(contract: Contract, frame: pd.DataFrame, answers: pd.DataFrame) -> pd.DataFrame:
    """The submission's rows in the order of the answers, joined on the id. Raises Refused."""
    name = contract.id_column
    known, given = _ids(answers[name]), _ids(frame[name])
    if given.duplicated().any():
        raise Refused(
            Refusal.DUPLICATE_IDS,
            f"column `{name}` has the id `{given[given.duplicated()].iloc[0][:40]}` more than once",
        )
    unknown = given[~given.isin(known)]
    if len(unknown):
        raise Refused(
            Refusal.WRONG_IDS,
            f"column `{name}` has {len(unknown)} ids that are not in the test set, such as `{unknown.iloc[0][:40]}`",
        )
    return frame.set_index(pd.Index(given)).loc[known].reset_index(drop=True)


def _ids(values: pd.Series) -> pd.Series:
    """Ids as text; `12.0`, which pandas writes for a column with gaps, is the id 12."""
    return values.str.strip().str.replace(r"^(-?\d+)\.0+$", r"\1", regex=True)


def _words(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
