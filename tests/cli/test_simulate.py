"""`wmrl simulate` with the embedded model on real task tables."""

from __future__ import annotations

import json

import pytest

from tests.sandbox.tasks import make_task, write_tasks
from wmrl_cli.__main__ import run
from wmrl_cli.tables import SCORES, TRAJECTORIES, read_table


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_tasks(tmp_path, *(make_task(tmp_path, name) for name in ("first", "second", "third")))
    return tmp_path


def call(*arguments):
    return run(["simulate", "tasks.parquet", "--group-size", "2", *arguments, "--quiet"])


def rows(table, path, *columns):
    return read_table(table, path).select(["trajectory_id", *columns]).to_pylist()


def test_shards_together_write_and_predict_what_one_run_does(folder):
    assert call("-o", "whole.parquet", "--scores", "whole-wm.parquet") == 0
    for shard in (0, 1):
        names = ("-o", f"part-{shard}.parquet", "--scores", f"part-wm-{shard}.parquet")
        assert call("--shard", f"{shard}/2", *names) == 0
    for table, name, columns in (
        (TRAJECTORIES, "{}.parquet", ("task_id", "script", "response_ids")),
        (SCORES, "{}-wm.parquet", ("status", "reward")),
    ):
        parts = [name.format("part").replace(".parquet", f"-{shard}.parquet") for shard in (0, 1)]
        together = [row for part in parts for row in rows(table, folder / part, *columns)]
        whole = rows(table, folder / name.format("whole"), *columns)
        assert len(whole) == 6
        assert sorted(together, key=str) == sorted(whole, key=str)


def test_logged_scripts_are_scored_as_they_were_when_they_were_written(folder, capsys):
    assert call("-o", "t.parquet", "--scores", "wm.parquet") == 0
    logged = ["simulate", "--trajectories", "t.parquet", "--tasks", "tasks.parquet", "--json"]
    for shard in (0, 1):
        assert run([*logged, "--shard", f"{shard}/2", "--scores", f"again-{shard}.parquet"]) == 0
    assert json.loads(capsys.readouterr().out.strip().splitlines()[-1])["scored"] == 3
    again = [row for shard in (0, 1) for row in rows(SCORES, folder / f"again-{shard}.parquet", "status", "reward")]
    once = {row["trajectory_id"]: row for row in rows(SCORES, folder / "wm.parquet", "status", "reward")}
    assert len(again) == len(once) == 6
    for row in again:
        assert row["status"] == once[row["trajectory_id"]]["status"]
        assert row["reward"] == pytest.approx(once[row["trajectory_id"]]["reward"], abs=1e-5)


def test_a_shard_without_work_is_refused(folder, capsys):
    assert call("-o", "t.parquet", "--shard", "3/4") == 2
    assert "shard `3/4` has nothing to do: there are 3 tasks" in capsys.readouterr().err
    assert not (folder / "t.parquet").exists()
