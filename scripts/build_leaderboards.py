"""Measure the offline suite's leaderboards again: every reference solution, fitted and scored on every task.

    python scripts/build_leaderboards.py [TASK ...]

Writes `tasks/offline/leaderboards/<task>.json`, best score first. Takes some minutes on one core.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from wmrl_cli.benchmarks.offline import build_task
from wmrl_cli.benchmarks.offline_specs import load_specs, tasks_folder
from wmrl_cli.benchmarks.portfolio import reference_scores
from wmrl_cli.benchmarks.suites import folder_digest


def main(names: list[str]) -> None:
    specs = load_specs()
    boards = tasks_folder() / "offline" / "leaderboards"
    with tempfile.TemporaryDirectory() as scratch:
        for name in names or specs:
            start = time.perf_counter()
            task = build_task(specs[name], Path(scratch) / name, root=Path(scratch), scores=(0.0,))
            scores = reference_scores(task)
            kept = sorted((float(f"{score:.6g}") for score in scores.values()), reverse=task.higher_is_better)
            board = {
                "metric": task.metric,
                "answers": folder_digest(task.private_path),
                "solutions": len(kept),
                "scores": kept,
            }
            (boards / f"{name}.json").write_text(json.dumps(board) + "\n")
            print(
                f"{name}: {len(kept)} solutions, {len(set(kept))} distinct, {kept[0]} to {kept[-1]}, "
                f"{time.perf_counter() - start:.1f} s",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:])
