"""The comparison in docs/results.md: seven ways to train on the same tasks, several seeds, one common evaluation draw.

    python scripts/study.py --out study --seeds 0 1 2 --jobs 2        # run or go on, then print the table
    python scripts/study.py --out study --table                       # print the table of what is there

Each cell is `wmrl train` and two `wmrl evaluate`, called as a user would call them, so every number comes from
tables that stay in the folder. The fork server (`--sandbox unsafe-fork`) makes the many executions affordable on
a laptop: it starts no fresh process, so its seconds are not the cost of real execution; that is measured by
scripts/speed_up.py.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from wmrl_cli.maths.intervals import clustered_difference, clustered_mean
from wmrl_cli.stages.evaluate import measures

METHODS: dict[str, list[str]] = {
    "wmrl": ["--anchor-frac", "0.1"],
    "world-model-only": ["--anchor-frac", "0"],
    "anchors-only": ["--anchor-frac", "0.1", "--anchors-only"],
    "naive-mix": ["--anchor-frac", "0.1", "--no-debias", "--no-denoise"],
    "grpo-real": ["--anchor-frac", "1"],
    "debias-only": ["--anchor-frac", "0.1", "--no-denoise"],
    "denoise-only": ["--anchor-frac", "0.1", "--no-debias"],
}
SPLITS = ("held_out", "train")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of all runs and tables")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--held-out-samples", type=int, default=64, help="trajectories a held-out task")
    parser.add_argument("--train-samples", type=int, default=24, help="trajectories a training task")
    parser.add_argument("--jobs", type=int, default=1, help="cells that run at once")
    parser.add_argument("--table", action="store_true", help="run nothing, print the table")
    options = parser.parse_args()
    if not options.table:
        run_all(options)
    print_table(options.out, options.methods, options.seeds)


def run_all(options: argparse.Namespace) -> None:
    if not (options.out / "data/tasks.parquet").exists():
        wmrl("prepare-tasks", "offline", "-o", str(options.out / "data"))
    evaluate(options, "tiny", options.out / "start")
    cells = [(method, seed) for seed in options.seeds for method in options.methods]
    with ThreadPoolExecutor(options.jobs) as pool:
        for _ in pool.map(lambda cell: run_cell(options, *cell), cells):
            pass


def run_cell(options: argparse.Namespace, method: str, seed: int) -> None:
    folder = options.out / method / str(seed)
    wmrl(
        "train",
        *METHODS[method],
        *("--tasks", str(options.out / "data/tasks.parquet"), "--steps", str(options.steps), "--seed", str(seed)),
        *("--sandbox", "unsafe-fork", "--slots", "1", "-o", str(folder), "--quiet"),
    )
    evaluate(options, str(folder), folder / "evaluation")


def evaluate(options: argparse.Namespace, model: str, folder: Path) -> None:
    for split, samples in zip(SPLITS, (options.held_out_samples, options.train_samples), strict=True):
        wmrl(
            "evaluate",
            *("--model", model, "--tasks", str(options.out / "data/tasks.parquet"), "--split", split),
            *("--samples", str(samples), "--sandbox", "unsafe-fork", "--slots", "1"),
            *("-o", str(folder / f"{split}.parquet"), "--quiet"),
        )


def wmrl(*arguments: str) -> None:
    """One command, one thread: two cells share two cores."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, "-m", "wmrl_cli", *arguments], check=True, env=environment, stdout=subprocess.DEVNULL
    )


def print_table(out: Path, methods: list[str], seeds: list[int]) -> None:
    """Means over seeds; intervals from a bootstrap over tasks, all seeds' trajectories of a task together."""
    start = {split: pq.read_table(out / "start" / f"{split}.parquet") for split in SPLITS}
    print("| method | seeds | scripts executed | split | reward | valid share | percentile | reward minus start |")
    print("|---|---|---|---|---|---|---|---|")
    for split in SPLITS:
        print(f"| start | - | - | {split} | {_cells(start[split])} | - |")
    for method in methods:
        done = [seed for seed in seeds if (out / method / str(seed) / "evaluation/train.parquet").exists()]
        if not done:
            continue
        executed = np.mean([_executed(out / method / str(seed)) for seed in done])
        for split in SPLITS:
            table = pa.concat_tables(
                [pq.read_table(out / method / str(seed) / f"evaluation/{split}.parquet") for seed in done]
            )
            new, tasks, _ = measures(table)
            old, old_tasks, _ = measures(start[split])
            rise = clustered_difference(new["reward"], tasks, old["reward"], old_tasks, seed=0)
            print(f"| {method} | {len(done)} | {executed:.0f} | {split} | {_cells(table)} | {_words(rise)} |")
    print("\nReward by seed:")
    for method, split, values in _by_seed(out, methods, seeds):
        print(f"  {method:17} {split:9} " + "  ".join(f"{value:.3f}" for value in values))


def _cells(table: pa.Table) -> str:
    values, tasks, _ = measures(table)
    return " | ".join(_words(clustered_mean(values[name], tasks, seed=0)) for name in ("reward", "valid", "percentile"))


def _by_seed(out: Path, methods: list[str], seeds: list[int]) -> Iterator[tuple[str, str, list[float]]]:
    for method in methods:
        for split in SPLITS:
            paths = [out / method / str(seed) / f"evaluation/{split}.parquet" for seed in seeds]
            yield (
                method,
                split,
                [float(measures(pq.read_table(path))[0]["reward"].mean()) for path in paths if path.exists()],
            )


def _executed(run: Path) -> int:
    return int(
        np.nansum(pq.read_table(run / "metrics.parquet", columns=["scripts_executed"])["scripts_executed"].to_numpy())
    )


def _words(interval: object) -> str:
    low, high, middle = interval.low, interval.high, interval.estimate  # type: ignore[attr-defined]
    return f"{middle:.3f} [{low:.3f}, {high:.3f}]" if abs(middle) < 2 else f"{middle:.1f} [{low:.1f}, {high:.1f}]"


if __name__ == "__main__":
    main()
