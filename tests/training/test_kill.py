"""A short run of the embedded model, killed at ten random moments and started again each time by the same command."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from wmrl_cli.tables import ANCHOR_PAIRS, METRICS, SCORES, TRAJECTORIES, read_table

KILLS = 10
CLOCKS = ("seconds", "_s", "speed_up", "peak_memory")  # what a clock or the system measured, and no seed decides


def command(tasks: Path, folder: Path) -> list[str]:
    options = "--model tiny --anchor-frac 0.5 --steps 6 --groups-per-step 2 --group-size 4 --checkpoint-every 2"
    sandbox = "--sandbox unsafe-fork --slots 1 --quiet"
    words = [*options.split(), *sandbox.split()]
    return [sys.executable, "-m", "wmrl_cli", "train", *words, "--tasks", str(tasks), "-o", str(folder)]


def test_killed_ten_times_a_run_ends_as_if_nothing_had_happened(tmp_path):
    tasks = tmp_path / "data"
    prepare = ["prepare-tasks", "offline", "--tasks", "wine-cultivar,tumour-malignant", "-o", str(tasks), "--quiet"]
    subprocess.run([sys.executable, "-m", "wmrl_cli", *prepare], check=True, stdout=subprocess.DEVNULL)
    tasks = tasks / "tasks.parquet"

    duration = timed(command(tasks, tmp_path / "whole"))
    whole = Finished(tmp_path / "whole")
    moments = random.Random(0)
    killed = runs = 0
    while killed < KILLS:  # a run that comes through is compared, and the next one begins
        runs += 1
        folder, started = tmp_path / f"killed-{runs}", time.monotonic()
        while not came_through(
            command(tasks, folder), moments.uniform(0.3, 0.9) * duration if killed < KILLS else None
        ):
            killed += 1
        assert Finished(folder) == whole
        duration = min(duration, time.monotonic() - started)  # the machine may have been busier at first


def timed(words: list[str]) -> float:
    """Seconds that the command takes to its end."""
    started = time.monotonic()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - started


def came_through(words: list[str], kill_after: float | None) -> bool:
    """Run the command, killing it after `kill_after` seconds (None: never); whether it ended by itself."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        assert process.wait(kill_after) == 0
        return True
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False


class Finished:
    """What a finished run left: every table but for what clocks filled, and the weights, bit for bit."""

    def __init__(self, folder: Path) -> None:
        self.tables = {
            kind.name: without_clocks(folder, kind) for kind in (TRAJECTORIES, SCORES, ANCHOR_PAIRS, METRICS)
        }
        self.weights = load_file(folder / "model/model.safetensors")

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Finished)
        for name, steps in self.tables.items():
            assert len(steps) == len(other.tables[name]) == 6
            assert all(one.equals(two) for one, two in zip(steps, other.tables[name], strict=True)), name
        assert self.weights.keys() == other.weights.keys()
        return all(bool((self.weights[name] == other.weights[name]).all()) for name in self.weights)


def without_clocks(folder, kind):
    """The kind's table of each step, without the columns that clocks filled."""
    kept = [name for name in kind.schema.names if not any(clock in name for clock in CLOCKS)]
    return [read_table(kind, path).select(kept) for path in sorted(folder.glob(f"steps/*/{kind.name}.parquet"))]


pytestmark = pytest.mark.slow
