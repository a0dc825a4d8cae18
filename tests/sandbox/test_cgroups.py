"""Control groups: what is told from the kernel's files alone, and version 2 on a machine that has it.

The tests of the second kind start processes in a scope of systemd's, delegated or not, and are skipped elsewhere:
`scripts/cgroup_v2_vm.sh` runs them in a virtual machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import wmrl_cli
from wmrl_cli.sandbox.base import MIB, Limits
from wmrl_cli.sandbox.cgroups import V2, Group, find_hierarchy

MOUNT = Path("/sys/fs/cgroup")
NO_SYSTEMD = Path("/nowhere")


def fake_proc(tmp_path: Path, unit: str = "user") -> tuple[Path, Path]:
    """A /proc/self and our own control group as files, for what the kernel's words alone decide."""
    root = tmp_path / "groups"
    own = root / unit
    own.mkdir(parents=True)
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text(f"0::/{unit}\n")
    (proc / "mountinfo").write_text(f"30 23 0:26 / {root} rw,nosuid - cgroup2 cgroup2 rw\n")
    for folder in (root, own):
        (folder / "cgroup.controllers").write_text("cpu memory pids")
    (own / "cgroup.procs").touch()
    (own / "cgroup.subtree_control").write_text("")
    return proc, own


def fake_group(folder: Path, controllers: tuple[str, ...] = ("cpu", "memory", "pids")) -> Group:
    """A group whose files are there, as the kernel makes them: all but that of swap, which some kernels lack."""
    folder.mkdir()
    for name in ("memory.max", "pids.max", "cpu.max", "cpu.weight"):
        (folder / name).write_text("max\n")
    return Group(V2, dict.fromkeys(controllers, folder))


