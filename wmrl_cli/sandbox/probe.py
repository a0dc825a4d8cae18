"""A script that looks at its own sandbox: a leak is found before the first real script runs."""

from __future__ import annotations

import json

_UNFILTERED = "filters no system call"  # the one fact that a backend may allow
PROBE = """
import ctypes, json, os, socket
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
    "may gain privileges": ctypes.CDLL(None).prctl(39, 0, 0, 0, 0) != 1,
    "writes its input": can(lambda: open("input/probe", "w")),
    "writes the root folder": can(lambda: open("/probe", "w")),
    "sees other processes": sum(name.isdigit() for name in os.listdir("/proc")) > 8,
    "sees network interfaces": any(name != "lo" for _, name in socket.if_nameindex()),
    "reads /etc/shadow": can(lambda: open("/etc/shadow").read()),
    "lacks a work folder": not can(lambda: open("probe", "w")),
    "filters no system call": status("Seccomp") == "0",
    "kernel": os.uname().release,
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
    found = _last_line(stdout)
    if not found:
        return ["the probe printed nothing readable"]
    return [name for name, wrong in found.items() if wrong is True and (filtered or name != _UNFILTERED)]


def probed_kernel(stdout: str) -> str:
    """The release of the kernel that the probe ran on; empty where it printed nothing readable."""
    return str(_last_line(stdout).get("kernel", ""))


def _last_line(stdout: str) -> dict[str, object]:
    try:
        return dict(json.loads(stdout.strip().splitlines()[-1]))
    except (ValueError, IndexError):
        return {}
