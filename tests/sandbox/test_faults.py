"""What goes wrong on our side is `lost`, whatever it is, and never the script's fault."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sandbox.boxes import SKELETON, needed, open_box, processes_with
from tests.sandbox.engine_stub import Behaviour, stubbed
from wmrl_cli.sandbox.base import Ending, Job, Limits
from wmrl_cli.sandbox.container.docker import DockerSandbox
from wmrl_cli.sandbox.container.engine import connect
from wmrl_cli.sandbox.interpreter import find_interpreter
from wmrl_cli.sandbox.local.bubblewrap import BubblewrapSandbox


def job(folder: Path, script: str = "pass", **limits) -> Job:
    data = folder / "data"
    data.mkdir(exist_ok=True)
    return Job(job_id="x", script=script, data_dir=data, limits=Limits(**limits), seed=91_000_000 + os.getpid())


def test_the_stub_is_an_engine_whose_container_exits(tmp_path):
    behaviour = Behaviour()
    with stubbed(tmp_path, behaviour) as box:
        result = box.run(job(tmp_path))
    assert (result.ending, result.stdout, behaviour.removed) == (Ending.EXITED, "hello\n", 1)


@pytest.mark.parametrize("status", [409, 500, 0], ids=["conflict", "internal-error", "dropped-connection"])
@pytest.mark.parametrize("step", ["create", "attach", "start", "inspect"])
def test_a_fault_of_the_engine_is_lost_and_the_container_is_removed(tmp_path, step, status):
    behaviour = Behaviour(faults={step: status})
    with stubbed(tmp_path, behaviour) as box:
        result = box.run(job(tmp_path))
    assert result.ending is Ending.LOST
    assert "engine failed" in result.detail
    assert behaviour.removed == 1
    assert list(tmp_path.rglob("run-*")) == []


@pytest.mark.parametrize("limit", ["Memory", "PidsLimit"])
def test_an_engine_that_drops_a_limit_runs_nothing(tmp_path, limit):
    behaviour = Behaviour(drops={limit: 0})
    with stubbed(tmp_path, behaviour) as box:
        result = box.run(job(tmp_path))
    assert result.ending is Ending.LOST and f"does not keep the limit `{limit}`" in result.detail
    assert behaviour.removed == 1 and "start" not in behaviour.asked


def test_a_failed_removal_changes_no_result_and_is_left_to_the_sweep(tmp_path):
    with stubbed(tmp_path, Behaviour(faults={"remove": 500})) as box:
        assert box.run(job(tmp_path)).ending is Ending.EXITED
    (tmp_path / "slow").mkdir()
    with stubbed(tmp_path / "slow", Behaviour(remove_s=0.5)) as box:
        assert box.run(job(tmp_path)).ending is Ending.EXITED


@pytest.mark.parametrize(
    ("state", "ending"),
    [
        ({"ExitCode": 137, "OOMKilled": True}, Ending.OUT_OF_MEMORY),
        ({"ExitCode": 0, "OOMKilled": True}, Ending.EXITED),  # a child was killed, the script carried on
        ({"ExitCode": 137}, Ending.FAILED),  # no evidence of memory
        ({"ExitCode": 1}, Ending.FAILED),
        ({"ExitCode": 127, "Error": "exec: python: not found"}, Ending.LOST),
    ],
)
def test_the_engines_evidence_decides_the_ending(tmp_path, state, ending):
    behaviour = Behaviour()
    behaviour.state |= state
    with stubbed(tmp_path, behaviour) as box:
        assert box.run(job(tmp_path)).ending is ending


def test_a_container_that_will_not_die_is_lost(tmp_path, monkeypatch):
    monkeypatch.setattr("wmrl_cli.sandbox.container.run._KILL_S", 0.4)
    behaviour = Behaviour()
    behaviour.state |= {"Running": True, "Status": "running"}
    with stubbed(tmp_path, behaviour) as box:
        result = box.run(job(tmp_path))
    assert result.ending is Ending.LOST and "did not end" in result.detail
    assert "kill" in behaviour.asked


def test_output_that_breaks_off_while_the_container_runs_is_lost(tmp_path, monkeypatch):
    monkeypatch.setattr("wmrl_cli.sandbox.container.run._KILL_S", 1.0)
    behaviour = Behaviour(dies_of_kill=True)
    behaviour.state |= {"Running": True, "Status": "running"}
    with stubbed(tmp_path, behaviour) as box:
        result = box.run(job(tmp_path))
    assert result.ending is Ending.LOST and "still ran" in result.detail


def test_a_full_disk_is_ours(tmp_path, monkeypatch):
    box = open_box("unsafe-process", tmp_path / "scratch")

    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("wmrl_cli.sandbox.workdir.tempfile.mkdtemp", full)
    result = box.run(job(tmp_path))
    assert result.ending is Ending.LOST and "No space left" in result.detail


def test_data_that_the_scripts_user_may_not_read_are_our_fault(tmp_path):
    box = open_box("bubblewrap", tmp_path / "scratch")
    the_job = job(tmp_path)
    (the_job.data_dir / "closed.csv").write_text("x")
    (the_job.data_dir / "closed.csv").chmod(0)
    result = box.run(the_job)
    assert result.ending is Ending.LOST and "closed.csv" in result.detail and "chmod" in result.detail


def test_a_clock_that_jumps_ends_no_run(tmp_path, monkeypatch):
    box = open_box("unsafe-process", tmp_path / "scratch")
    monkeypatch.setattr(time, "time", lambda: 0.0)
    result = box.run(job(tmp_path, "import time; time.sleep(0.2)", wall_s=60))
    assert result.ending is Ending.EXITED and 0.2 <= result.wall_s < 60


@pytest.mark.parametrize("cgroups", [True, False], ids=["with groups", "without"])
@pytest.mark.parametrize("there", ["gone", "without its loader"])
def test_an_interpreter_that_does_not_start_is_lost_in_a_real_sandbox(tmp_path, there, cgroups):
    """Without control groups another program stands between bubblewrap and the interpreter."""
    made = open_box("bubblewrap", tmp_path / "scratch")
    box = BubblewrapSandbox(made.interpreter, bwrap=made.bwrap, scratch=tmp_path / "scratch", cgroups=cgroups)
    assert box.run(job(tmp_path, "import os; os._exit(127)")).ending is Ending.FAILED
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        python = Path(folder) / "python"
        if there == "without its loader":
            python.write_text("#!/no/loader\n")
            python.chmod(0o755)
        box.interpreter = replace(box.interpreter, executable=python, folders=(*box.interpreter.folders, Path(folder)))
        result = box.run(job(tmp_path))
        assert result.ending is Ending.LOST and ("did not start" in result.detail or "does not run" in result.detail)
        assert not box.preflight().available


@pytest.mark.docker
def test_an_engine_that_is_killed_in_mid_run_loses_the_run(tmp_path, monkeypatch):
    if shutil.which("dockerd") is None or os.geteuid() != 0:
        needed("this test starts an engine of its own, as root")
    folder = Path("/tmp") / f"wmrl-engine-{os.getpid()}"  # socket paths are short
    environment = {**os.environ, "WMRL_ENGINE_DIR": str(folder), "DOCKER_HOST": f"unix://{folder}/docker.sock"}
    script = Path(__file__).parents[2] / "scripts" / "ci-engine.sh"
    folder.mkdir()
    try:
        subprocess.run(["sh", str(script)], env=environment, check=True, capture_output=True, timeout=120)
        monkeypatch.setenv("DOCKER_HOST", environment["DOCKER_HOST"])
        box = DockerSandbox(connect(SKELETON), find_interpreter(), scratch=tmp_path / "scratch")
        the_job = job(tmp_path, "import time; time.sleep(300)", wall_s=300)
        results = []
        runner = threading.Thread(target=lambda: results.append(box.run(the_job)))
        runner.start()
        deadline = time.monotonic() + 60
        while not processes_with(the_job.seed) and time.monotonic() < deadline:
            time.sleep(0.1)
        _kill_engine(folder)
        runner.join(timeout=60)
        assert results and results[0].ending is Ending.LOST
    finally:
        _kill_engine(folder)
        for pid in processes_with(the_job.seed):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def _kill_engine(folder: Path) -> None:
    """SIGKILL to the engine, its containerd and its shims, told by their command lines."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and str(folder).encode() in (entry / "cmdline").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)
    for mount in reversed(Path("/proc/mounts").read_text().splitlines()):
        if (point := mount.split()[1]).startswith(f"{folder}/"):  # a killed engine leaves them
            subprocess.run(["umount", "--lazy", point], check=False)
