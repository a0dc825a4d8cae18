"""Many short runs leave nothing behind: no descriptor, process, control group, container or memory.

`WMRL_SOAK=2000` runs the long version.
"""

from __future__ import annotations

import gc
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.sandbox.boxes import groups, open_box, run_folders
from wmrl_cli.sandbox.base import Ending, Job, Limits

RUNS = int(os.environ.get("WMRL_SOAK", "200"))
SCRIPTS = [
    ("open('submission.csv', 'w').write('x')", Ending.EXITED),
    ("1 / 0", Ending.FAILED),
    ("import os\nif os.fork() == 0:\n    os.setsid()\n    while True: pass", Ending.EXITED),
]


def counts() -> dict[str, int]:
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "resident": resident,
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "runs"),
    [("bubblewrap", RUNS), ("unsafe-process", RUNS // 4), pytest.param("docker", RUNS // 10, marks=pytest.mark.docker)],
)
def test_many_runs_leave_everything_as_it_was(kind, runs, tmp_path):
    box = open_box(kind, tmp_path / "scratch")
    data = tmp_path / "data"
    data.mkdir()

    def run(number: int) -> str | None:
        """None where the run ended as it should, else how it ended."""
        script, expected = SCRIPTS[number % len(SCRIPTS)]
        result = box.run(Job(job_id=str(number), script=script, data_dir=data, limits=Limits(wall_s=120), seed=number))
        return None if result.ending is expected else f"run {number}: {result.ending}, {result.detail}, {result.stderr}"

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, range(10)))  # pools and caches are filled
        before = counts()
        wrong = [words for words in pool.map(run, range(runs)) if words]
        after = counts()
    assert wrong == []
    assert after["descriptors"] <= before["descriptors"] + 4
    assert after["threads"] <= before["threads"] + 1
    assert after["resident"] <= before["resident"] + (24 << 20)
    assert groups() == []
    assert list(run_folders(tmp_path)) == []
    if kind == "docker":
        assert box.engine.client.containers.list(all=True, filters={"label": "wmrl.owner"}) == []
