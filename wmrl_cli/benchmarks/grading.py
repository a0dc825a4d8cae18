"""Grading of a submission, outside every sandbox: bytes in, status, metric and leaderboard position out.

What is wrong with a submission is typed (`Refusal`) and said in a sentence. Nothing a script writes can
raise here: a file that cannot be graded is `bad_submission`, never an error of ours.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from wmrl_cli.benchmarks.foreign import grade_foreign
from wmrl_cli.benchmarks.metrics import LABEL, METRICS, PROBABILITY, Metric
from wmrl_cli.benchmarks.submissions import Graded, Refusal, Refused, align, parse_submission
from wmrl_cli.errors import TableError
from wmrl_cli.maths.outcomes import Status, leaderboard_position
from wmrl_cli.task import Contract, Task


def grade(task: Task, submission: bytes) -> Graded:
    """Grade the bytes of a submission file against the task's private answers.

    Raises TableError where the task itself cannot be graded: its answers are unreadable or its metric unknown.
    """
    if task.metric not in METRICS:
        return grade_foreign(task, submission)  # benchmarks that bring their own graders
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
