"""Importers: prepared trees of other benchmarks become tasks, and what is wrong with one stops only that one."""

import hashlib
import json
import stat

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.benchmarks.trees import TRUTH, bench_task, board, csv, dojo_task, dsbench_task, write
from wmrl_cli.benchmarks.grading import grade
from wmrl_cli.benchmarks.importing import Trouble, paper_split, registry
from wmrl_cli.benchmarks.mle_dojo import is_stub
from wmrl_cli.benchmarks.submissions import Refusal
from wmrl_cli.benchmarks.suites import load_tasks
from wmrl_cli.errors import ConfigError, StageError, UnavailableError
from wmrl_cli.maths.outcomes import Status
from wmrl_cli.stages.prepare import PrepareConfig, prepare

MAKERS = {"mle-dojo": dojo_task, "mle-bench": bench_task, "dsbench": dsbench_task}


@pytest.fixture
def tree(tmp_path):
    """Folders for prepared data, repository and output."""
    for name in ("source", "repo"):
        (tmp_path / name).mkdir()
    return tmp_path


def importing(tree, suite, **changes):
    config = {"suite": suite, "out": tree / "out", "source": tree / "source", "repository": tree / "repo", **changes}
    return prepare(PrepareConfig(**config))


def troubles(prepared):
    return {failure.task_id: failure.trouble for failure in prepared.failures}


def imported(tree):
    return {task.task_id: task for task in load_tasks(tree / "out" / "tasks.parquet")}


@pytest.mark.parametrize("suite", list(MAKERS))
def test_a_prepared_tree_becomes_a_task_that_is_graded_by_the_benchmarks_own_grader(tree, suite):
    MAKERS[suite](tree / "source", tree / "repo", "small-task")
    assert importing(tree, suite).failures == ()
    task = imported(tree)["small-task"]
    assert task.suite == suite and task.description == "Predict y of small-task."
    assert task.contract.id_column == "id" and task.contract.target_columns == ("y",) and task.contract.rows == 6
    assert not task.higher_is_better
    perfect = grade(task, csv("id,y", TRUTH).encode())
    assert (perfect.status, perfect.raw_metric, perfect.q) == (Status.VALID, 0.0, 1.0)
    off = grade(task, csv("id,y", [value + 1 for value in TRUTH]).encode())
    assert off.raw_metric == 1.0 and off.q == pytest.approx(2 / 3)  # one of three entries is strictly better
    assert grade(task, b"id,z\n1,2\n").status is Status.BAD_SUBMISSION


@pytest.mark.parametrize("suite", list(MAKERS))
def test_answers_and_graders_lie_outside_the_public_folder_and_the_public_data_stay_where_they_are(tree, suite):
    MAKERS[suite](tree / "source", tree / "repo", "small-task")
    importing(tree, suite)
    task = imported(tree)["small-task"]
    assert task.public_path.resolve().is_relative_to(tree / "source")
    answers = next(task.private_path.glob("answers*"))
    assert stat.S_IMODE(answers.stat().st_mode) == 0o600
    assert not any("answer" in file.path for file in task.inventory)


@pytest.mark.parametrize("suite", list(MAKERS))
def test_a_nan_prediction_is_refused_and_never_counts_as_valid(tree, suite):
    """MLE-bench's own report would round the NaN and call the submission valid."""
    MAKERS[suite](tree / "source", tree / "repo", "small-task")
    importing(tree, suite)
    graded = grade(imported(tree)["small-task"], csv("id,y", [float("nan")] * 6).encode())
    assert graded.status is Status.BAD_SUBMISSION and graded.refusal in (Refusal.NOT_FINITE, Refusal.GRADER)


def test_dsbench_rows_are_brought_into_the_order_of_the_answers(tree):
    """Its graders compare row by row, so a submission in another order would be graded wrongly."""
    dsbench_task(tree / "source", tree / "repo", "small-task")
    importing(tree, "dsbench")
    lines = csv("id,y", TRUTH).splitlines()
    shuffled = "\n".join([lines[0], *lines[:0:-1]]).encode()
    assert grade(imported(tree)["small-task"], shuffled).raw_metric == 0.0


