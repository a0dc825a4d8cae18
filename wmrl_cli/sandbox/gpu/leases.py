"""Who may use which GPU now: a table in a locked file, shared by all wmrl processes of a machine.

A lease names its owner (see owner.py), so one that outlived its process is taken back by the next who asks. A
device on which a run left memory behind is put in quarantine: the next script would fail for it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

from wmrl_cli.errors import ConfigError, UnavailableError
from wmrl_cli.sandbox.gpu.devices import Device
from wmrl_cli.sandbox.owner import is_dead, owner_name

_LEAK_BYTES = 64 << 20  # what a driver may keep for itself
_SETTLE_S = 5.0  # a dead process's memory is not free at once
_ASK_S = 0.5


@dataclass(frozen=True)
class GpuLease:
    """The right to use one share of a device. `soft`: nothing but this table keeps the shares apart."""

    slot: str
    uuid: str
    memory_bytes: int
    soft: bool

    @property
    def enforcement(self) -> str:
        return "soft" if self.soft else "hard"


@dataclass(frozen=True)
class LeaseTable:
    """Leases on `devices`, each split into as many shares of `memory_bytes` as fit.

    `in_use` says how many bytes processes hold on a device, by its UUID (see devices.memory_in_use).
    """

    path: Path
    devices: Sequence[Device]
    memory_bytes: int
    in_use: Callable[[str], int]
    settle_s: float = field(default=_SETTLE_S)

    def __post_init__(self) -> None:
        if not self.slots():
            largest = max((device.memory_bytes for device in self.devices), default=0)
            raise ConfigError(
                f"no GPU has {self.memory_bytes >> 30} GiB: the largest of {len(self.devices)} has {largest >> 30} GiB",
                "lower the memory of a lease",
            )

    def slots(self) -> dict[str, Device]:
        """Every share: slot name -> device. A slice is one share, because its memory is walled off already."""
        found: dict[str, Device] = {}
        for device in self.devices:
            shares = 1 if device.is_slice else device.memory_bytes // self.memory_bytes
            if device.memory_bytes >= self.memory_bytes:
                found |= {f"{device.uuid}/{number}": device for number in range(shares)}
        return found

    @contextlib.contextmanager
    def lease(self, cancel: Event | None = None, timeout_s: float | None = None) -> Iterator[GpuLease]:
        """One share, given back afterwards. Waits for a free one; raises UnavailableError if none comes in time."""
        held = self._wait(cancel, timeout_s)
        try:
            yield held
        finally:
            self._give_back(held)

    def _wait(self, cancel: Event | None, timeout_s: float | None) -> GpuLease:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        cancel = cancel or Event()
        while True:
            with _locked(self.path) as table:
                held = self._take(table)
            if held is not None:
                return held
            if cancel.is_set() or (deadline is not None and time.monotonic() > deadline):
                bad = quarantined(self.path)
                raise UnavailableError(
                    f"no GPU became free ({len(self.slots())} shares, {len(bad)} in quarantine)",
                    f"look at {', '.join(sorted(bad))}" if bad else "wait, or lower the number of slots",
                )
            cancel.wait(_ASK_S)

    def _take(self, table: dict[str, Any]) -> GpuLease | None:
        slots = self.slots()
        for slot, device in slots.items():
            entry = table.get(slot)
            if entry is not None and ("quarantine" in entry or not is_dead(entry["owner"])):
                continue
            table[slot] = {"owner": owner_name(), "since": time.time()}
            soft = sum(other is device for other in slots.values()) > 1
            return GpuLease(slot, device.uuid, min(self.memory_bytes, device.memory_bytes), soft)
        return None

    def _give_back(self, held: GpuLease) -> None:
        """Free the share, or close it where memory stays in use although nobody holds the device."""
        alone = self._alone(held)
        left = self._settled(held.uuid) if alone else 0
        with _locked(self.path) as table:
            if left > _LEAK_BYTES and self._alone_in(table, held):
                table[held.slot] = {"quarantine": f"{left >> 20} MiB were still in use after a run"}
            else:
                table.pop(held.slot, None)

    def _settled(self, uuid: str) -> int:
        deadline = time.monotonic() + self.settle_s
        while (left := self.in_use(uuid)) > _LEAK_BYTES and time.monotonic() < deadline:
            time.sleep(min(_ASK_S, self.settle_s / 4))
        return left

    def _alone(self, held: GpuLease) -> bool:
        with _locked(self.path) as table:
            return self._alone_in(table, held)

    @staticmethod
    def _alone_in(table: dict[str, Any], held: GpuLease) -> bool:
        return not any(
            slot != held.slot and slot.startswith(f"{held.uuid}/") and "owner" in table[slot] for slot in table
        )


def quarantined(path: Path) -> dict[str, str]:
    """Share -> why nobody gets it, of the table at `path`. `release` ends it."""
    if not path.exists():
        return {}
    with _locked(path) as table:
        return {slot: entry["quarantine"] for slot, entry in table.items() if "quarantine" in entry}


def release(path: Path, slot: str) -> None:
    """End the quarantine of a share, once a person has looked. Raises ConfigError where it is in none."""
    closed = quarantined(path)
    if slot not in closed:
        raise ConfigError(
            f"the GPU share `{slot}` is not in quarantine",
            f"in quarantine are `{'`, `'.join(sorted(closed))}`" if closed else "no share of this machine is",
        )
    with _locked(path) as table:
        table.pop(slot, None)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[dict[str, Any]]:
    """The table, locked; changes are written when the block ends without an error."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        text = os.read(descriptor, 1 << 20)
        try:
            before = json.loads(text or b"{}")
        except ValueError:  # a crash in the middle of a write: whoever lives will ask again
            before = {}
        table = json.loads(json.dumps(before))
        yield table
        if table != before:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(table).encode(), 0)
    finally:
        os.close(descriptor)
