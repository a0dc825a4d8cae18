"""What calibrating costs: the map beside a bare scikit-learn fit, the online replay, and a whole report.

    python benchmarks/calibrate.py                     # a table: seconds of one core, refits, peak memory
    python benchmarks/calibrate.py --pairs 100000      # smaller

The two fits see the same arrays, in turn, and the fastest of `--repeats` counts. Seconds are processor time
with one thread, so other work on the machine does not change them. The whole command reads Parquet that was
written before, and runs in a process of its own, whose peak memory is its largest resident set.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.isotonic import IsotonicRegression

from wmrl_cli.maths.calibration import Floats, fit_isotonic
from wmrl_cli.maths.online import OnlineCalibrator
from wmrl_cli.maths.pair_log import make_log
from wmrl_cli.maths.replay import replay


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=1_000_000, help="pairs of the fit and of the whole command")
    parser.add_argument("--replayed", type=int, default=100_000, help="pairs of the online replay")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--command", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.command:
        print(json.dumps(whole_command(options.command)))
        return
    predicted, real = scores(options.pairs)
    ours = fastest(lambda: fit_isotonic(predicted, real), options.repeats)
    bare = fastest(lambda: bare_fit(predicted, real), options.repeats)
    seconds, fits = replayed(options.replayed)
    whole = run_apart(options.pairs)
    print(
        f"fit of {options.pairs:,} pairs        {ours:8.2f} s   scikit-learn alone {bare:.2f} s, ratio {ours / bare:.2f}"
    )
    print(f"replay of {options.replayed:,} pairs   {seconds:8.2f} s   {fits:,} fits of a window of 5,000")
    print(f"calibrate, {options.pairs:,} pairs    {whole['seconds']:8.2f} s   peak memory {whole['peak_mib']:,.0f} MiB")


def scores(pairs: int) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(0)
    real = rng.random(pairs)
    return np.clip(real**2 + rng.normal(0, 0.1, pairs), 0, 1), real


def bare_fit(predicted: Floats, real: Floats) -> IsotonicRegression:
    return IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(predicted, real)


def fastest(work: Callable[[], object], repeats: int) -> float:
    """Processor seconds of the fastest of some calls."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def replayed(pairs: int) -> tuple[float, int]:
    """Processor seconds and fits of an online replay, groups of eight, one a step."""
    predicted, real = scores(pairs)
    log = make_log(predicted, real, groups=np.arange(pairs) // 8)
    calibrator = OnlineCalibrator()
    start = time.process_time()
    for _ in replay(log, calibrator):
        pass
    return time.process_time() - start, calibrator.map.version


def run_apart(pairs: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.parquet"
        predicted, real = scores(pairs)
        group = np.arange(pairs) // 8
        columns = {"predicted": predicted, "real": real, "group_id": group, "task_id": group % 45, "step": group // 2}
        pq.write_table(pa.table(columns), path)
        done = subprocess.run([sys.executable, __file__, "--command", str(path)], check=True, capture_output=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def whole_command(path: Path) -> dict[str, float]:
    """Read, fit, judge, replay to tables, report."""
    from wmrl_cli.__main__ import run

    start = time.process_time()
    with open(os.devnull, "w") as nowhere:
        kept, sys.stdout = sys.stdout, nowhere
        outputs = ["-o", "c.json", "--report", "r.html", "--online", "pairs-online.parquet"]
        named = [str(path.parent / part) if not part.startswith("-") else part for part in outputs]
        code = run(["calibrate", str(path), *named, "--json", "--quiet"])
        sys.stdout = kept
    if code:
        raise SystemExit(code)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 10 if sys.platform != "darwin" else 1 << 20)
    return {"seconds": time.process_time() - start, "peak_mib": peak}


if __name__ == "__main__":
    main()