@pytest.mark.parametrize("suite", list(MAKERS))
def test_one_task_that_fails_does_not_stop_the_others(tree, suite):
    for name in ("good-task", "other-task"):
        MAKERS[suite](tree / "source", tree / "repo", name)
    for path in (tree / "source").rglob("*answer*"):
        if "other-task" in str(path):
            path.unlink()
    (tree / "source" / "other-task" / "prepared" / "private" / "test.csv").unlink(missing_ok=True)
    assert troubles(importing(tree, suite)) == {"other-task": Trouble.NO_ANSWERS}
    assert list(imported(tree)) == ["good-task"]


def test_a_task_without_data_says_whether_the_benchmark_can_make_them(tree):
    dojo_task(tree / "source", tree / "repo", "good-task")
    stub = '"""Automatically made."""\n\n\ndef prepare(raw, public, private):\n    pass\n'
    real = "import shutil\n\n\ndef prepare(raw, public, private):\n    shutil.copy(raw, public)\n"
    for name, preparer in (("stub-task", stub), ("later-task", real)):
        (tree / "source" / name).mkdir()
        write(tree / "repo" / "mledojo" / "competitions" / name / "utils" / "prepare.py", preparer)
    prepared = importing(tree, "mle-dojo")
    assert troubles(prepared) == {"stub-task": Trouble.NO_PREPARER, "later-task": Trouble.NOT_PREPARED}
    assert any("empty stub" in failure.reason for failure in prepared.failures)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("    pass", True),
        ('    """To do."""\n    raise NotImplementedError', True),
        ("    print('nothing yet')\n    return None", True),
        ("    raw.rename(public)", False),
        ("    for path in raw.iterdir():\n        path.rename(public / path.name)", False),
    ],
)
def test_a_preparer_that_does_nothing_is_a_stub(body, expected):
    assert is_stub(f"from pathlib import Path\n\n\ndef prepare(raw, public, private):\n{body}\n") is expected


@pytest.mark.parametrize(("suite", "name"), [("mle-dojo", "private_leaderboard.csv"), ("mle-bench", "leaderboard.csv")])
def test_a_git_lfs_pointer_is_recognised_and_said(tree, suite, name):
    for task in ("good-task", "lfs-task"):
        MAKERS[suite](tree / "source", tree / "repo", task)
    for path in tree.rglob(name):
        if "lfs-task" in str(path):
            path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n")
    prepared = importing(tree, suite)
    assert troubles(prepared) == {"lfs-task": Trouble.LFS_POINTER}
    assert "git lfs pull" in prepared.failures[0].hint


@pytest.mark.parametrize("suite", list(MAKERS))
def test_a_board_that_contradicts_the_metric_stops_that_task(tree, suite):
    MAKERS[suite](tree / "source", tree / "repo", "good-task")
    MAKERS[suite](tree / "source", tree / "repo", "wrong-task", ends=(9.0, 1.0, 0.1))
    prepared = importing(tree, suite)
    assert troubles(prepared) == {"wrong-task": Trouble.BAD_LEADERBOARD}
    assert "contradict" in prepared.failures[0].reason or "says that lower" in prepared.failures[0].reason


@pytest.mark.parametrize("suite", list(MAKERS))
def test_an_empty_board_stops_that_task(tree, suite):
    MAKERS[suite](tree / "source", tree / "repo", "good-task")
    MAKERS[suite](tree / "source", tree / "repo", "empty-task", ends=())
    assert troubles(importing(tree, suite)) == {"empty-task": Trouble.BAD_LEADERBOARD}


def test_a_board_whose_ends_are_equal_gives_no_direction_of_its_own(tree):
    bench_task(tree / "source", tree / "repo", "known-task", ends=(1.0, 1.0))
    bench_task(tree / "source", tree / "repo", "unknown-task", grader="secret-score", ends=(1.0, 1.0))
    assert troubles(importing(tree, "mle-bench")) == {"unknown-task": Trouble.BAD_LEADERBOARD}
    assert not imported(tree)["known-task"].higher_is_better


def test_a_sample_submission_without_some_of_the_answers_columns_is_reported(tree):
    """MLE-bench issue 30: the sample lacked two label columns, and nobody was told."""
    bench_task(tree / "source", tree / "repo", "small-task")
    write(tree / "source/small-task/prepared/private/test.csv", csv("id,y,z,w", TRUTH, TRUTH, TRUTH))
    prepared = importing(tree, "mle-bench")
    assert prepared.known_issues == {"small-task": ["the sample submission lacks columns of the answers: w, z"]}


