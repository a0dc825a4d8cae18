"""What `nvidia-smi` says: devices by UUID (whole cards or MIG slices), their memory, and who uses it."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from wmrl_cli.errors import UnavailableError
from wmrl_cli.sandbox.base import MIB

_MIG = re.compile(r"^\s+MIG (\d+)g\.(\d+)gb\S*\s+Device\s+\d+: \(UUID: (MIG-[^)]+)\)")
_CARD = re.compile(r"^GPU (\d+): .*\(UUID: (GPU-[^)]+)\)")
_GB = 1_000_000_000
_PROC = Path("/proc/driver/nvidia")


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


def device_files(card: str | None, dev: Path = Path("/dev"), proc: Path = _PROC) -> list[Path]:
    """The driver's device files that a script on the card with UUID `card` needs: its own and those all cards share.

    Every card's, where the driver does not tell which file is whose (or `card` is None).
    """
    own = [path for path in dev.glob("nvidia*") if path.name.removeprefix("nvidia").isdigit()]
    minor = _minors(proc).get(card or "")
    chosen = [path for path in own if minor is None or path.name == f"nvidia{minor}"]
    shared = [path for path in dev.glob("nvidia*") if path not in own and not path.is_dir()]
    return sorted([*chosen, *shared, *dev.glob("nvidia-caps/*")])


def _minors(proc: Path) -> dict[str, str]:
    """UUID of each card -> the number of its device file."""
    found = {}
    for path in proc.glob("gpus/*/information"):
        lines = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
        if uuid := lines.get("GPU UUID", "").strip():
            found[uuid] = lines.get("Device Minor", "").strip()
    return {uuid: minor for uuid, minor in found.items() if minor.isdigit()}


@functools.cache
def card_of(uuid: str, nvidia_smi: str = "nvidia-smi") -> str | None:
    """UUID of the card that a device is, or is a slice of; None where nobody knows it. Raises UnavailableError."""
    card = None
    for line in _ask(nvidia_smi, "-L"):
        if found := _CARD.match(line):
            card = found[2]
            if card == uuid:
                return card
        elif (found := _MIG.match(line)) and found[3] == uuid:
            return card
    return None


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
