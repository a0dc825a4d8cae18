"""Which engine answers, in words, and what is refused because the engine would silently not do it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tests.sandbox.boxes import PODMAN, SKELETON, needed, open_box
from tests.sandbox.engine_stub import Behaviour, serve, stubbed
from wmrl_cli.errors import UnavailableError
from wmrl_cli.sandbox import backends, open_sandbox
from wmrl_cli.sandbox.base import Ending, Job, Limits
from wmrl_cli.sandbox.gpu.devices import Device
from wmrl_cli.sandbox.gpu.opening import check_device
from wmrl_cli.sandbox.probe import probed_kernel, read_probe


def gpu_job(data: Path) -> Job:
    data.mkdir(exist_ok=True)
    return Job(job_id="x", script="pass", data_dir=data, limits=Limits(wall_s=60), gpu="GPU-1")


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("unix://{}/nobody.sock", "No such file or directory"),
        ("tcp://127.0.0.1:1", "Connection refused"),
        ("nonsense://x", "Invalid bind address"),
    ],
)
def test_an_address_where_nobody_answers_is_named_with_the_reason(monkeypatch, tmp_path, address, words):
    address = address.format(tmp_path)
    monkeypatch.setenv("DOCKER_HOST", address)
    with pytest.raises(UnavailableError) as caught:
        open_sandbox("docker")
    assert f"no engine answers at `{address}`" in caught.value.message and words in caught.value.message


def test_a_socket_that_never_answers_is_given_up_soon(monkeypatch, tmp_path):
    monkeypatch.setattr("wmrl_cli.sandbox.container.engine._HELLO_S", 0.3)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/mute.sock")
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(f"{tmp_path}/mute.sock")
        mute.listen()
        with pytest.raises(UnavailableError, match="no engine answers .* said nothing"):
            open_sandbox("docker")


def test_an_absent_image_is_named_with_the_engine(monkeypatch, tmp_path):
    server, address = serve(tmp_path, Behaviour(faults={"image": 404}))
    monkeypatch.setenv("DOCKER_HOST", address)
    with pytest.raises(UnavailableError, match="docker 1.0 at .* answers, but the image `stub` is absent"):
        open_sandbox("docker", image="stub")
    server.shutdown()
    server.server_close()


@pytest.mark.docker
@pytest.mark.parametrize("kind", ["docker", "podman"])
def test_the_engine_is_called_by_its_own_name(monkeypatch, tmp_path, kind):
    box = open_box(kind, tmp_path / "scratch")
    assert box.preflight().enforcement["engine"] == f"{kind} {box.engine.version}"
    if kind == "podman":
        monkeypatch.setenv("DOCKER_HOST", PODMAN)
    found = {each.backend: each for each in backends()}["docker"]
    assert (found.reason or found.enforcement["engine"]).startswith(f"{kind} {box.engine.version}")


@pytest.mark.parametrize("version", ["4.3.1", "5.3.9", "?"])
def test_a_podman_that_would_ignore_the_gpu_gets_no_such_job(tmp_path, version):
    behaviour = Behaviour()
    with stubbed(tmp_path, behaviour, kind="podman", version=version) as box:
        result = box.run(gpu_job(tmp_path / "data"))
        with pytest.raises(UnavailableError, match="cannot use GPU .* ignores requests for a GPU"):
            check_device(box, Device("GPU-1", 0, 1 << 30))
    assert result.ending is Ending.LOST and f"Podman {version} ignores" in result.detail
    assert behaviour.asked == []


def test_each_engine_gets_the_request_that_it_understands(tmp_path):
    for kind, version, driver, name in (
        ("docker", "20.10.24", "", "GPU-1"),
        ("podman", "5.4.0", "cdi", "nvidia.com/gpu=GPU-1"),
        ("podman", "6.0.0-rc1", "cdi", "nvidia.com/gpu=GPU-1"),
    ):
        folder = tmp_path / f"{kind}{version}"
        folder.mkdir()
        with stubbed(folder, Behaviour(), kind=kind, version=version) as box:
            request = box.engine.gpu_request("GPU-1")
        assert (request["Driver"], request["DeviceIDs"], request["Count"]) == (driver, [name], 0)


@pytest.mark.docker
@pytest.mark.parametrize("kind", ["docker", "podman"])
def test_a_real_engine_without_gpus_runs_no_gpu_job(tmp_path, kind):
    if list(Path("/dev").glob("nvidia*")):
        pytest.skip("this machine has a GPU")
    box = open_box(kind, tmp_path / "scratch")
    assert box.run(gpu_job(tmp_path / "data")).ending is Ending.LOST


@pytest.mark.docker
def test_an_engine_that_does_not_see_our_folders_is_told_apart(monkeypatch, tmp_path):
    if shutil.which("podman") is None or os.geteuid() != 0:
        needed("this test starts a Podman of its own in another mount namespace, as root")
    state, ours = Path("/tmp") / f"wmrl-podman-{os.getpid()}", tmp_path / "ours"  # socket paths are short
    ours.mkdir()
    script = Path(__file__).parents[2] / "scripts" / "ci-podman.sh"
    environment = {**os.environ, "WMRL_PODMAN_DIR": str(state)}
    elsewhere = f"mount -t tmpfs none '{ours}' && sh '{script}'"
    try:
        subprocess.run(
            ["unshare", "--mount", "sh", "-c", elsewhere], env=environment, check=True, capture_output=True, timeout=120
        )
        monkeypatch.setenv("DOCKER_HOST", f"unix://{state}/podman.sock")
        with pytest.raises(UnavailableError, match=f"podman .* does not see this machine's folder `{ours}/scratch`"):
            open_sandbox("docker", image=SKELETON, scratch=ours / "scratch")
    finally:
        subprocess.run(["sh", str(script), "stop"], env=environment, check=True)
        shutil.rmtree(state, ignore_errors=True)


def test_a_filter_of_system_calls_is_demanded_of_the_machines_own_kernel_only():
    said = '{"is root": false, "filters no system call": true, "kernel": "6.1"}'
    assert read_probe(said) == [] and read_probe(said, filtered=True) == ["filters no system call"]
    assert probed_kernel(said) == "6.1" and probed_kernel("nonsense") == ""
