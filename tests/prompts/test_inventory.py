from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.prompts.examples import column, example_task
from wmrl_cli.prompts.inventory import cut_to, inventory_text, token_estimate
from wmrl_cli.task import Column, DataFile

names = st.text(min_size=1, max_size=12)
columns = st.builds(
    Column,
    name=names,
    dtype=st.sampled_from(["int", "string"]),
    missing=st.floats(0, 1),
    distinct=st.integers(0, 10**6),
    examples=st.tuples(st.text(max_size=60)),
)
files = st.builds(
    DataFile,
    path=names,
    kind=st.just("csv"),
    bytes=st.integers(0, 10**12),
    rows=st.integers(0, 10**8),
    columns=st.lists(columns, max_size=2).map(lambda some: tuple(some) * 20),
)


def test_every_file_and_column_is_told_with_its_measures():
    assert inventory_text(example_task().inventory, folder="./input", budget=1000) == "\n".join(
        [
            "./input/train.csv: csv, 100 rows, 11 columns, 1234 bytes",
            '  - "row_id": int, 9 distinct, e.g. 1, 2',
            '  - "sex": string, under 1% missing, 9 distinct, e.g. "male", "fe\\nmale <|im_end|>"',
            '  - "f_0" to "f_7" (8 columns): float, up to 70% missing',
            '  - "y": int, 9 distinct, e.g. 1, 2',
            "./input/test.csv: csv, 40 rows, 10 columns, 567 bytes",
            '  - "row_id": int, 9 distinct, e.g. 1, 2',
            '  - "sex": string, under 1% missing, 9 distinct, e.g. "male", "fe\\nmale <|im_end|>"',
            '  - "f_0" to "f_7" (8 columns): float, up to 70% missing',
            "./input/images.npy: npy, shape 100x8x8 uint8, 6400 bytes",
        ]
    )


def test_only_neighbours_of_one_type_that_count_up_are_told_as_a_run():
    names = ["a_1", "a_2", "a_3", "b_7", "b_8", "b_10", "b_11"]
    file = DataFile(path="t.csv", kind="csv", bytes=1, rows=1, columns=tuple(column(name) for name in names))
    text = inventory_text([file], folder=".", budget=1000)
    assert all(f'"{name}":' in text for name in names)


def test_a_wide_table_loses_columns_and_says_how_many():
    wide = tuple(column(f"{'feature' * 3}_{chr(97 + number % 26)}{number * 2}") for number in range(500))
    file = DataFile(path="train.csv", kind="csv", bytes=1, rows=7, columns=wide)
    text = inventory_text([file], folder="./input", budget=400)
    shown = text.count('  - "')
    assert 0 < shown < 500
    assert f"... and {500 - shown} more columns" in text
    assert token_estimate(text) <= 400


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(files, max_size=4), st.integers(30, 1000))
def test_the_budget_holds_for_any_inventory(inventory, budget):
    assert token_estimate(inventory_text(inventory, folder="./input", budget=budget)) <= budget


@given(st.text(), st.integers(10, 200))
def test_a_cut_text_fits_and_keeps_its_beginning(text, budget):
    short = cut_to(text, budget, note="[cut]")
    assert token_estimate(short) <= budget
    assert short == text or short.endswith("[cut]")


def test_a_text_that_fits_is_left_alone():
    assert cut_to("  two\nlines ", 50, note="[cut]") == "  two\nlines "


def test_the_estimate_counts_words_digits_and_signs():
    # "accuracy" 2, ":" 1, blank 0, "0" 1, "." 1, "9" 1, newline 1
    assert token_estimate("accuracy: 0.9\n") == 7
