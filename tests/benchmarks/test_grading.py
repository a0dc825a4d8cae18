"""Grading: what is refused and how, and what a valid submission scores."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.benchmarks.small import answers, small_task, submission
from wmrl_cli.benchmarks.grading import grade
from wmrl_cli.benchmarks.metrics import METRICS
from wmrl_cli.benchmarks.submissions import BYTES_BASE, BYTES_PER_ROW, Refusal
from wmrl_cli.errors import TableError
from wmrl_cli.maths.outcomes import Status

LABEL = {"metric": "accuracy", "target": "kind"}
WHOLE = {"metric": "accuracy", "target": "count"}
CHANCE = {"metric": "log_loss", "target": "kind", "positive": "a"}


def refusal(task, content: bytes) -> Refusal | None:
    graded = grade(task, content)
    assert (graded.status is Status.VALID) == (graded.refusal is None)
    if graded.refusal:
        assert (
            graded.status is Status.BAD_SUBMISSION and graded.q is None and graded.raw_metric is None and graded.reason
        )
    return graded.refusal


def test_the_position_is_the_share_of_the_board_that_is_not_strictly_better(tmp_path):
    task = small_task(tmp_path, scores=(1.0, 2.0, 3.0, 4.0))
    truth = answers(task)["price"]
    assert grade(task, submission(task)).q == 1.0
    off_by_two = grade(task, submission(task, price=truth + 2))
    assert (off_by_two.raw_metric, off_by_two.q) == (
        2.0,
        0.75,
    )  # one entry is strictly better, and the tie counts as won
    worst = grade(task, submission(task, price=truth + 100))
    assert worst.status is Status.VALID and worst.q == 0.0


def test_two_boards_count_half_each(tmp_path):
    task = small_task(tmp_path, scores=(1.0, 3.0))
    boards = (*task.leaderboards, dataclasses.replace(task.leaderboards[0], name="second", scores=(5.0,)))
    task = dataclasses.replace(task, leaderboards=boards)
    assert grade(task, submission(task, price=answers(task)["price"] + 2)).q == (0.5 + 1.0) / 2


def test_rows_are_joined_on_their_id_in_any_order_and_any_column_order(tmp_path):
    task = small_task(tmp_path)
    frame = answers(task)
    shuffled = frame.iloc[::-1][["price", "row_id"]]
    assert grade(task, shuffled.to_csv(index=False).encode()).raw_metric == 0.0
    with_gaps = frame.astype({"row_id": float})
    assert grade(task, with_gaps.to_csv(index=False).encode()).raw_metric == 0.0


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", Refusal.UNREADABLE),
        (b"\xff\xfe\x00binary", Refusal.UNREADABLE),
        (b'row_id,price\n1,"unclosed\n', Refusal.UNREADABLE),
        (b"row_id,price\n" + b"1,2,3\n" * 10, Refusal.UNREADABLE),
        (b"row_id\n1\n", Refusal.WRONG_COLUMNS),
        (b"id,price\n1,2\n", Refusal.WRONG_COLUMNS),
        (b"row_id,price,price\n1,2,3\n", Refusal.WRONG_COLUMNS),
        (b"row_id,price\n", Refusal.WRONG_ROWS),
        (b"row_id,price\n1,2\n", Refusal.WRONG_ROWS),
        (b"," * 10_000, Refusal.WRONG_COLUMNS),
        (b"row_id,price\n" + b"1,2\n" * 5000, Refusal.WRONG_ROWS),
    ],
)
def test_a_file_of_the_wrong_form_is_refused_by_its_kind(tmp_path, content, expected):
    assert refusal(small_task(tmp_path), content) is expected


def test_an_index_column_that_pandas_added_is_a_wrong_column(tmp_path):
    task = small_task(tmp_path)
    graded = grade(task, answers(task).to_csv().encode())
    assert graded.refusal is Refusal.WRONG_COLUMNS
    assert "`row_id`, `price`" in graded.reason


def test_a_submission_above_the_byte_cap_is_not_read(tmp_path):
    task = small_task(tmp_path)
    content = submission(task) + b" " * (BYTES_BASE + BYTES_PER_ROW * task.contract.rows)
    assert refusal(task, content) is Refusal.UNREADABLE


def test_wrong_missing_and_duplicate_ids_are_told_apart(tmp_path):
    task = small_task(tmp_path)
    ids = answers(task)["row_id"]
    assert refusal(task, submission(task, row_id=ids + 1000)) is Refusal.WRONG_IDS
    assert refusal(task, submission(task, row_id=ids.iloc[0])) is Refusal.DUPLICATE_IDS
    one_replaced = ids.where(ids.index != 0, 999)
    assert refusal(task, submission(task, row_id=one_replaced)) is Refusal.WRONG_IDS


@pytest.mark.parametrize("value", ["", "nan", "NaN", "inf", "-inf", "None", "1e999"])
def test_a_prediction_that_is_not_finite_never_gets_a_position(tmp_path, value):
    task = small_task(tmp_path)
    prices = answers(task)["price"].astype(str)
    assert refusal(task, submission(task, price=prices.where(prices.index != 0, value))) is Refusal.NOT_FINITE


def test_a_metric_that_is_not_finite_is_refused(tmp_path):
    """Squares of finite predictions can overflow; MLE-bench rounds a NaN score and calls the submission valid."""
    task = small_task(tmp_path, metric="rmse")
    assert refusal(task, submission(task, price=1e200)) is Refusal.NOT_FINITE


def test_text_where_a_number_belongs_is_refused_with_the_value(tmp_path):
    task = small_task(tmp_path)
    graded = grade(task, submission(task, price="cheap"))
    assert graded.refusal is Refusal.NOT_A_NUMBER and "`cheap`" in graded.reason


def test_labels_are_compared_as_text_and_whole_numbers_by_value(tmp_path):
    task = small_task(tmp_path / "a", scores=(0.5, 0.9), **LABEL)
    assert grade(task, submission(task)).raw_metric == 1.0
    assert refusal(task, submission(task, kind="c")) is Refusal.NOT_A_LABEL
    assert refusal(task, submission(task, kind="")) is Refusal.NOT_FINITE
    whole = small_task(tmp_path / "b", scores=(0.5, 0.9), **WHOLE)
    assert grade(whole, submission(whole, count=answers(whole)["count"].astype(float))).raw_metric == 1.0
    assert refusal(whole, submission(whole, count=0.73)) is Refusal.NOT_A_LABEL


def test_a_probability_lies_between_zero_and_one(tmp_path):
    task = small_task(tmp_path, scores=(0.7, 0.3), **CHANCE)
    assert refusal(task, submission(task, kind=1.2)) is Refusal.OUT_OF_RANGE
    assert refusal(task, submission(task, kind=-0.1)) is Refusal.OUT_OF_RANGE
    half = grade(task, submission(task, kind=0.5))
    assert half.raw_metric == pytest.approx(math.log(2)) and half.q == 0.5
    certain = grade(task, submission(task))
    assert certain.raw_metric == pytest.approx(0.0, abs=1e-12) and certain.q == 1.0


def test_a_reason_names_nothing_of_the_answers(tmp_path):
    task = small_task(tmp_path)
    frame = answers(task)
    for content in (b"row_id,price\n", submission(task, row_id=frame["row_id"] + 1000), submission(task, price="x")):
        reason = grade(task, content).reason
        assert not any(f"`{price}`" in reason for price in frame["price"])


def test_missing_answers_are_our_failure_and_not_the_scripts(tmp_path):
    task = small_task(tmp_path)
    content = submission(task)
    (task.private_path / "answers.csv").unlink()
    with pytest.raises(TableError, match="cannot be read"):
        grade(task, content)


@settings(max_examples=60, deadline=None)
@given(
    content=st.one_of(
        st.binary(max_size=300), st.text(max_size=200).map(lambda text: ("row_id,price\n" + text).encode())
    )
)
def test_no_bytes_make_the_grader_raise(content, tmp_path_factory):
    task = _task_of_module(tmp_path_factory)
    assert grade(task, content).status in (Status.VALID, Status.BAD_SUBMISSION)


_kept = {}


def _task_of_module(factory):
    if "task" not in _kept:
        _kept["task"] = small_task(factory.mktemp("small"))
    return _kept["task"]


def test_metrics_match_numbers_computed_by_hand():
    truth, guess = np.array([1.0, 2.0, 4.0]), np.array([1.0, 4.0, 0.0])
    assert METRICS["mae"].compute(truth, guess) == 2.0
    assert METRICS["rmse"].compute(truth, guess) == pytest.approx(math.sqrt(20 / 3))
    assert METRICS["r2"].compute(truth, guess) == pytest.approx(1 - 20 / (14 / 3))
    assert METRICS["rmsle"].compute(np.array([0.0, 1.0]), np.array([-5.0, 1.0])) == 0.0
    labels, said = np.array(["a", "a", "a", "b"]), np.array(["a", "a", "b", "b"])
    assert METRICS["accuracy"].compute(labels, said) == 0.75
    assert METRICS["balanced_accuracy"].compute(labels, said) == pytest.approx((2 / 3 + 1) / 2)
    assert METRICS["macro_f1"].compute(labels, said) == pytest.approx((4 / 5 + 2 / 3) / 2)
    chance = np.array([0.1, 0.4, 0.35, 0.8])
    assert METRICS["roc_auc"].compute(np.array([0, 0, 1, 1]), chance) == 0.75
    assert METRICS["brier"].compute(np.array([0.0, 1.0]), np.array([0.5, 0.5])) == 0.25
    assert METRICS["log_loss"].compute(np.array([0.0, 1.0]), np.array([0.0, 0.0])) == pytest.approx(
        -math.log(1e-15) / 2
    )


@pytest.mark.parametrize("name", sorted(METRICS))
def test_a_perfect_prediction_is_at_least_as_good_as_any_other_in_the_metrics_direction(name):
    metric = METRICS[name]
    truth = np.array(["a", "b", "b", "a"]) if metric.prediction == "label" else np.array([0.0, 1.0, 1.0, 0.0])
    wrong = np.array(["b", "b", "b", "a"]) if metric.prediction == "label" else np.array([0.9, 0.4, 0.6, 0.2])
    best, worse = metric.compute(truth, truth), metric.compute(truth, wrong)
    assert (best > worse) == metric.higher_is_better and best != worse


def test_a_submission_in_parquet_or_excel_is_unreadable_and_not_a_crash(tmp_path):
    task = small_task(tmp_path)
    path = tmp_path / "x.parquet"
    pd.DataFrame({"row_id": [1], "price": [2.0]}).to_parquet(path)
    assert refusal(task, path.read_bytes()) is Refusal.UNREADABLE
