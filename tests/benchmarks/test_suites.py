"""Reading a `tasks.parquet`: what is refused before anything runs."""

import dataclasses

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.benchmarks.small import small_task
from wmrl_cli.benchmarks.suites import check_board, check_task, folder_digest, load_tasks
from wmrl_cli.errors import TableError
from wmrl_cli.tables import TASKS, rows_to_table, write_table
from wmrl_cli.task import Leaderboard


def stored(folder, **changes):
    """A tasks table with one small task, some of its fields changed."""
    task = dataclasses.replace(small_task(folder), **changes)
    write_table(TASKS, rows_to_table(TASKS, [task.to_row()]), folder / "tasks.parquet", provenance={})
    return folder / "tasks.parquet"


def test_a_stored_task_is_read_back_equal(tmp_path):
    task = small_task(tmp_path)
    assert load_tasks(stored(tmp_path)) == [task]


@pytest.mark.parametrize("name", ["public/train.csv", "private/answers.csv"])
def test_a_task_whose_files_changed_is_refused_with_what_to_do(tmp_path, name):
    path = stored(tmp_path)
    with (tmp_path / "small" / name).open("a") as file:
        file.write("1,2,3\n")
    with pytest.raises(TableError, match="`small` changed") as caught:
        load_tasks(path)
    assert "prepare-tasks" in caught.value.hint and caught.value.exit_code == 3
    assert load_tasks(path, verify=False)


def test_a_new_file_in_the_public_folder_counts_as_a_change(tmp_path):
    path = stored(tmp_path)
    (tmp_path / "small" / "public" / "hint.txt").write_text("the answers are 1, 4, 7")
    with pytest.raises(TableError, match="changed"):
        load_tasks(path)


def test_answers_inside_the_public_folder_are_refused(tmp_path):
    path = stored(tmp_path, private_dir="small/public/private")
    (tmp_path / "small" / "private").rename(tmp_path / "small" / "public" / "private")
    with pytest.raises(TableError, match="inside its public folder"):
        load_tasks(path)


def test_a_folder_that_is_gone_is_named(tmp_path):
    path = stored(tmp_path, public_dir="elsewhere/public")
    with pytest.raises(TableError, match="elsewhere/public"):
        load_tasks(path)


@pytest.mark.parametrize(
    "boards", [(), (Leaderboard(name="b", scores=()),), (Leaderboard(name="b", scores=(1.0, float("nan"))),)]
)
def test_a_task_without_a_usable_board_is_refused(tmp_path, boards):
    task = dataclasses.replace(small_task(tmp_path), leaderboards=boards)
    with pytest.raises(TableError, match="leaderboard"):
        check_task(task)


def test_a_ranked_board_whose_ends_contradict_the_metric_stops_the_task():
    with pytest.raises(TableError, match=r"goes from 0.1 to 0.9, but its metric says that higher"):
        check_board("t", "b", (0.1, 0.5, 0.9), higher_is_better=True, ranked=True)
    check_board("t", "b", (0.9, 0.5, 0.1), higher_is_better=True, ranked=True)
    check_board("t", "b", (0.5, 0.5), higher_is_better=True, ranked=True)


def test_the_digest_of_parquet_files_is_of_their_values_and_not_of_their_bytes(tmp_path):
    table = pa.table({"a": [1, 2, 3], "b": ["x", None, "z"]})
    digests = []
    for name, options in (("one", {"compression": "zstd"}), ("two", {"compression": "none", "row_group_size": 1})):
        (tmp_path / name).mkdir()
        pq.write_table(table, tmp_path / name / "data.parquet", **options)
        digests.append(folder_digest(tmp_path / name))
    assert (tmp_path / "one/data.parquet").read_bytes() != (tmp_path / "two/data.parquet").read_bytes()
    assert digests[0] == digests[1]
    pq.write_table(pa.table({"a": [1, 2, 4], "b": ["x", None, "z"]}), tmp_path / "one" / "data.parquet")
    assert folder_digest(tmp_path / "one") != digests[0]


def test_the_digest_of_a_large_file_sees_its_size_and_its_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("wmrl_cli.benchmarks.suites.WHOLE_FILE", 1000)
    path = tmp_path / "large.bin"
    content = bytearray(10_000_000)
    path.write_bytes(content)
    before = folder_digest(tmp_path)
    content[-1] = 1
    path.write_bytes(content)
    assert folder_digest(tmp_path) != before
