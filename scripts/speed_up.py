"""How much faster a step is than executing everything: both are really run, every script in a fresh sandbox.

    python scripts/speed_up.py --tasks data/tasks.parquet --out speed --steps 10

Runs `wmrl train` twice with the same seed, tasks and slots, once with `--anchor-frac 0.1` and once with
`--anchor-frac 1`, one after the other on an otherwise idle machine, and prints the seconds by stage.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

STAGES = ("generate", "simulate", "execute", "wait", "train", "step")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--sandbox", default="bubblewrap")
    parser.add_argument("--slots", default="2")
    options = parser.parse_args()
    seconds = {share: run(options, share) for share in ("0.1", "1")}
    print(f"seconds per step, mean of {options.steps} (sandbox {options.sandbox}, {options.slots} slots)\n")
    print("| executed share | " + " | ".join(STAGES) + " |\n|" + "---|" * (len(STAGES) + 1))
    for share, means in seconds.items():
        print(f"| {share} | " + " | ".join(f"{means[stage]:.2f}" for stage in STAGES) + " |")
    print(f"\nmeasured speed-up: {seconds['1']['step'] / seconds['0.1']['step']:.2f}x")
    print(f"speed-up that the run with anchors reported of itself: {seconds['0.1']['speed_up']:.2f}x")


def run(options: argparse.Namespace, share: str) -> dict[str, float]:
    folder = options.out / f"share-{share}"
    command = [
        *(sys.executable, "-m", "wmrl_cli", "train", "--anchor-frac", share, "--tasks", str(options.tasks)),
        *("--steps", str(options.steps), "--sandbox", options.sandbox, "--slots", options.slots, "-o", str(folder)),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    table = pq.read_table(folder / "metrics.parquet").to_pydict()
    means = {stage: float(np.mean(np.array(table[f"seconds_{stage}"], dtype=float))) for stage in STAGES}
    reported = np.array(table["speed_up"], dtype=float)
    return {**means, "speed_up": float(np.nanmean(reported))}


if __name__ == "__main__":
    main()
