"""GPU leases on a real card: what a script sees, two at once, and a card on which memory stays in use."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from wmrl_cli.errors import UnavailableError
from wmrl_cli.sandbox import open_sandbox
from wmrl_cli.sandbox.base import GIB, Ending, Job, Limits
from wmrl_cli.sandbox.gpu.devices import list_devices, memory_in_use
from wmrl_cli.sandbox.gpu.leases import LeaseTable, quarantined, release
from wmrl_cli.sandbox.gpu.opening import check_device

SHARE_GIB = 2
# Through the driver alone, so that the sandbox's own Python needs no torch: take 512 MiB, wait, say what is there.
USE = """
import ctypes, json, time
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    error = getattr(cuda, name)(*arguments)
    assert error == 0, f"{name}: error {error}"
count, device, context, memory = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
call("cuInit", 0)
call("cuDeviceGetCount", ctypes.byref(count))
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)
call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(512 << 20))
time.sleep(2)
print(json.dumps({"devices": count.value}))
"""


@pytest.fixture(params=["bubblewrap", "docker"])
def box(request, tmp_path):
    try:
        return open_sandbox(request.param, scratch=tmp_path / "scratch")
    except UnavailableError as error:
        pytest.skip(error.message)


@pytest.fixture
def leases(tmp_path) -> LeaseTable:
    return LeaseTable(tmp_path / "gpus.json", list_devices(), SHARE_GIB * GIB, memory_in_use)


def run(box, leases: LeaseTable, data) -> dict[str, object]:
    with leases.lease(timeout_s=60) as held:
        limits = Limits(wall_s=60, memory_bytes=8 * GIB)
        result = box.run(Job(job_id="gpu", script=USE, data_dir=data, limits=limits, gpu=held.uuid))
    assert result.ending is Ending.EXITED, (result.detail, result.stderr)
    return json.loads(result.stdout)


def test_a_script_sees_exactly_the_device_of_its_lease(box, leases):
    for device in list_devices():
        check_device(box, device)


def test_two_scripts_share_a_card_and_leave_nothing_on_it(box, leases, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o755)
    with ThreadPoolExecutor(2) as pool:
        seen = list(pool.map(lambda _: run(box, leases, data), range(2)))
    assert seen == [{"devices": 1}] * 2
    assert quarantined(leases.path) == {}


def test_a_script_without_a_lease_sees_no_device(box, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o755)
    result = box.run(Job(job_id="gpu", script=USE, data_dir=data, limits=Limits(memory_bytes=8 * GIB)))
    assert result.ending is Ending.FAILED


def test_a_card_on_which_memory_stays_in_use_is_closed(leases):
    """The holder is a process that nobody leased a share to, as a script that escaped its end would be."""
    if any(device.is_slice for device in list_devices()):
        pytest.skip("nvidia-smi does not tell the memory of a slice's processes")
    holder = subprocess.Popen([sys.executable, "-c", USE.replace("time.sleep(2)", "print('held', flush=True); input()")],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # fmt: skip
    try:
        assert holder.stdout is not None and holder.stdout.readline().strip() == "held"
        with leases.lease(timeout_s=10) as held:
            pass
        closed = quarantined(leases.path)
        assert list(closed) == [held.slot] and "MiB were still in use" in closed[held.slot]
        release(leases.path, held.slot)
        assert quarantined(leases.path) == {}
    finally:
        holder.kill()
        holder.wait()
