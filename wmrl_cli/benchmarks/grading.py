"""Grading of a submission, outside every sandbox: bytes in, status, metric and leaderboard position out.

What is wrong with a submission is typed (`Refusal`) and said in a sentence. Nothing a script writes can
raise here: a file that cannot be graded is `bad_submission`, never an error of ours.
"""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from wmrl_cli.benchmarks.metrics import LABEL, METRICS, PROBABILITY, Metric
from wmrl_cli.errors import TableError
from wmrl_cli.maths.outcomes import Status, leaderboard_position
from wmrl_cli.task import Contract, Task

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


def grade(task: Task, submission: bytes) -> Graded:
    """Grade the bytes of a submission file against the task's private answers.

    Raises TableError where the task itself cannot be graded: its answers are unreadable or its metric unknown.
    """
    if task.metric not in METRICS:
        from wmrl_cli.benchmarks.foreign import grade_foreign  # benchmarks that bring their own graders

        return grade_foreign(task, submission)
    metric = METRICS[task.metric]
    answers = read_answers(task.private_path / "answers.csv", task.contract)
    try:
        frame = parse_submission(task.contract, submission)
        aligned = align(task.contract, frame, answers)
        truth, guess = _values(metric, answers[task.contract.target_columns[0]], aligned)
        with np.errstate(over="ignore", invalid="ignore"):
            raw = metric.compute(truth, guess)
        if not math.isfinite(raw):
            raise Refused(Refusal.NOT_FINITE, f"the metric {task.metric} of these predictions is not finite")
    except Refused as refused:
        return Graded(status=Status.BAD_SUBMISSION, reason=refused.reason, refusal=refused.refusal)
    q = leaderboard_position(raw, task.boards, higher_is_better=metric.higher_is_better)
    return Graded(status=Status.VALID, raw_metric=raw, q=q)


def read_answers(path: Path, contract: Contract) -> pd.DataFrame:
    """The answers as text, one row a test id. Raises TableError where they are missing or do not fit the contract."""
    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (OSError, ValueError) as error:
        raise TableError(f"the answers `{path}` cannot be read: {error}", "prepare the task again") from error
    if list(frame.columns) != [contract.id_column, *contract.target_columns] or len(frame) != contract.rows:
        raise TableError(f"the answers `{path}` do not fit the task's contract", "prepare the task again")
    return frame


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


def _values(metric: Metric, truth: pd.Series, frame: pd.DataFrame) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Both columns in the form that the metric takes. Raises Refused for a prediction that has none."""
    name = str(truth.name)
    if metric.prediction == LABEL:
        return _labels(name, truth, frame[name])
    numbers = _numbers(name, frame[name])
    if metric.prediction == PROBABILITY and not ((numbers >= 0) & (numbers <= 1)).all():
        worst = numbers[(numbers < 0) | (numbers > 1)][0]
        raise Refused(
            Refusal.OUT_OF_RANGE, f"column `{name}` has the value `{worst:g}`, a probability in [0, 1] is expected"
        )
    return truth.astype(float).to_numpy(), numbers


def _numbers(name: str, values: pd.Series) -> npt.NDArray[np.float64]:
    text = values.str.strip()
    numbers = pd.to_numeric(text, errors="coerce").to_numpy(dtype=float)
    empty = text.str.lower().isin(["", "nan", "na", "null", "none"]).to_numpy() | np.isinf(numbers)
    if empty.any():
        raise Refused(Refusal.NOT_FINITE, f"column `{name}` has {int(empty.sum())} empty, NaN or infinite values")
    if np.isnan(numbers).any():
        raise Refused(
            Refusal.NOT_A_NUMBER,
            f"column `{name}` has the value `{text[np.isnan(numbers)].iloc[0][:40]}`, a number is expected",
        )
    return numbers


def _labels(name: str, truth: pd.Series, values: pd.Series) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Classes as text; where all classes are whole numbers, `3.0` is the class 3. Every class occurs in the answers."""
    classes = set(truth)
    guess = values.str.strip()
    if all(label.lstrip("-").isdigit() for label in classes):
        guess = guess.str.replace(r"\.0+$", "", regex=True)
    wrong = guess[~guess.isin(classes)]
    if len(wrong):
        empty = wrong.str.lower().isin(["", "nan"])
        if empty.any():
            raise Refused(Refusal.NOT_FINITE, f"column `{name}` has {int(empty.sum())} empty or NaN values")
        raise Refused(
            Refusal.NOT_A_LABEL,
            f"column `{name}` has {len(wrong)} values that are no class of the task, such as `{wrong.iloc[0][:40]}`",
        )
    return truth.to_numpy(dtype=str), guess.to_numpy(dtype=str)


def _words(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
