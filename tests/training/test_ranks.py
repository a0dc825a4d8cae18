"""`torchrun -m wmrl_cli train` for real: two ranks end as one does, go on where the other left, and fail as one."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from wmrl_cli.__main__ import run
from wmrl_cli.tables import ANCHOR_PAIRS, METRICS, SCORES, TRAJECTORIES, read_table

pytestmark = pytest.mark.slow

STEPS = 3
OPTIONS = f"--model tiny --anchor-frac 0.5 --steps {STEPS} --groups-per-step 3 --group-size 4 --checkpoint-every 1"
SANDBOX = "--sandbox unsafe-fork --slots 2"
SETTINGS = "[calibration]\nmin_pairs = 8\nrefit_every = 4\n"  # the last step has a map and a rho
CLOCKS = ("seconds", "_s", "speed_up", "peak_memory")  # what a clock or the system measured, and no seed decides
# torchrun gives all ranks one command; this wrapper lets a test tell one from the other.
PER_RANK = 'exec >"$LOGS/out.$RANK" 2>"$LOGS/err.$RANK"; '


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    names = "wine-cultivar,tumour-malignant"
    assert run(["prepare-tasks", "offline", "--tasks", names, "-o", str(folder), "--quiet"]) == 0
    (folder / "settings.toml").write_text(SETTINGS)
    return folder / "tasks.parquet"


@pytest.fixture(scope="module")
def one(tasks, tmp_path_factory):
    """A whole run in this process."""
    folder = tmp_path_factory.mktemp("runs") / "one"
    assert run(command(tasks, folder)) == 0
    assert read_table(METRICS, folder / "metrics.parquet").column("rho").to_pylist()[-1] > 1
    return folder


def command(tasks: Path, folder: Path | str, sandbox: str = SANDBOX) -> list[str]:
    files = ["--tasks", str(tasks), "--config", str(tasks.with_name("settings.toml")), "-o", str(folder)]
    return ["train", *OPTIONS.split(), *sandbox.split(), *files, "--json", "--quiet"]


def torchrun(*words: str, logs: Path | None = None) -> subprocess.Popen[str]:
    """Two ranks; with `logs`, `words` is a shell script that each of them runs, with its output in that folder."""
    what = ["--no-python", "bash", "-c", PER_RANK + words[0]] if logs else ["-m", "wmrl_cli", *words]
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *what],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "LOGS": str(logs)},
    )


def tables_of(folder: Path, kind) -> list[dict]:
    kept = [name for name in kind.schema.names if not any(clock in name for clock in CLOCKS)]
    paths = sorted(folder.glob(f"steps/*/{kind.name}.parquet"))
    assert len(paths) == STEPS
    return [row for path in paths for row in read_table(kind, path).select(kept).to_pylist()]


def assert_same_run(found: Path, expected: Path, *, digests: bool) -> None:
    """Equal tables and weights but for rounding. `digests`: those of the first step's weights are of equal bits."""
    for kind in (TRAJECTORIES, SCORES, ANCHOR_PAIRS, METRICS):
        ours, theirs = tables_of(found, kind), tables_of(expected, kind)
        assert len(ours) == len(theirs) > 0
        for row, other in zip(ours, theirs, strict=True):
            if not (digests and row.get("step") == 0):
                row.pop("policy_digest", None), other.pop("policy_digest", None)
            assert_close(row, other)
    ours, theirs = load_file(found / "model/model.safetensors"), load_file(expected / "model/model.safetensors")
    assert ours.keys() == theirs.keys()
    whole, other = (torch.cat([weights[name].flatten() for name in sorted(weights)]) for weights in (ours, theirs))
    assert (whole - other).norm() < 1e-4 * other.norm()


def assert_close(found, expected, where=""):
    """Texts, ids, counts and nulls are equal; fractions agree to rounding."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name in expected:
            assert_close(found[name], expected[name], f"{where}.{name}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for place, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_close(one, other, f"{where}[{place}]")
    elif isinstance(expected, float) and math.isfinite(expected):
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-4), where
    else:
        assert found == expected, where


def test_two_ranks_write_and_say_what_one_does_and_the_second_keeps_silent(one, tasks, tmp_path):
    script = f"exec {sys.executable} -m wmrl_cli {' '.join(command(tasks, '$LOGS/run.$RANK'))}"
    job = torchrun(script, logs=tmp_path)
    job.communicate(timeout=120)
    assert job.returncode == 0, (tmp_path / "err.0").read_text() + (tmp_path / "err.1").read_text()
    assert_same_run(tmp_path / "run.0", one, digests=True)
    assert json.loads((tmp_path / "out.0").read_text())["steps"] == STEPS
    assert (tmp_path / "out.1").read_text() == (tmp_path / "err.1").read_text() == ""
    written = [path for path in (tmp_path / "run.1").rglob("*") if path.is_file()]
    assert written and all(path.suffix == ".distcp" for path in written), "its part of the checkpoints, no more"
    digests = {row["policy_digest"] for row in tables_of(tmp_path / "run.0", TRAJECTORIES)}
    assert len(digests) == STEPS, "the copy that samples follows each update"


def test_a_run_of_one_rank_is_ended_by_two(one, tasks, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(one, folder)
    shutil.rmtree(folder / f"checkpoints/{STEPS:05d}")
    job = torchrun(*command(tasks, folder))
    _, errors = job.communicate(timeout=120)
    assert job.returncode == 0, errors
    assert_same_run(folder, one, digests=True)


def test_an_interrupted_run_of_two_ranks_is_ended_by_one(one, tasks, tmp_path):
    folder = tmp_path / "run"
    job = torchrun(*command(tasks, folder))
    wait_for(folder / "checkpoints/00002", job)
    ranks = children(job.pid)
    assert len(ranks) == 2
    job.send_signal(signal.SIGINT)
    output, errors = job.communicate(timeout=60)
    assert "forcefully" not in errors, "torchrun had to kill a rank that did not end by itself"
    assert not any(Path(f"/proc/{rank}").exists() for rank in ranks)
    assert output == "" and errors.count("error: interrupted") == 1
    assert not (folder / "model").exists()
    assert run(command(tasks, folder)) == 0
    assert_same_run(folder, one, digests=True)


def test_when_one_rank_fails_all_end_with_its_exit_code_and_it_alone_says_why(tasks, tmp_path):
    broken = tmp_path / f"wmrl-{os.geteuid()}"
    broken.touch()  # a file where the second rank would make its scratch folder
    script = f'[ "$RANK" = 0 ] || export TMPDIR={tmp_path}; ' + (
        f"exec {sys.executable} -m wmrl_cli {' '.join(command(tasks, tmp_path / 'run', '--sandbox unsafe-process'))}"
    )
    job = torchrun(script, logs=tmp_path)
    _, report = job.communicate(timeout=60)
    assert re.findall(r"exitcode +: (-?\d+)", report) == ["4", "4"], report
    assert (
        (tmp_path / "err.0").read_text() == (tmp_path / "out.0").read_text() == (tmp_path / "out.1").read_text() == ""
    )
    said = (tmp_path / "err.1").read_text()
    assert said.startswith("error: could not make the scratch folder") and said.count("error:") == 1


def wait_for(path: Path, job: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert job.poll() is None, job.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
