"""Runs a command under the system call filter of a unit, as systemd would, and without writable code in memory.

    python -m tests.slurm_plugin.confined UNIT COMMAND…

It stands in for `systemd-run` where no systemd runs, without the unit's namespaces, capabilities and cgroups.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import subprocess
import sys
from pathlib import Path

ALLOW = 0x7FFF0000
EPERM = 0x00050000 | 1  # SCMP_ACT_ERRNO(EPERM), what SystemCallErrorNumber= says
MASKED_EQ = 7
PROT_WRITE, PROT_EXEC = 2, 4


class Comparison(ctypes.Structure):
    """libseccomp's scmp_arg_cmp: the bits `a` of argument number `arg` must be `b`."""

    _fields_ = [("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


# systemd's MemoryDenyWriteExecute: nothing becomes code that is not a file, or that was data.
WITHOUT_NEW_CODE = {
    "mmap": ((2, PROT_WRITE), (2, PROT_EXEC)),
    "mprotect": ((2, PROT_EXEC),),
    "pkey_mprotect": ((2, PROT_EXEC),),
    "shmat": ((2, 0o100000),),
}


def calls_of(group: str) -> set[str]:
    """Return the system calls of a group such as @system-service, as systemd lists them."""
    done = subprocess.run(
        ["systemd-analyze", "syscall-filter", group], capture_output=True, text=True, check=True
    )
    words = [line.strip() for line in done.stdout.splitlines()[1:] if line.strip()[:1] not in ("", "#")]
    return set().union(*(calls_of(word) if word.startswith("@") else {word} for word in words))


def allowed_by(unit: str) -> set[str]:
    """Return the system calls that a unit's SystemCallFilter= lines allow, read in their order."""
    allowed = calls_of("@default")
    for line in unit.splitlines():
        key, _, value = line.partition("=")
        if key == "SystemCallFilter":
            words = value.lstrip("~").split()
            named = set().union(*(calls_of(word) if word.startswith("@") else {word} for word in words))
            allowed = allowed - named if value.startswith("~") else allowed | named
    return allowed


def confine(allowed: set[str]) -> None:
    """Allow only these system calls to this process and its children."""
    library = ctypes.CDLL(ctypes.util.find_library("seccomp"))
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(EPERM))
    for name in sorted(allowed):
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number < 0:
            continue  # a call of another architecture
        bits = WITHOUT_NEW_CODE.get(name)
        rules = [Comparison(arg, MASKED_EQ, bit, 0) for arg, bit in bits] if bits else [None]
        for rule in rules:
            count, array = (0, None) if rule is None else (1, ctypes.byref(rule))
            if library.seccomp_rule_add_array(context, ALLOW, number, count, array):
                raise OSError(f"libseccomp refuses a rule for {name}")
    if library.seccomp_load(context):
        raise OSError("this kernel takes no filter")


if __name__ == "__main__":
    unit, *command = sys.argv[1:]
    confine(allowed_by(Path(unit).read_text(encoding="utf-8")))
    os.execvp(command[0], command)  # noqa: S606 - the command of the test
