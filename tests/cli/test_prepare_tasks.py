"""`wmrl prepare-tasks` as a person and as a script use it: exit codes, streams, tables."""

import json
from types import SimpleNamespace

import pytest

from tests.benchmarks.trees import dojo_task
from wmrl_cli.__main__ import run
from wmrl_cli.benchmarks.suites import load_tasks
from wmrl_cli.tables import TASKS, check_kind


@pytest.fixture
def wmrl(capsys, monkeypatch):
    """Call the command; returns its exit code and what it wrote to both streams."""
    monkeypatch.setenv("COLUMNS", "160")

    def call(*words):
        code = run(["prepare-tasks", *map(str, words)])
        written = capsys.readouterr()
        return SimpleNamespace(returncode=code, stdout=written.out, stderr=written.err)

    return call


def test_the_offline_suite_is_prepared_and_said_as_json(wmrl, tmp_path):
    done = wmrl("offline", "-o", tmp_path, "--tasks", "wine-cultivar,digit-images", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert [line["task_id"] for line in said["tasks"]] == ["digit-images", "wine-cultivar"]
    wine = said["tasks"][1]
    assert (wine["metric"], wine["rows"], wine["test_rows"], wine["columns"], wine["board"]) == (
        "macro_f1",
        107,
        71,
        9,
        129,
    )
    assert len(load_tasks(tmp_path / "tasks.parquet")) == 2
    assert check_kind(TASKS, tmp_path / "tasks.parquet")["config"]["suite"] == "offline"


def test_a_person_gets_a_table_with_metric_rows_and_board(wmrl, tmp_path):
    done = wmrl("offline", "-o", tmp_path, "--tasks", "tumour-malignant")
    assert "1 training and 0 held-out tasks" in done.stdout
    line = next(line for line in done.stdout.splitlines() if line.startswith("tumour-malignant"))
    assert line.split()[:5] == ["tumour-malignant", "train", "tabular", "roc_auc", "↑"]
    assert "\x1b[" not in done.stdout


def test_the_list_of_tasks_writes_nothing(wmrl, tmp_path):
    done = wmrl("offline", "--list", "--json")
    said = json.loads(done.stdout)
    assert len(said["tasks"]) >= 20 and all(line["licence"] and line["source"] for line in said["tasks"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("offlin", "-o", "x"), "suite `offlin`", "did you mean `offline`"),
        (("offline", "-o", "x", "--tasks", "wine"), "task `wine`", "did you mean `wine-cultivar`"),
        (("offline",), "needs `-o DIR`", "-o data/"),
        (("mle-dojo", "-o", "x"), "needs `--from DIR`", "data/public"),
        (("mle-bench", "-o", "x", "--from", "/no/such/folder"), "`/no/such/folder` is not a folder", "prepared/public"),
        (("offline", "-o", "x", "--from", "."), "needs no `--from`", "installed packages"),
    ],
)
def test_wrong_words_are_named_with_the_next_step_and_exit_code_2(wmrl, tmp_path, monkeypatch, words, message, hint):
    monkeypatch.chdir(tmp_path)
    done = wmrl(*words)
    assert done.returncode == 2 and done.stdout == ""
    assert message in done.stderr and hint in done.stderr and "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_failed_task_is_said_on_stderr_and_decides_the_exit_code_only_when_asked(wmrl, tmp_path):
    for name in ("good-task", "bad-task"):
        dojo_task(tmp_path / "source", tmp_path / "repo", name)
    (tmp_path / "source/bad-task/data/private/test_answer.csv").unlink()
    words = ("mle-dojo", "--from", tmp_path / "source", "--repo", tmp_path / "repo", "-o", tmp_path / "out", "--json")
    done = wmrl(*words)
    assert done.returncode == 0
    assert json.loads(done.stdout)["failures"][0]["trouble"] == "no_answers"
    assert "`bad-task` is left out (no_answers)" in done.stderr
    assert wmrl(*words, "--strict").returncode == 1
    (tmp_path / "source/good-task/data/private/test_answer.csv").unlink()
    assert wmrl(*words).returncode == 1
