"""What a container used, from its own control group and from nobody else's."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.sandbox.boxes import open_box
from tests.sandbox.engine_stub import Behaviour, stubbed
from wmrl_cli.sandbox.base import MIB, Ending, Job, Limits
from wmrl_cli.sandbox.cgroups import V1, V2, Group, Usage
from wmrl_cli.sandbox.container.witness import Places, container_group

ID = "ab12" * 16
ENGINES = [pytest.param(kind, marks=pytest.mark.docker) for kind in ("docker", "podman")]
TOO_MANY = "import os, time\nfor _ in range(500):\n    if os.fork() == 0:\n        time.sleep(30)\n        os._exit(0)"
FILES_V2 = {
    "cpu.stat": "usage_usec 2500000\nuser_usec 1",
    "memory.peak": "4096",
    "memory.events": "low 0\noom 1\noom_kill 1",
    "pids.events": "max 3",
}
USED = Usage(cpu_s=2.5, memory_peak_bytes=4096, oom_kills=1, refused_processes=3)


def job(folder: Path, script: str, **limits) -> Job:
    data = folder / "data"
    data.mkdir(exist_ok=True)
    return Job(job_id="x", script=script, data_dir=data, limits=Limits(wall_s=120, **limits))


def proc_of(folder: Path, groups: str, mounts: list[str]) -> Path:
    """A copy of the two files of /proc that say where the group of process 7 lies."""
    for name, file, text in (("7", "cgroup", groups), ("self", "mountinfo", "\n".join(mounts))):
        (folder / "proc" / name).mkdir(parents=True)
        (folder / "proc" / name / file).write_text(text)
    return folder / "proc"


def version_2(folder: Path, path: str, root: str = "/") -> Path:
    (folder / "cg" / path).mkdir(parents=True)
    for name, text in FILES_V2.items():
        (folder / "cg" / path / name).write_text(text)
    inside = f"{root.rstrip('/')}/{path}"
    return proc_of(folder, f"0::{inside}\n", [f"31 24 0:27 {root} {folder}/cg rw - cgroup2 cgroup2 rw"])


@pytest.mark.parametrize(
    ("path", "root"),
    [
        (f"system.slice/docker-{ID}.scope", "/"),
        (f"user.slice/libpod-{ID}.scope/container", "/"),  # Podman with crun
        (f"docker/{ID}", "/outer"),  # a subtree is mounted
    ],
)
def test_a_group_of_version_2_is_found_and_read(tmp_path, path, root):
    group = container_group(7, ID, version_2(tmp_path, path, root))
    assert group is not None and group.version == V2 and group.usage() == USED


def test_groups_of_version_1_are_found_controller_by_controller(tmp_path):
    files = {
        "memory": {"memory.max_usage_in_bytes": "4096", "memory.oom_control": "under_oom 0\noom_kill 1"},
        "pids": {"pids.events": "max 3"},
        "cpuacct": {"cpuacct.usage": "2500000000"},
    }
    for controller, found in files.items():
        for name, text in found.items():
            target = tmp_path / controller / "docker" / ID / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
    groups = "".join(f"{n}:{controller}:/docker/{ID}\n" for n, controller in enumerate(files, 1)) + f"0::/docker/{ID}\n"
    mounts = [f"{n} 24 0:{n} / {tmp_path}/{c} rw - cgroup cgroup rw,{c}" for n, c in enumerate(files, 1)]
    group = container_group(7, ID, proc_of(tmp_path, groups, mounts))
    assert group is not None and group.version == V1 and group.usage() == USED


def test_a_process_of_another_machine_is_mistaken_for_none_of_ours(tmp_path):
    assert container_group(os.getpid(), ID) is None  # a process of ours that happens to have the number
    assert container_group(2**22 + 1, ID) is None  # no process at all
    assert container_group(7, "cd34" * 16, version_2(tmp_path, f"docker/{ID}")) is None
    above = proc_of(tmp_path / "2", f"0::/../../docker/{ID}\n", [f"31 24 0:27 / {tmp_path} rw - cgroup2 cgroup2 rw"])
    assert container_group(7, ID, above) is None  # of another cgroup namespace: not below our mount


def test_the_engines_number_of_a_stranger_is_not_believed(tmp_path):
    behaviour = Behaviour()
    behaviour.state |= {"Pid": os.getpid(), "ExitCode": 1}
    with stubbed(tmp_path, behaviour) as box:
        result = box.run(job(tmp_path, "pass"))
    assert result.ending is Ending.FAILED and result.enforcement["evidence"] == "engine"
    assert result.cpu_s is None and result.peak_memory_bytes is None


def test_where_one_group_was_the_next_is_looked_for():
    places, other = Places(), "cd34" * 16
    assert places.of(other) is None
    places.learn(Group(V2, {"memory": Path(f"/x/docker-{ID}.scope")}), ID)
    assert places.of(other) == Group(V2, {"memory": Path(f"/x/docker-{other}.scope")})


@pytest.mark.parametrize("kind", ENGINES)
def test_a_script_that_fails_at_once_at_its_limit_of_processes_is_caught(kind, tmp_path):
    """Measured: 50 of 50 on either engine. Where the machine is so busy that the last look comes too late, as in one
    run of some hundreds, the ending is the exit code's."""
    box = open_box(kind, tmp_path / "scratch")
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: box.run(job(tmp_path, TOO_MANY, processes=40)), range(8)))
    assert {result.ending for result in found} <= {Ending.RESOURCE_LIMIT, Ending.FAILED}
    assert sum(result.ending is Ending.RESOURCE_LIMIT for result in found) >= 6


@pytest.mark.parametrize("kind", ENGINES)
def test_the_peak_and_the_processor_time_are_the_groups(kind, tmp_path):
    box = open_box(kind, tmp_path / "scratch")
    script = "import time\nx = bytearray(80 << 20)\ndel x\nwhile time.process_time() < 0.5: pass"
    result = box.run(job(tmp_path, script))
    assert result.enforcement["evidence"].startswith("cgroup")
    assert 80 * MIB <= result.peak_memory_bytes < 160 * MIB and 0.5 <= result.cpu_s < 2.0


@pytest.mark.parametrize("kind", ENGINES)
def test_an_engine_whose_groups_we_do_not_see_is_asked_instead(kind, tmp_path, monkeypatch):
    monkeypatch.setattr("wmrl_cli.sandbox.container.witness.container_group", lambda pid, container_id: None)
    box = open_box(kind, tmp_path / "scratch")
    script = "import time\nx = bytearray(80 << 20)\nwhile time.process_time() < 2.0: pass"
    result = box.run(job(tmp_path, script))
    assert result.ending is Ending.EXITED and result.enforcement["evidence"] == "engine"
    assert result.cpu_s > 0 and result.peak_memory_bytes >= 80 * MIB
    endless = box.run(job(tmp_path, "while True: pass", cpu_s=1.0))
    assert endless.ending in (Ending.TIMEOUT, Ending.FAILED)  # the kernel may be quicker than the engine's count