def test_answers_that_a_sandbox_would_see_are_refused_also_as_a_copy(tree):
    for name in ("good-task", "copied-task"):
        dojo_task(tree / "source", tree / "repo", name)
    write(tree / "source/copied-task/data/public/extra/solution.csv", csv("id,y", TRUTH))
    assert troubles(importing(tree, "mle-dojo")) == {"copied-task": Trouble.ANSWERS_EXPOSED}


def test_known_leaks_are_marked_and_can_be_left_out(tree):
    """MLE-bench issue 77 and others: public files that give answers away."""
    dojo_task(tree / "source", tree / "repo", "random-acts-of-pizza")
    dojo_task(tree / "source", tree / "repo", "good-task")
    dojo_task(tree / "source", tree / "repo", "same-leak")
    write(tree / "source/same-leak/data/public/test.csv", csv("id,giver_username_if_known", TRUTH))
    prepared = importing(tree, "mle-dojo")
    assert set(prepared.known_issues) == {"random-acts-of-pizza", "same-leak"}
    assert all("leak" in issues[0] for issues in prepared.known_issues.values())
    left = importing(tree, "mle-dojo", skip_known_issues=True)
    assert left.table.column("task_id").to_pylist() == ["good-task"]
    assert set(troubles(left).values()) == {Trouble.KNOWN_ISSUE}


def test_a_training_task_of_the_paper_in_an_evaluation_suite_is_marked_as_contamination(tree):
    dsbench_task(tree / "source", tree / "repo", "amazon-employee-access-challenge")
    dsbench_task(tree / "source", tree / "repo", "titanic")
    issues = importing(tree, "dsbench").known_issues
    assert (
        set(issues) == {"amazon-employee-access-challenge"}
        and "contamination" in issues["amazon-employee-access-challenge"][0]
    )


def test_a_missing_reference_result_of_dsbench_is_named_with_its_place(tree):
    """DSBench issue 7: the comparison needs files that nobody finds."""
    dsbench_task(tree / "source", tree / "repo", "small-task")
    (tree / "source/save_performance/GT/small-task/result.txt").unlink()
    (issue,) = importing(tree, "dsbench").known_issues["small-task"]
    assert "save_performance/GT/small-task/result.txt" in issue and "save_performance.zip" in issue


def test_dsbench_results_that_contradict_the_boards_stop_the_task(tree):
    dsbench_task(tree / "source", tree / "repo", "good-task")
    dsbench_task(tree / "source", tree / "repo", "odd-task")
    write(tree / "source/save_performance/GT/odd-task/result.txt", "99")
    assert troubles(importing(tree, "dsbench")) == {"odd-task": Trouble.BAD_LEADERBOARD}


def test_dsbench_without_leaderboards_fails_with_the_repository_that_has_them(tree):
    dsbench_task(tree / "source", tree / "nowhere", "small-task")
    with pytest.raises(StageError, match="no task of `dsbench`") as caught:
        importing(tree, "dsbench")
    assert "leaderboard" in caught.value.message


def test_checksums_are_compared_but_not_those_of_parquet_files(tree):
    """MLE-bench issue 58: Parquet bytes differ by library version, and preparing stopped."""
    bench_task(tree / "source", tree / "repo", "small-task")
    public = tree / "source/small-task/prepared/public"
    pq.write_table(pa.table({"a": [1]}), public / "more.parquet")
    good = hashlib.md5((public / "train.csv").read_bytes()).hexdigest()
    write(
        tree / "repo/mlebench/competitions/small-task/checksums.yaml",
        f"public:\n  train.csv: {good}\n  test.csv: '00'\n  more.parquet: '00'\nzip: '00'\n",
    )
    issues = importing(tree, "mle-bench").known_issues["small-task"]
    assert issues == ["`public/test.csv` differs from the file that MLE-bench recorded"]


def test_answers_in_json_lines_and_boards_of_another_column_order_are_read(tree):
    bench_task(tree / "source", tree / "repo", "small-task")
    entry = tree / "repo/mlebench/competitions/small-task"
    lines = "".join(json.dumps({"id": i, "y": value}) + "\n" for i, value in enumerate(TRUTH, 1))
    write(tree / "source/small-task/prepared/private/test.jsonl", lines)
    write(entry / "config.yaml", (entry / "config.yaml").read_text().replace("private/test.csv", "private/test.jsonl"))
    write(
        entry / "grade.py",
        "def grade(submission, answers):\n    return abs(submission['y'].sum() - sum(row['y'] for row in answers))\n",
    )
    write(entry / "leaderboard.csv", board(0.1, 9.0, columns="scoreNullable,score"))
    importing(tree, "mle-bench")
    assert grade(imported(tree)["small-task"], csv("id,y", TRUTH).encode()).q == 1.0