def test_a_delegated_group_is_shared_out(tmp_path):
    proc, own = fake_proc(tmp_path)
    hierarchy = find_hierarchy(proc, NO_SYSTEMD).hierarchy
    assert hierarchy is not None and hierarchy.version == V2
    assert hierarchy.folders == dict.fromkeys(("cpu", "memory", "pids"), own)
    assert (own / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"


def test_limits_are_written_in_the_kernels_words(tmp_path):
    group, folder = fake_group(tmp_path / "x"), tmp_path / "x"
    limits = Limits(memory_bytes=7 * MIB, processes=9, cpus=0.5)
    group.write_limits(limits)
    assert (folder / "memory.max").read_text().startswith(str(7 * MIB))
    assert (folder / "pids.max").read_text().startswith("9")
    assert (folder / "cpu.max").read_text() == "50000 100000"
    assert not (folder / "memory.swap.max").exists()
    (folder / "memory.swap.max").write_text("max\n")
    group.write_limits(limits)
    assert (folder / "memory.swap.max").read_text().startswith("0")
    (folder / "memory.max").unlink()
    with pytest.raises(FileNotFoundError):  # never a run without its limit
        group.write_limits(limits)


@pytest.mark.parametrize("controllers", [("cpu", "memory", "pids"), ("memory", "pids")])
def test_usage_is_read_also_where_the_controller_of_processors_is_not_ours(tmp_path, controllers):
    group, folder = fake_group(tmp_path / "x", controllers), tmp_path / "x"
    (folder / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\n")
    (folder / "memory.events").write_text("low 0\noom 2\noom_kill 1\n")
    (folder / "pids.events").write_text("max 3\n")
    used = group.usage()
    assert (used.cpu_s, used.memory_peak_bytes, used.oom_kills, used.refused_processes) == (1.5, None, 1, 3)
    (folder / "memory.peak").write_text("123\n")  # kernels before 5.19 have none
    assert group.usage().memory_peak_bytes == 123


def test_no_writable_group_is_no_group_and_says_so(tmp_path):
    proc, own = fake_proc(tmp_path)
    (own / "cgroup.controllers").write_text("hugetlb")
    found = find_hierarchy(proc, NO_SYSTEMD)
    assert found.hierarchy is None and "no control group" in found.why_none
    assert find_hierarchy(tmp_path / "nowhere").hierarchy is None


@pytest.mark.parametrize(("said", "there"), [("yes", True), ("no", False), ("", False)])
def test_where_systemd_runs_its_word_decides(tmp_path, monkeypatch, said, there):
    proc, own = fake_proc(tmp_path, "run-7.scope")
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    program = bin_folder / "systemctl"
    program.write_text(f'#!/bin/sh\n[ "$1 $2 $5" = "show --property=Delegate run-7.scope" ] && echo {said}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_folder}:/usr/bin:/bin")
    found = find_hierarchy(proc, tmp_path)
    assert (found.hierarchy is not None) is there
    assert there or ("Delegate=yes" in found.why_none and (own / "cgroup.subtree_control").read_text() == "")


PROBE = """
import json, os
from pathlib import Path
from wmrl_cli.sandbox.cgroups import find_hierarchy
found = find_hierarchy()
own = Path("/proc/self/cgroup").read_text().strip().rpartition("/")[2]
there = found.hierarchy
names = sorted(path.name for path in there.folders["memory"].glob("wmrl-*")) if there else []
print(there.version if there else "none", own, *names, found.why_none, flush=True)
"""
THREADED = "import threading, time\nthreading.Thread(target=time.sleep, args=(1,)).start()\n" + PROBE
FORKED = "import subprocess\nchild = subprocess.Popen(['sleep', '60'])\n" + PROBE + "child.kill()\n"


RUNS = """
import subprocess, sys, tempfile
from pathlib import Path
from wmrl_cli.sandbox import open_sandbox
from wmrl_cli.sandbox.base import MIB, Job, Limits
with tempfile.TemporaryDirectory() as folder:
    box = open_sandbox("unsafe-process", scratch=Path(folder) / "scratch")
    for wait_s in (0, 6):
        if wait_s:
            subprocess.Popen(["sh", "-c", 'sleep 3; exec "$@"', "sh", *sys.argv[1:]])
        script = f"import time\\ntime.sleep({wait_s})\\nx = [bytearray(1 << 20) for _ in range(300)]"
        limits = Limits(memory_bytes=64 * MIB, processes=8, wall_s=120)
        done = box.run(Job(job_id="x", script=script, data_dir=Path(folder), limits=limits))
        print(done.ending, done.enforcement["memory"], done.peak_memory_bytes, flush=True)
"""
KILLED = """
import os, sys
from pathlib import Path
from wmrl_cli.sandbox import open_sandbox
from wmrl_cli.sandbox.base import Job, Limits
folder = Path(os.environ["FOLDER"])
box = open_sandbox("unsafe-process", scratch=folder)
if sys.argv[1] == "sweep":
    print(box.sweep())
else:
    script = "import time; open('started', 'w'); time.sleep(500)"
    box.run(Job(job_id="x", script=script, data_dir=folder, limits=Limits(wall_s=600)))
"""
SCRIPTS = {"probe": PROBE, "threaded": THREADED, "forked": FORKED, "runs": RUNS, "killed": KILLED}


@pytest.fixture
def scope(tmp_path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a shell line in a scope of its own, in a folder with `probe.py` and its like; `$PYTHON` is this Python."""
    if not {"memory", "pids"} <= set(_read(MOUNT / "cgroup.controllers").split()):
        pytest.skip("this machine has no control groups of version 2 that bound memory")
    user = ["--user"] if os.geteuid() else []
    start = ["systemd-run", "--quiet", *user, "--scope"]
    if shutil.which("systemd-run") is None or subprocess.run([*start, "true"], capture_output=True).returncode:
        pytest.skip("this needs systemd, and as a plain user a session of one's own (XDG_RUNTIME_DIR)")
    for name, script in SCRIPTS.items():
        (tmp_path / f"{name}.py").write_text(script)
    code = str(Path(wmrl_cli.__file__).parents[1])
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": code}

    def run(line: str, *, delegated: bool = True) -> subprocess.CompletedProcess[str]:
        words = ["--property=Delegate=yes"] if delegated else []
        command = [*start, *words, "sh", "-c", line]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done

    return run


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""


@pytest.mark.parametrize(
    "line",
    [
        'exec "$PYTHON" probe.py',
        'sleep 60 & "$PYTHON" probe.py; kill $!',
        'exec "$PYTHON" threaded.py',
        'exec "$PYTHON" forked.py',
        '"$PYTHON" probe.py >first; "$PYTHON" probe.py',
    ],
    ids=["alone", "in a shell with another child", "with threads", "with a child of its own", "for the second time"],
)
def test_a_delegated_scope_is_shared_out_whatever_else_runs_in_it(scope, line):
    assert scope(line).stdout.split() == [V2, "wmrl-self", "wmrl-self"]


def test_several_that_start_at_once_in_one_scope_all_get_their_groups(scope):
    done = scope('for n in 1 2 3 4 5 6; do "$PYTHON" probe.py & done; wait')
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [[V2, "wmrl-self"]] * 6


def test_a_scope_that_is_not_delegated_is_left_as_it_is(scope):
    done = scope('exec "$PYTHON" probe.py', delegated=False)
    assert done.stdout.startswith("none ") and "Delegate=yes" in done.stdout
    assert "wmrl-" not in done.stdout


def test_processes_that_cannot_be_moved_mean_no_groups_and_a_reason(scope):
    """A process of an outer pid namespace has no number here, so nobody here can move it."""
    done = scope('unshare --user --map-root-user --pid --fork --mount-proc "$PYTHON" probe.py; true')
    assert done.stdout.startswith("none ")
    assert "another pid namespace" in done.stdout or "Delegate=yes" in done.stdout


def test_memory_stays_bounded_when_systemd_reloads_in_mid_run(scope):
    reload = f"systemctl {'--user ' if os.geteuid() else ''}daemon-reload"
    lines = scope(f'"$PYTHON" runs.py {reload}').stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        ending, memory, peak = line.split()
        assert (ending, memory) == ("out_of_memory", V2)
        assert 32 * MIB < int(peak) <= 64 * MIB


def test_the_groups_of_a_killed_wmrl_are_removed_by_the_next_in_the_scope(scope):
    done = scope(
        """
        export FOLDER=$(mktemp -d); groups=$(sed "s,0::,/sys/fs/cgroup," /proc/self/cgroup)
        "$PYTHON" killed.py run & until ls $FOLDER/*/run-*/started; do sleep 0.2; done >tries 2>&1
        kill -9 $!; wait $!
        echo $(cat $groups/wmrl-[0-9]*/cgroup.procs | wc -l)
        "$PYTHON" killed.py sweep
        (cd $groups; ls -d wmrl-*)
        rm -rf $FOLDER
        """
    )
    left, swept, names = done.stdout.split()
    assert int(left) >= 1 and int(swept) == 2  # a script that still ran; its work folder and its group
    assert names == "wmrl-self"
