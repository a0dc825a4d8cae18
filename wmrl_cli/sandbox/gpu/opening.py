"""Opening the machine's lease table, after a look from inside a sandbox at every device that may be leased."""

from __future__ import annotations

import tempfile
from pathlib import Path

from wmrl_cli.errors import UnavailableError
from wmrl_cli.sandbox.base import GIB, Ending, Job, Limits, Sandbox
from wmrl_cli.sandbox.gpu.devices import Device, list_devices, memory_in_use
from wmrl_cli.sandbox.gpu.leases import LeaseTable
from wmrl_cli.sandbox.owner import scratch_root
from wmrl_cli.sandbox.probe import GPU_PROBE, read_gpu_probe


def table_path() -> Path:
    """Where this user's lease table lies."""
    return scratch_root() / "gpus.json"


def open_leases(sandbox: Sandbox, gpu_gib: float | None) -> LeaseTable | None:
    """The lease table with shares of `gpu_gib`; None where no GPU is wanted.

    Raises UnavailableError where there is none, or where a script would see another device than the leased one.
    """
    if gpu_gib is None:
        return None
    devices = list_devices()
    for device in devices:
        check_device(sandbox, device)
    return LeaseTable(table_path(), devices, int(gpu_gib * GIB), memory_in_use)


def check_device(sandbox: Sandbox, device: Device) -> None:
    """Refuse a device that is not the only one a script sees. Raises UnavailableError."""
    limits = Limits(wall_s=60, memory_bytes=4 * GIB)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        seen = sandbox.run(Job(job_id="gpu", script=GPU_PROBE, data_dir=Path(folder), limits=limits, gpu=device.uuid))
    if reason := seen.detail if seen.ending is Ending.LOST else read_gpu_probe(seen.stdout):
        raise UnavailableError(
            f"the `{sandbox.name}` sandbox cannot use GPU `{device.uuid}`: {reason}",
            "docker needs the NVIDIA container toolkit, bubblewrap the driver's libraries below /usr",
        )
