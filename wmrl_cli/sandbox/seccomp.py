"""A system-call filter for scripts: classic BPF that answers EPERM to what no data-science script needs.

For an engine whose own filter lets scripts make namespaces (Podman's does) the same is written as a profile.

Built here, so that no binary blob is shipped. Only x86_64 and aarch64; elsewhere there is no filter, and the
run's `enforcement` says so.
"""

from __future__ import annotations

import errno
import json
import platform
import struct

_LOAD, _JUMP_EQ, _JUMP_GE, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCH, _ARG0 = 0, 4, 16  # offsets in struct seccomp_data (little endian)
_X32 = 0x40000000
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE3 = 435

# name -> numbers on (x86_64, aarch64)
_DENIED = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "fanotify_init": (300, 262),
    "quotactl": (179, 60),
    "acct": (163, 89),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "pidfd_getfd": (438, 438),
    "mount_setattr": (442, 442),
}


def filter_program(machine: str | None = None) -> bytes | None:
    """The compiled filter for `machine` (default: this one), or None where we have no table for it."""
    machine = machine or platform.machine()
    if machine not in _AUDIT_ARCH:
        return None
    column = 0 if machine == "x86_64" else 1
    deny = _ERRNO | errno.EPERM
    program = [
        (_LOAD, 0, 0, _ARCH),
        (_JUMP_EQ, 1, 0, _AUDIT_ARCH[machine]),
        (_RETURN, 0, 0, _KILL),  # another instruction set, whose numbers mean other calls
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        program += [(_JUMP_GE, 0, 1, _X32), (_RETURN, 0, 0, deny)]
    for numbers in _DENIED.values():
        program += [(_JUMP_EQ, 0, 1, numbers[column]), (_RETURN, 0, 0, deny)]
    # clone3 hides its flags behind a pointer: "no such call" makes the C library use clone, whose flags we see.
    program += [(_JUMP_EQ, 0, 1, _CLONE3), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    program += [
        (_JUMP_EQ, 0, 3, _CLONE[machine]),
        (_LOAD, 0, 0, _ARG0),
        (_JUMP_SET, 0, 1, _NEW_NAMESPACES),
        (_RETURN, 0, 0, deny),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)


def profile() -> str:
    """The same filter as the JSON profile that container engines read; they know the numbers themselves."""
    refuse = {"action": "SCMP_ACT_ERRNO", "errnoRet": errno.EPERM}
    flags = [1 << bit for bit in range(_NEW_NAMESPACES.bit_length()) if _NEW_NAMESPACES >> bit & 1]
    return json.dumps(
        {
            "defaultAction": "SCMP_ACT_ALLOW",
            "syscalls": [
                {"names": list(_DENIED), **refuse},
                {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": errno.ENOSYS},
                *({"names": ["clone"], "args": [_has(flag)], **refuse} for flag in flags),
            ],
        }
    )


def _has(flag: int) -> dict[str, object]:
    return {"index": 0, "value": flag, "valueTwo": flag, "op": "SCMP_CMP_MASKED_EQ"}
