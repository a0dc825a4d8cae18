"""`wmrl execute` on real tables and real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.sandbox.boxes import open_box
from tests.sandbox.tasks import make_task, write_tasks
from tests.stages.test_execute import turns, write_trajectories
from wmrl_cli.__main__ import run
from wmrl_cli.tables import SCORES, read_table

GOOD = "open('submission.csv', 'w').write('id,y\\n1,1\\n2,2\\n')"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    open_box("bubblewrap", tmp_path / "scratch")  # skipped, or failed in CI, where there is none
    monkeypatch.chdir(tmp_path)
    write_tasks(tmp_path, make_task(tmp_path))
    rows = turns(steps=1, groups=2, members=2, turns=1)
    for row, script in zip(rows, [GOOD, None, "1 / 0", "pass"], strict=True):
        row["script"] = script
    write_trajectories(tmp_path / "t.parquet", rows)
    return tmp_path


def call(*arguments):
    return run(["execute", "t.parquet", "-o", "real.parquet", "--sandbox", "bubblewrap", "--slots", "1", *arguments])


def test_scripts_become_scores_and_totals(folder, capsys):
    assert call("--anchor-frac", "1", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    scores = read_table(SCORES, folder / "real.parquet")
    assert scores.column("status").to_pylist() == ["valid", "malformed", "runtime_error", "no_submission"]
    assert scores.column("reward").to_pylist() == [1.0, 0.0, 0.1, 0.2]
    assert (result["scripts"], result["executed"], result["lost"]) == (4, 3, 0)
    assert result["wall_s"] > 0 and "network=none" in result["enforcement"]
    before = (folder / "real.parquet").stat().st_mtime_ns
    assert call("--anchor-frac", "1") == 0  # done already
    assert (folder / "real.parquet").stat().st_mtime_ns == before
    assert call("--anchor-frac", "0.5") == 2  # another configuration's table is not overwritten
    assert "--force" in capsys.readouterr().err


def test_shards_together_do_everything_once(folder):
    for shard in ("0/2", "1/2"):
        assert (
            run(
                [
                    "execute",
                    "t.parquet",
                    "-o",
                    f"{shard[0]}.parquet",
                    "--sandbox",
                    "unsafe-process",
                    "--anchor-frac",
                    "1",
                    "--shard",
                    shard,
                ]
            )
            == 0
        )
    done = [
        row
        for shard in "01"
        for row in read_table(SCORES, folder / f"{shard}.parquet").column("trajectory_id").to_pylist()
    ]
    assert sorted(done) == ["0-0-0", "0-0-1", "0-1-0", "0-1-1"]


def test_a_dry_run_does_nothing_and_says_what_would_be_done(folder, capsys):
    assert call("--anchor-frac", "1", "--dry-run", "--json", "--wall-limit", "10") == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["scripts"], result["left"], result["at_most_s"], result["expected_s"]) == (4, 4, 40.0, None)
    assert not (folder / "real.parquet").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--anchor-frac", "1.5"], 2, "[0, 1]"),
        (["--shard", "3/2"], 2, "i/n"),
        (["--sandbox", "nowhere"], 2, "nowhere"),
        (["--memory", "1000000"], 2, "this machine has"),
        (["--tasks", "gone.parquet"], 3, "gone.parquet"),
        (["--sandbox", "docker", "--config", "image.toml"], 4, "docker"),
        (["--config", "wrong.toml"], 2, "wall_ss"),
        (["--config", "none.toml"], 2, "`shm_gib` must be above 0"),
        (["--config", "few.toml"], 2, "`processes` must be at least 8"),
    ],
)
def test_bad_input_is_a_sentence_with_the_right_exit_code(folder, capsys, arguments, code, words):
    (folder / "image.toml").write_text('[sandbox]\nimage = "no-such-image:1"\n')
    (folder / "few.toml").write_text("[sandbox]\nprocesses = 1\n")
    (folder / "none.toml").write_text("[sandbox]\nshm_gib = 0\n")
    (folder / "wrong.toml").write_text("[sandbox]\nwall_ss = 1.0\n")
    assert call("--anchor-frac", "1", *arguments) == code
    said = capsys.readouterr().err
    assert "error:" in said and words in said and "Traceback" not in said
    assert not (folder / "real.parquet").exists()


def test_trajectories_that_are_not_there_are_named_and_not_their_tasks(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["execute", "nothing.parquet", "-o", "real.parquet"]) == 3
    said = capsys.readouterr().err
    assert "nothing.parquet" in said and "tasks" not in said


def test_the_file_sets_every_limit_and_may_let_an_unfinished_submission_count(folder):
    late = f"{GOOD}\nimport subprocess\n[subprocess.Popen(['sleep', '9']) for _ in range(20)]\n1 / 0"
    rows = turns(steps=1, groups=1, members=2, turns=1)
    for row, script in zip(rows, [late, "open('big', 'wb').write(bytes(3 << 20))"], strict=True):
        row["script"] = script
    write_trajectories(folder / "t.parquet", rows)
    for name, more in (("plain", ""), ("counted", "count_unfinished = true\nfile_gib = 0.002\nprocesses = 16\n")):
        (folder / f"{name}.toml").write_text(f"[sandbox]\n{more}")
        assert call("--anchor-frac", "1", "--config", f"{name}.toml", "--force") == 0
        scores = read_table(SCORES, folder / "real.parquet")
        if name == "plain":
            assert scores.column("status").to_pylist() == ["runtime_error", "no_submission"]
            assert scores.column("raw_metric").to_pylist() == [0.0, None], "noted, although it did not count"
        else:
            assert scores.column("status").to_pylist() == ["valid", "runtime_error"]
            assert "processes" in scores.column("detail").to_pylist()[0]
            assert scores.column("error_class").to_pylist()[1] == "OSError"


def test_data_that_changed_since_preparation_are_refused(folder, capsys):
    (folder / "pair" / "public" / "train.csv").write_text("x,y\n1,7\n")
    assert call("--anchor-frac", "1") == 3
    assert "changed since it was prepared" in capsys.readouterr().err


def test_ctrl_c_keeps_finished_parts_and_the_same_command_goes_on(folder):
    rows = turns(steps=1, groups=1, members=3, turns=1)
    for row, script in zip(
        rows, [GOOD, "import os, time\nos.path.exists('input/slow') and time.sleep(60)", "pass"], strict=True
    ):
        row["script"] = script
    write_trajectories(folder / "t.parquet", rows)
    (folder / "pair" / "public" / "slow").touch()
    write_tasks(folder, make_task(folder))
    command = [
        sys.executable,
        "-m",
        "wmrl_cli",
        "execute",
        "t.parquet",
        "-o",
        "real.parquet",
        "--sandbox",
        "bubblewrap",
    ]
    command += ["--anchor-frac", "1", "--batch-rows", "1", "--slots", "1", "--wall-limit", "90"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=folder) as process:
        deadline = time.monotonic() + 90
        while not list(folder.glob(".real.parquet.*/000000.scores.parquet")):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.1)
        time.sleep(0.5)
        os.kill(process.pid, signal.SIGINT)
        started = time.monotonic()
        process.communicate(timeout=60)
    assert time.monotonic() - started < 15
    assert process.returncode == 130
    assert not (folder / "real.parquet").exists()
    part = next(folder.glob(".real.parquet.*/000000.scores.parquet"))
    assert read_table(SCORES, part).num_rows == 1
