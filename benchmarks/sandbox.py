"""What a sandbox costs: start-up of each backend, side by side in one run, and our memory while a script prints 10 GB.

    python benchmarks/sandbox.py [--runs 40] [--image NAME] [--gigabytes 10] [--podman ADDRESS]

Rounds alternate between the backends, so that a busy moment of the machine meets all of them. "bare" is
`subprocess.run` of the same interpreter and script without any limit: the floor. Memory is what the output itself
costs: a small flood goes before the large one, so that what a backend loads once is not counted. `--runs 0` leaves
the start-up out.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from wmrl_cli.errors import UnavailableError
from wmrl_cli.sandbox import open_sandbox
from wmrl_cli.sandbox.base import Ending, Job, Limits, Sandbox

ENGINES = ("docker", "podman")
EMPTY = "pass"
FLOOD = "import os\nblock = b'x' * (1 << 20)\nleft = {}\nwhile left:\n    os.write(1, block)\n    left -= 1"


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        boxes = open_boxes(folder, options.image, options.podman)
        if options.runs:
            times = measure(boxes, folder, options.runs)
            show(times, rates(boxes, folder, options.runs))
        for name, box in boxes.items():
            seconds, grown = flood(box, folder, options.gigabytes)
            print(
                f"{name:16} {options.gigabytes} GB of output in {seconds:.1f} s, our memory grew by {grown / 1e6:.1f} MB"
            )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--image", default=None, help="image of the docker backend [default: the users' one]")
    parser.add_argument("--podman", default=None, help="address of Podman's socket [default: Podman is left out]")
    parser.add_argument("--gigabytes", type=int, default=10)
    return parser.parse_args()


def open_boxes(folder: Path, image: str | None, podman: str | None) -> dict[str, Sandbox]:
    boxes = {}
    for name in ("unsafe-process", "bubblewrap", "docker", *(["podman"] if podman else [])):
        if name == "podman":
            os.environ["DOCKER_HOST"] = str(podman)  # the last one: the others are open
        try:
            backend = "docker" if name in ENGINES else name
            boxes[name] = open_sandbox(backend, image=image, scratch=folder / name)
        except UnavailableError as error:
            print(f"left out: {error.message}", file=sys.stderr)
    return boxes


def job(folder: Path, script: str) -> Job:
    data = folder / "data"
    data.mkdir(exist_ok=True)
    return Job(job_id="benchmark", script=script, data_dir=data, limits=Limits(wall_s=600, output_kill_bytes=1 << 50))


def run(box: Sandbox, a_job: Job) -> float:
    started = time.perf_counter()
    result = box.run(a_job)
    assert result.ending is Ending.EXITED, result.detail
    return time.perf_counter() - started


def bare(folder: Path) -> float:
    script = folder / "solution.py"
    script.write_text(EMPTY)
    started = time.perf_counter()
    subprocess.run([sys.executable, str(script)], check=True, capture_output=True)
    return time.perf_counter() - started


def measure(boxes: dict[str, Sandbox], folder: Path, runs: int) -> dict[str, list[float]]:
    """Seconds of each run of an empty script, one at a time; engines are ten times slower and get fewer."""
    times: dict[str, list[float]] = {"bare": [], **{name: [] for name in boxes}}
    for number in range(runs):
        times["bare"].append(bare(folder))
        for name, box in boxes.items():
            if name not in ENGINES or number % 4 == 0:
                times[name].append(run(box, job(folder, EMPTY)))
    return times


def rates(boxes: dict[str, Sandbox], folder: Path, runs: int) -> dict[str, float]:
    """Runs of an empty script per second, two at a time."""
    found = {}
    with ThreadPoolExecutor(2) as pool:
        for name, box in boxes.items():
            count = max(1, runs // 4) if name in ENGINES else runs
            started = time.perf_counter()
            list(pool.map(lambda _, box=box: run(box, job(folder, EMPTY)), range(count)))  # type: ignore[misc]
            found[name] = count / (time.perf_counter() - started)
    return found


def show(times: dict[str, list[float]], per_second: dict[str, float]) -> None:
    plain = statistics.median(times.get("unsafe-process", times["bare"]))
    print(f"{'backend':16} {'median':>9} {'fastest':>9} {'x plain':>9} {'runs/s':>9}")
    for name, values in times.items():
        median = statistics.median(values)
        rate = f"{per_second[name]:9.1f}" if name in per_second else f"{'':9}"
        print(f"{name:16} {median * 1e3:6.0f} ms {min(values) * 1e3:6.0f} ms {median / plain:9.2f} {rate}")


def flood(box: Sandbox, folder: Path, gigabytes: int) -> tuple[float, float]:
    """Seconds, and bytes by which the peak of our resident memory grew, while a script printed."""
    run(box, job(folder, FLOOD.format(100)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = run(box, job(folder, FLOOD.format(gigabytes * 1000)))
    return seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024.0


if __name__ == "__main__":
    main()
