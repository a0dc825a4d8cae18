"""The system-call filter, run by a small interpreter of the instructions that it uses."""

from __future__ import annotations

import errno
import json
import struct

import pytest

from wmrl_cli.sandbox.seccomp import filter_program, profile

ALLOW, KILL, EPERM = 0x7FFF0000, 0x80000000, 0x00050000 | errno.EPERM
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def answer(machine: str, number: int, *, arch: int | None = None, argument: int = 0) -> int:
    program = list(struct.iter_unpack("<HBBI", filter_program(machine)))
    data = struct.pack(
        "<IIQQ", number, arch or ARCH[machine], 0, argument
    )  # struct seccomp_data: nr, arch, ip, first argument
    at, value = 0, 0
    while True:
        code, then, otherwise, k = program[at]
        at += 1
        if code == 0x20:
            value = struct.unpack_from("<I", data, k)[0]
        elif code == 0x06:
            return k
        else:
            true = {0x15: value == k, 0x35: value >= k, 0x45: bool(value & k)}[code]
            at += then if true else otherwise


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_ordinary_calls_pass_and_dangerous_ones_do_not(machine):
    read, mount, ptrace, unshare, bpf = {"x86_64": (0, 165, 101, 272, 321), "aarch64": (63, 40, 117, 97, 280)}[machine]
    assert answer(machine, read) == ALLOW
    assert {answer(machine, number) for number in (mount, ptrace, unshare, bpf, 425, 428)} == {EPERM}


@pytest.mark.parametrize(("machine", "clone"), [("x86_64", 56), ("aarch64", 220)])
def test_threads_and_processes_may_start_but_no_namespace(machine, clone):
    for flags, expected in (
        (0x11, ALLOW),
        (0x3D0F00, ALLOW),
        (0x10000011, EPERM),
        (0x20000, EPERM),
        (0x40000000, EPERM),
    ):
        assert answer(machine, clone, argument=flags) == expected
    assert answer(machine, 435) == 0x00050000 | errno.ENOSYS  # clone3: the C library falls back to clone


def test_another_instruction_set_is_killed():
    assert answer("x86_64", 0, arch=0x40000003) == KILL  # 32-bit calls of the same machine
    assert answer("x86_64", 0x40000000 + 0) == EPERM  # x32
    assert filter_program("riscv64") is None


def test_podmans_filter_refuses_what_ours_refuses():
    rules = json.loads(profile())
    assert rules["defaultAction"] == "SCMP_ACT_ALLOW"
    refused = {name for rule in rules["syscalls"] if "args" not in rule for name in rule["names"]}
    assert {"unshare", "mount", "setns", "bpf", "ptrace", "clone3"} <= refused and "clone" not in refused
    flags = [rule["args"][0]["value"] for rule in rules["syscalls"] if rule["names"] == ["clone"]]
    assert sum(flags) == 0x7E020000 and len(flags) == 7  # one rule for each kind of namespace
