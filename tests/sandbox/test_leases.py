"""GPU leases, with a program that answers like `nvidia-smi`."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path
from threading import Event

import pytest

from wmrl_cli.errors import ConfigError, UnavailableError
from wmrl_cli.sandbox.base import GIB, Capabilities, Ending, RunResult
from wmrl_cli.sandbox.gpu.devices import Device, card_of, device_files, list_devices, memory_in_use
from wmrl_cli.sandbox.gpu.leases import LeaseTable, quarantined, release
from wmrl_cli.sandbox.gpu.opening import check_device

WHOLE = [Device("GPU-a", 0, 80 * GIB), Device("GPU-b", 1, 80 * GIB)]


def fake_nvidia_smi(folder: Path, *, listing: str, memory: str, apps: str = "") -> str:
    path = folder / "nvidia-smi"
    path.write_text(
        f"#!/bin/sh\ncase \"$1\" in\n-L) cat <<'E'\n{listing}\nE\n;;\n--query-gpu*) cat <<'E'\n{memory}\nE\n;;\n*) cat <<'E'\n{apps}\nE\n;;\nesac\n"
    )
    path.chmod(0o755)
    return str(path)


def test_devices_are_slices_where_a_card_is_split_and_whole_cards_else(tmp_path):
    smi = fake_nvidia_smi(
        tmp_path,
        listing="GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-a)\n"
        "  MIG 3g.40gb     Device  0: (UUID: MIG-1)\n  MIG 3g.40gb     Device  1: (UUID: MIG-2)\n"
        "GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-b)",
        memory="0, 81920\n1, 81920",
        apps="GPU-b, 1000\nGPU-b, 24\nGPU-a, [N/A]",
    )
    assert list_devices(smi) == [
        Device("MIG-1", 0, 40_000_000_000),
        Device("MIG-2", 0, 40_000_000_000),
        Device("GPU-b", 1, 80 * GIB),
    ]
    assert memory_in_use("GPU-b", smi) == 1024 << 20 and memory_in_use("GPU-a", smi) == 0


def test_a_script_gets_the_device_files_of_its_own_card(tmp_path):
    dev, proc = tmp_path / "dev", tmp_path / "proc"
    (dev / "nvidia-caps").mkdir(parents=True)
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-caps/nvidia-cap1", "null"):
        (dev / name).touch()
    for bus, uuid, minor in (("0000:07:00.0", "GPU-a", 1), ("0000:0a:00.0", "GPU-b", 0)):
        (proc / "gpus" / bus).mkdir(parents=True)
        (proc / "gpus" / bus / "information").write_text(
            f"Model: \t\t NVIDIA A100-SXM4-80GB\nGPU UUID: \t {uuid}\nBus Location: \t {bus}\nDevice Minor: \t {minor}\n"
        )

    def names(card):
        return [str(path.relative_to(dev)) for path in device_files(card, dev, proc)]

    shared = ["nvidia-caps/nvidia-cap1", "nvidia-uvm", "nvidiactl"]
    assert sorted(names("GPU-a")) == sorted(["nvidia1", *shared])
    assert sorted(names("GPU-b")) == sorted(["nvidia0", *shared])
    assert sorted(names("GPU-unknown")) == sorted(names(None)) == sorted(["nvidia0", "nvidia1", *shared])
    assert "nvidia0" in [path.name for path in device_files("GPU-a", dev, tmp_path / "no-driver")]


def test_a_slice_is_on_its_card(tmp_path):
    listing = "GPU 0: A100 (UUID: GPU-a)\n  MIG 3g.40gb     Device  0: (UUID: MIG-1)\nGPU 1: A100 (UUID: GPU-b)"
    smi = fake_nvidia_smi(tmp_path, listing=listing, memory="0, 1")
    assert [card_of(uuid, smi) for uuid in ("MIG-1", "GPU-b", "GPU-c")] == ["GPU-a", "GPU-b", None]


def test_a_machine_without_a_driver_says_so(tmp_path):
    with pytest.raises(UnavailableError, match="not installed"):
        list_devices("no-such-nvidia-smi")
    broken = tmp_path / "nvidia-smi"
    broken.write_text("#!/bin/sh\nexit 9\n")
    broken.chmod(0o755)
    with pytest.raises(UnavailableError, match="failed"):
        list_devices(str(broken))


def table(folder: Path, devices=WHOLE, memory=40 * GIB, in_use=lambda uuid: 0) -> LeaseTable:
    return LeaseTable(folder / "gpus.json", devices, memory, in_use, settle_s=0.05)


def test_a_card_is_split_into_the_shares_that_fit_and_they_are_soft(tmp_path):
    leases = table(tmp_path)
    assert list(leases.slots()) == ["GPU-a/0", "GPU-a/1", "GPU-b/0", "GPU-b/1"]
    with leases.lease() as first, leases.lease() as second, leases.lease() as third:
        assert [first.uuid, second.uuid, third.uuid] == ["GPU-a", "GPU-a", "GPU-b"]
        assert first.soft and first.enforcement == "soft"
    with table(tmp_path, [Device("MIG-1", 0, 40 * GIB)]).lease() as walled:
        assert not walled.soft


def test_a_lease_larger_than_every_card_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="80 GiB"):
        table(tmp_path, memory=100 * GIB)


def test_who_finds_no_share_waits_and_is_told_in_the_end(tmp_path):
    leases = table(tmp_path, [WHOLE[0]], memory=80 * GIB)
    with leases.lease():
        with pytest.raises(UnavailableError, match="no GPU became free"), leases.lease(timeout_s=0.1):
            pass
        cancel = Event()
        cancel.set()
        with pytest.raises(UnavailableError), leases.lease(cancel):
            pass
    with leases.lease(timeout_s=0.1) as again:
        assert again.slot == "GPU-a/0"


def _die_with_a_lease(folder: Path) -> None:
    held = table(folder, [WHOLE[0]], memory=80 * GIB).lease()
    held.__enter__()
    import os

    os._exit(9)


def test_a_lease_does_not_outlive_its_process(tmp_path):
    child = multiprocessing.get_context("fork").Process(target=_die_with_a_lease, args=(tmp_path,))
    child.start()
    child.join()
    assert "owner" in (tmp_path / "gpus.json").read_text()
    with table(tmp_path, [WHOLE[0]], memory=80 * GIB).lease(timeout_s=0.1) as held:
        assert held.uuid == "GPU-a"


def test_a_device_on_which_memory_stays_in_use_is_closed_until_a_person_looked(tmp_path):
    leases = table(tmp_path, memory=80 * GIB, in_use=lambda uuid: 5 * GIB if uuid == "GPU-a" else 0)
    with leases.lease() as leaky:
        assert leaky.uuid == "GPU-a"
    assert "5120 MiB" in quarantined(leases.path)["GPU-a/0"]
    with leases.lease() as other:
        assert other.uuid == "GPU-b"
    release(leases.path, "GPU-a/0")
    assert quarantined(leases.path) == {}
    with pytest.raises(ConfigError, match="not in quarantine"):
        release(leases.path, "GPU-a/0")


def test_memory_of_a_neighbour_is_no_leak(tmp_path):
    leases = table(tmp_path, [WHOLE[0]], in_use=lambda uuid: 30 * GIB)
    with leases.lease():
        with leases.lease():
            pass
        assert quarantined(leases.path) == {}


def test_a_table_that_a_crash_cut_is_begun_anew(tmp_path):
    (tmp_path / "gpus.json").write_text('{"GPU-a/0": {"own')
    with table(tmp_path).lease() as held:
        assert held.slot == "GPU-a/0"


def _use(folder: Path, until: float, log: Path) -> None:
    leases = table(folder, WHOLE, memory=80 * GIB)
    while time.time() < until:
        with leases.lease() as held:
            mark = folder / held.uuid
            mark.touch(exist_ok=False)  # raises if another process holds the same device
            time.sleep(0.005)
            mark.unlink()
            with log.open("a") as file:
                file.write("x")


def test_processes_that_race_never_share_a_device(tmp_path):
    context = multiprocessing.get_context("fork")
    logs = [tmp_path / f"log{n}" for n in range(4)]
    children = [context.Process(target=_use, args=(tmp_path, time.time() + 2.0, log)) for log in logs]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * 4
    assert sum(log.stat().st_size for log in logs if log.exists()) >= 4


class Seeing:
    """A sandbox in which the driver answers as given."""

    name = "seeing"

    def __init__(self, stdout: str) -> None:
        self.stdout = stdout

    def preflight(self) -> Capabilities:
        return Capabilities(backend="seeing", available=True)

    def run(self, job, cancel=None):
        assert job.gpu == "GPU-a"
        return RunResult(ending=Ending.EXITED, stdout=self.stdout)


def test_exactly_the_leased_device_must_be_visible_inside():
    check_device(Seeing('{"error": 0, "devices": 1}'), WHOLE[0])
    for said, words in (
        ('{"error": 0, "devices": 2}', "2 devices are visible"),
        ('{"error": 304, "devices": -1}', "error 304"),
        ("", "cannot be loaded"),
    ):
        with pytest.raises(UnavailableError, match=words):
            check_device(Seeing(said), WHOLE[0])
