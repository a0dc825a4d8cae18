"""Tables: round trips, versions, refusals, and files that are whole or absent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wmrl_cli import tables
from wmrl_cli.errors import StageError, TableError
from wmrl_cli.task import Column, Contract, DataFile, Leaderboard, Task

VERDICT = {"expert": "api", "abstained": False, "fails": 0.25, "line": 3, "error_class": None, "output": None}
PAIR = {
    "step": 0,
    "group_id": "g",
    "task_id": "t",
    "trajectory_id": "a",
    "predicted": 0.5,
    "real": 0.1,
    "calibrated": 0.5,
    "map_version": 0,
    "status_predicted": "valid",
    "status_real": "runtime_error",
}


def filled(kind: tables.TableKind) -> dict[str, Any]:
    """A row of `kind` with a value in every column, made from its schema."""
    return {field.name: example(field.type) for field in kind.schema}


def example(kind: pa.DataType) -> Any:
    if pa.types.is_list(kind):
        return [example(kind.value_type)] * 2
    if pa.types.is_struct(kind):
        return {field.name: example(field.type) for field in kind}
    if pa.types.is_boolean(kind):
        return True
    if pa.types.is_floating(kind):
        return 0.5
    return 7 if pa.types.is_integer(kind) else "text é"


@pytest.mark.parametrize("kind", tables.KINDS.values(), ids=lambda kind: kind.name)
def test_every_table_comes_back_as_it_was_written(kind: tables.TableKind, tmp_path: Path) -> None:
    path = tmp_path / "lr=3" / "table.parquet"  # a folder that looks like a partition must not add a column
    table = tables.rows_to_table(kind, [filled(kind), filled(kind)])
    tables.write_table(kind, table, path, provenance=tables.provenance("test", config={"folder": tmp_path}))
    assert tables.read_table(kind, path).equals(table)
    assert tables.check_kind(kind, path)["config"] == {"folder": str(tmp_path)}


def test_an_empty_table_keeps_its_columns(tmp_path: Path) -> None:
    empty = tables.rows_to_table(tables.SCORES, [])
    tables.write_table(tables.SCORES, empty, tmp_path / "s.parquet", provenance={})
    assert tables.read_table(tables.SCORES, tmp_path / "s.parquet").equals(empty)


@given(st.floats(allow_nan=False), st.text(max_size=20), st.integers(-(2**62), 2**62))
def test_numbers_and_text_are_kept_exactly(number: float, text: str, whole: int) -> None:
    text = text.encode("utf-8", "ignore").decode()
    row = {**PAIR, "predicted": number, "group_id": text, "step": whole}
    assert tables.rows_to_table(tables.ANCHOR_PAIRS, [row]).to_pylist() == [row]


def test_a_task_survives_the_table(tmp_path: Path) -> None:
    column = Column(name="x", dtype="float", missing=0.5, distinct=2, examples=("1.0", "2.0"))
    files = (
        DataFile(path="train.csv", kind="csv", bytes=12, rows=2, columns=(column,)),
        DataFile(path="x.npy", kind="npy", bytes=99, shape=(2, 3), dtype="float32"),
    )
    contract = Contract(file="submission.csv", id_column="id", target_columns=("y",), rows=2, prediction="label")
    task = Task(
        task_id="t",
        suite="offline",
        split="train",
        category="tabular",
        metric="accuracy",
        higher_is_better=True,
        description="d",
        inventory=files,
        contract=contract,
        public_dir="t/public",
        private_dir="t/private",
        leaderboards=(Leaderboard(name="p", scores=(0.5, 0.75)),),
        known_issues=("noise",),
        digest="0f",
        root=tmp_path,
    )
    table = tables.rows_to_table(tables.TASKS, [task.to_row()])
    tables.write_table(tables.TASKS, table, tmp_path / "tasks.parquet", provenance={})
    (row,) = tables.read_table(tables.TASKS, tmp_path / "tasks.parquet").to_pylist()
    assert Task.from_row(row, tmp_path) == task


@pytest.mark.parametrize("change", [{"reward": 1.0}, {"predicted": None}])
def test_an_unknown_column_or_a_null_where_none_may_be_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="reward|predicted"):
        tables.rows_to_table(tables.ANCHOR_PAIRS, [{**PAIR, **change}])


def test_a_missing_column_is_refused() -> None:
    row = {name: value for name, value in PAIR.items() if name != "real"}
    with pytest.raises(ValueError, match="real"):
        tables.rows_to_table(tables.ANCHOR_PAIRS, [row])


@pytest.mark.parametrize(
    ("verdicts", "place"),
    [
        ([{**VERDICT, "abstained": None}], "verdicts[].abstained"),
        ([VERDICT, {"expert": "api"}], "verdicts[].abstained"),
        ([None], "verdicts[]"),
        (None, "verdicts"),
    ],
)
def test_a_null_inside_a_list_or_struct_is_refused_with_its_place(verdicts: Any, place: str) -> None:
    row = {**filled(tables.SCORES), "verdicts": verdicts}
    with pytest.raises(ValueError, match="may not be null") as caught:
        tables.rows_to_table(tables.SCORES, [row])
    assert f"`{place}`" in str(caught.value)


def test_nulls_that_may_be_stay_null() -> None:
    row = {**filled(tables.SCORES), "verdicts": [VERDICT], "reward": None, "q": None}
    assert tables.rows_to_table(tables.SCORES, [row]).to_pylist() == [row]


def stamped(path: Path, **stamp: str) -> Path:
    table = tables.rows_to_table(tables.ANCHOR_PAIRS, [PAIR])
    pq.write_table(table.replace_schema_metadata({f"wmrl.{k}": v for k, v in stamp.items()}), path)
    return path


def test_another_version_says_which_wmrl_wrote_it(tmp_path: Path) -> None:
    maker = json.dumps({"wmrl": "9.9.9"})
    path = stamped(tmp_path / "p.parquet", table="anchor_pairs", version="999", provenance=maker)
    with pytest.raises(TableError, match="table version `999`") as caught:
        tables.read_table(tables.ANCHOR_PAIRS, path)
    assert caught.value.hint is not None and "9.9.9" in caught.value.hint
    assert caught.value.exit_code == 3


def test_another_kind_of_table_is_refused_by_name(tmp_path: Path) -> None:
    path = stamped(tmp_path / "p.parquet", table="anchor_pairs", version="1")
    with pytest.raises(TableError, match="holds a `anchor_pairs` table, a `scores` table is needed"):
        tables.read_table(tables.SCORES, path)


def test_our_stamp_on_other_columns_names_them(tmp_path: Path) -> None:
    path = stamped(tmp_path / "p.parquet", table="scores", version="1")
    with pytest.raises(TableError, match=r"missing \['turn'.*unknown \['predicted'"):
        tables.read_table(tables.SCORES, path)


def test_files_that_are_no_tables_are_sentences(tmp_path: Path) -> None:
    text = tmp_path / "text.parquet"
    text.write_text("a,b\n1,2\n")
    foreign = tmp_path / "foreign.parquet"
    pq.write_table(pa.table({"a": [1]}), foreign)
    damaged = stamped(tmp_path / "damaged.parquet", table="anchor_pairs", version="1")
    data = bytearray(damaged.read_bytes())
    data[4:60] = b"\xff" * 56  # pages, not the footer
    damaged.write_bytes(bytes(data))
    for path, words in [
        (tmp_path / "none.parquet", "does not exist"),
        (tmp_path, "is a folder"),
        (text, "is not a Parquet file"),
        (foreign, "was not written by wmrl"),
        (damaged, "is damaged"),
    ]:
        with pytest.raises(TableError, match=words):
            tables.read_table(tables.ANCHOR_PAIRS, path)


def test_a_failure_while_writing_leaves_the_old_file_and_no_scratch(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    path.write_text("old")

    def half(scratch: str) -> None:
        Path(scratch).write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        tables.write_atomically(path, half)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_disk_that_refuses_is_a_stage_error_with_a_hint(tmp_path: Path) -> None:
    table = tables.rows_to_table(tables.ANCHOR_PAIRS, [PAIR])
    (tmp_path / "file").write_text("")
    with pytest.raises(StageError, match="could not write") as caught:
        tables.write_table(tables.ANCHOR_PAIRS, table, tmp_path / "file" / "p.parquet", provenance={})
    assert caught.value.exit_code == 1 and caught.value.hint is not None

    def full(scratch: str) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(StageError, match="No space left on device"):
        tables.write_atomically(tmp_path / "p.parquet", full)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_table_of_another_kind_is_not_written(tmp_path: Path) -> None:
    table = tables.rows_to_table(tables.ANCHOR_PAIRS, [PAIR])
    with pytest.raises(ValueError, match="not a `scores` table"):
        tables.write_table(tables.SCORES, table, tmp_path / "p.parquet", provenance={})
    assert list(tmp_path.iterdir()) == []