def test_a_grader_that_lacks_a_package_is_our_failure_and_names_it(tree):
    bench_task(tree / "source", tree / "repo", "small-task")
    write(tree / "repo/mlebench/competitions/small-task/grade.py", "import no_such_package_of_ours\n")
    importing(tree, "mle-bench")
    with pytest.raises(UnavailableError, match="no_such_package_of_ours"):
        grade(imported(tree)["small-task"], csv("id,y", TRUTH).encode())


def test_a_grader_that_cannot_be_loaded_is_our_failure_and_not_the_submissions(tree):
    bench_task(tree / "source", tree / "repo", "small-task")
    write(tree / "repo/mlebench/competitions/small-task/grade.py", "from json import no_such_name\n")
    dojo_task(tree / "source", tree / "repo", "broken-task")
    write(tree / "repo/mledojo/competitions/broken-task/utils/metric.py", "value = 1\n")
    importing(tree, "mle-bench", tasks=("small-task",))
    with pytest.raises(UnavailableError, match="cannot be loaded: ImportError"):
        grade(imported(tree)["small-task"], csv("id,y", TRUTH).encode())
    with pytest.raises(StageError, match="no subclass of CompetitionMetrics"):
        importing(tree, "mle-dojo", tasks=("broken-task",), force=True)


def test_a_grader_that_falls_over_a_submission_refuses_it(tree):
    dojo_task(tree / "source", tree / "repo", "small-task")
    importing(tree, "mle-dojo")
    graded = grade(imported(tree)["small-task"], b"id,y\n1,expensive\n")
    assert graded.refusal is Refusal.GRADER and "grader raised" in graded.reason


def test_many_images_are_one_entry_of_the_inventory(tree):
    dojo_task(tree / "source", tree / "repo", "small-task")
    for index in range(25):
        write(tree / f"source/small-task/data/public/train/{index:03d}.png", "x")
    importing(tree, "mle-dojo")
    (entry,) = [file for file in imported(tree)["small-task"].inventory if file.kind == "image"]
    assert entry.path == "train/*.png (25 files, such as 000.png)" and entry.bytes == 25


def test_the_papers_split_has_its_59_tasks_in_their_categories():
    split = list(paper_split().values())
    count = {pair: split.count(pair) for pair in set(split)}
    assert count == {
        ("train", "tabular"): 15, ("train", "text"): 15, ("train", "image"): 15,
        ("held_out", "tabular"): 5, ("held_out", "text"): 4, ("held_out", "image"): 5,
    }  # fmt: skip
    assert all(registry()["known_issues"].values())


def test_a_task_of_the_papers_split_gets_its_split_and_category(tree):
    dojo_task(tree / "source", tree / "repo", "afsis-soil-properties")
    dojo_task(tree / "source", tree / "repo", "leaf-classification")
    importing(tree, "mle-dojo")
    tasks = imported(tree)
    assert (tasks["afsis-soil-properties"].split, tasks["afsis-soil-properties"].category) == ("held_out", "tabular")
    assert (tasks["leaf-classification"].split, tasks["leaf-classification"].category) == ("train", "image")


def test_a_folder_with_nothing_in_it_is_an_error_that_says_what_belongs_there(tree):
    with pytest.raises(StageError) as caught:
        importing(tree, "mle-bench")
    assert "prepared/public" in caught.value.hint


def test_a_table_of_another_suite_is_not_replaced_unasked(tree):
    dojo_task(tree / "source", tree / "repo", "small-task")
    importing(tree, "mle-dojo")
    bench_task(tree / "source", tree / "repo", "other-task")
    with pytest.raises(ConfigError, match="holds the suite `mle-dojo`"):
        importing(tree, "mle-bench", tasks=("other-task",))
    importing(tree, "mle-bench", tasks=("other-task",), force=True)
    assert list(imported(tree)) == ["other-task"]


def test_numpy_arrays_with_objects_in_a_public_folder_are_not_unpickled(tree):
    dojo_task(tree / "source", tree / "repo", "small-task")
    np.save(tree / "source/small-task/data/public/odd.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    importing(tree, "mle-dojo")
    (entry,) = [file for file in imported(tree)["small-task"].inventory if file.path == "odd.npy"]
    assert entry.kind == "other" and entry.shape is None
