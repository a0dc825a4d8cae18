"""The compact prompt pack: what the embedded model reads of a task, and who answers for which failure."""

from pathlib import Path

import pytest

from wmrl_cli.maths.outcomes import Status
from wmrl_cli.prompts import get_pack
from wmrl_cli.prompts.base import DECILES, EXPERTS, QUALITY
from wmrl_cli.prompts.compact import facts_of, header, verdict_of
from wmrl_cli.task import Column, Contract, DataFile, Leaderboard, Task


def column(name: str, dtype: str, missing: float = 0.0, distinct: int = 9) -> Column:
    return Column(name=name, dtype=dtype, missing=missing, distinct=distinct, examples=())


def task(*columns: Column, category: str = "tabular", files: tuple[DataFile, ...] = ()) -> Task:
    shared = (column("key", "int"), *columns)
    tables = {"train.csv": (*shared, column("price's", "float")), "test.csv": shared}
    return Task(
        task_id="houses",
        suite="offline",
        split="train",
        category=category,
        metric="rmse",
        higher_is_better=False,
        description="",
        inventory=(
            *(DataFile(path=path, kind="csv", bytes=1, rows=640, columns=held) for path, held in tables.items()),
            *files,
        ),
        contract=Contract(
            file="submission.csv", id_column="key", target_columns=("price's",), rows=640, prediction="number"
        ),
        public_dir="public",
        private_dir="private",
        leaderboards=(Leaderboard(name="reference", scores=(1.0,)),),
        root=Path("/nowhere"),
    )


def test_the_header_tells_names_as_a_script_would_write_them():
    houses = task(column("rooms", "int"), column("Lot Area", "float", missing=0.2), column("street", "string"))
    assert get_pack("compact").opening(houses, ()) == [
        {
            "role": "user",
            "content": "tabular rmse lower number\nrows 500\nid 'key'\ntarget \"price's\", float\n"
            "numbers 2\n'rooms', 'Lot Area'\nstrings 1\n'street'\nmissing numbers",
        }
    ]


def test_many_columns_are_counted_and_five_of_them_named():
    wide = task(*(column(f"c{i}", "float") for i in range(30)))
    assert "numbers 30\n'c0', 'c1', 'c2', 'c3', 'c4'\nmissing none" in header(facts_of(wide))


def test_the_text_column_is_the_one_with_most_different_values():
    reviews = task(column("city", "string"), column("review", "string", distinct=500), category="text")
    facts = facts_of(reviews)
    assert facts.text == "review" and facts.strings == ("city",)


def test_images_are_told_by_their_shape():
    images = DataFile(path="train_images.npy", kind="npy", bytes=1, shape=(640, 8, 9), dtype="uint8")
    assert "images 8x9" in header(facts_of(task(category="image", files=(images,))))


def test_a_task_without_tables_still_has_a_header():
    bare = Task(**{**vars(task()), "inventory": ()})
    assert "rows 100" in header(facts_of(bare)) and "unknown" in header(facts_of(bare))


def test_eight_experts_stand_in_the_missions_order():
    experts = get_pack("compact").experts
    assert tuple(expert.name for expert in experts) == EXPERTS
    assert experts[-1].choices == DECILES
    assert all(expert.choices[0] == "passes" for expert in experts[:-1])


@pytest.mark.parametrize("status", Status)
def test_every_failure_that_runs_has_exactly_one_expert_that_may_answer_it(status):
    verdict = verdict_of(status, "KeyError")
    if status in (Status.VALID, Status.LOST, Status.MALFORMED, Status.SYNTAX_ERROR):
        assert verdict is None
        return
    assert verdict is not None
    owners = [e.name for e in get_pack("compact").experts if e.name != QUALITY and verdict[1] in e.choices[1:]]
    assert owners == [verdict[0]]


def test_an_exception_that_nobody_expects_is_the_runtime_experts():
    assert verdict_of(Status.RUNTIME_ERROR, "ZeroDivisionError") == ("runtime", "other")
    assert verdict_of(Status.RUNTIME_ERROR, None) == ("runtime", "other")
    assert verdict_of(Status.RUNTIME_ERROR, "NameError") == ("dependencies", "NameError")
