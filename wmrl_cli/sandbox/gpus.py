"""What `nvidia-smi` says: devices by UUID (whole cards or MIG slices), their memory, and who uses it."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass

from wmrl_cli.errors import UnavailableError
from wmrl_cli.sandbox.base import MIB

_MIG = re.compile(r"^\s+MIG (\d+)g\.(\d+)gb\S*\s+Device\s+\d+: \(UUID: (MIG-[^)]+)\)")
_CARD = re.compile(r"^GPU (\d+): .*\(UUID: (GPU-[^)]+)\)")
_GB = 1_000_000_000


@dataclass(frozen=True)
class Device:
    """One leasable device; `card` is the number of the card that it is (a part of)."""

    uuid: str
    card: int
    memory_bytes: int

    @property
    def is_slice(self) -> bool:
        return self.uuid.startswith("MIG-")


def list_devices(nvidia_smi: str = "nvidia-smi") -> list[Device]:
    """The MIG slices of cards that are split, the other cards whole. Raises UnavailableError."""
    sizes = {}
    for line in _ask(nvidia_smi, "--query-gpu=index,memory.total", "--format=csv,noheader,nounits"):
        index, total = line.split(",")
        sizes[int(index)] = int(total) * MIB
    cards: dict[int, Device] = {}
    slices: list[Device] = []
    card = -1
    for line in _ask(nvidia_smi, "-L"):
        if found := _CARD.match(line):
            card = int(found[1])
            cards[card] = Device(found[2], card, sizes.get(card, 0))
        elif found := _MIG.match(line):
            slices.append(Device(found[3], card, int(found[2]) * _GB))
    split = {device.card for device in slices}
    return slices + [device for device in cards.values() if device.card not in split]


def memory_in_use(uuid: str, nvidia_smi: str = "nvidia-smi") -> int:
    """Bytes that processes hold on the card `uuid` now. Raises UnavailableError."""
    lines = _ask(nvidia_smi, "--query-compute-apps=gpu_uuid,used_memory", "--format=csv,noheader,nounits")
    found = 0
    for line in lines:
        owner, used = (word.strip() for word in line.split(","))
        if owner == uuid and used.isdigit():
            found += int(used) * MIB
    return found


def _ask(nvidia_smi: str, *arguments: str) -> list[str]:
    path = shutil.which(nvidia_smi)
    if path is None:
        raise UnavailableError(f"`{nvidia_smi}` is not installed, so no GPU can be leased", "run without GPUs")
    try:
        done = subprocess.run([path, *arguments], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise UnavailableError(f"`{nvidia_smi}` failed: {error}", "is the driver loaded?") from error
    return [line for line in done.stdout.splitlines() if line.strip()]
