"""Whether Slurm can really limit memory on this host, and why not where it cannot."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

CGROUP_ROOT = Path("/sys/fs/cgroup")
# proctrack/cgroup freezes, task/cgroup limits memory, jobacct_gather/cgroup counts CPU time.
CONTROLLERS = ("memory", "freezer", "cpuacct")


class Enforcement(msgspec.Struct, frozen=True):
    """Memory limits on or off, swap limits on or off, and the reason in words."""

    memory: bool
    swap: bool
    reason: str


def memory_enforcement(user_id: int, cgroup_root: Path = CGROUP_ROOT) -> Enforcement:
    """Decide whether Slurm's cgroup v1 plugins will work for `user_id`.

    Makes and removes one empty directory per controller: the mount options alone do not tell whether a container
    may write there.
    """
    if user_id != 0:
        return _off("only root may make cgroups")
    if (cgroup_root / "cgroup.controllers").exists():
        return _off(f"{cgroup_root} is cgroup v2; the sandbox limits memory with cgroup v1 only")
    for controller in CONTROLLERS:
        if not (cgroup_root / controller / "cgroup.procs").exists():
            return _off(f"the cgroup v1 controller {controller} is not mounted in {cgroup_root}")
    probe = f"rightsizer-probe-{os.getpid()}"
    try:
        present = [_files_of_new_group(cgroup_root / controller / probe) for controller in CONTROLLERS]
    except OSError as error:
        return _off(f"{error.filename} cannot be made: {error.strerror}")
    if "memory.limit_in_bytes" not in present[0]:
        return _off(f"{cgroup_root}/memory has no memory.limit_in_bytes")
    swap = "memory.memsw.limit_in_bytes" in present[0]
    return Enforcement(memory=True, swap=swap, reason=f"cgroup v1 in {cgroup_root}")


def _off(reason: str) -> Enforcement:
    return Enforcement(memory=False, swap=False, reason=reason)


def _files_of_new_group(group: Path) -> set[str]:
    """Make a group, note the files that the kernel puts into it, remove it again."""
    group.mkdir()
    try:
        return {file.name for file in group.iterdir()}
    finally:
        group.rmdir()
