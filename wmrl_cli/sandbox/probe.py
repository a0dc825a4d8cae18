"""A script that looks at its own sandbox: a leak is found before the first real script runs."""

from __future__ import annotations

import json

PROBE = """
import json, os, socket
def can(act):
    try:
        act()
    except OSError:
        return False
    return True
def status(name):
    return next(line.split()[1] for line in open("/proc/self/status") if line.startswith(name + ":"))
print(json.dumps({
    "is root": os.getuid() == 0 or os.geteuid() == 0,
    "has capabilities": int(status("CapEff"), 16) != 0,
    "may gain privileges": status("NoNewPrivs") != "1",
    "writes its input": can(lambda: open("input/probe", "w")),
    "writes the root folder": can(lambda: open("/probe", "w")),
    "sees other processes": sum(name.isdigit() for name in os.listdir("/proc")) > 8,
    "sees network interfaces": any(name != "lo" for _, name in socket.if_nameindex()),
    "reads /etc/shadow": can(lambda: open("/etc/shadow").read()),
    "filters no system call": status("Seccomp") == "0",
    "lacks a work folder": not can(lambda: open("probe", "w")),
}))
"""

# Asks the driver itself, because a script without a GPU falls back to the CPU without a word.
GPU_PROBE = """
import ctypes, json
cuda = ctypes.CDLL("libcuda.so.1")
count = ctypes.c_int(-1)
print(json.dumps({"error": cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)), "devices": count.value}))
"""


def read_gpu_probe(stdout: str) -> str:
    """Why the leased device is not the only one that a script sees, in words; empty when it is."""
    try:
        found = json.loads(stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return "the driver cannot be loaded"
    if found["error"]:
        return f"the driver answers error {found['error']}"
    return "" if found["devices"] == 1 else f"{found['devices']} devices are visible instead of one"


def read_probe(stdout: str, *, filtered: bool = False) -> list[str]:
    """What the probe found wrong, in words; its own silence is wrong too.

    `filtered`: whether system calls must be filtered, rather than may be.
    """
    try:
        found = json.loads(stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return ["the probe printed nothing readable"]
    return [name for name, wrong in found.items() if wrong and (filtered or name != "filters no system call")]
