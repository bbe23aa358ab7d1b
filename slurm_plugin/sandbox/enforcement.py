"""Find out whether Slurm can really limit memory on this host and, if not, why."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Literal

import msgspec

from accounting.gpu_collector.attribution import top_of

CGROUP_ROOT = Path("/sys/fs/cgroup")
PROC = Path("/proc")
# Exists only if systemd is the init process (sd_booted(3)).
SYSTEMD = Path("/run/systemd/system")
# proctrack/cgroup uses the freezer, task/cgroup limits memory, jobacct_gather/cgroup counts CPU time.
V1_CONTROLLERS = ("memory", "freezer", "cpuacct")
# In v2, freezing needs no controller. Slurm counts CPU time only with the controller cpu. 22.05 does not recognise the
# last of a cgroup's controllers, in the kernel's order, so memory must be followed by another one.
V2_CONTROLLERS = ("cpu", "memory", "pids")


class Enforcement(msgspec.Struct, frozen=True):
    """Whether memory is limited, whether Slurm limits swap, the reason in words, and which cgroup plugin is used."""

    memory: bool
    swap: bool
    reason: str
    plugin: Literal["cgroup/v1", "cgroup/v2"] = "cgroup/v1"


def memory_enforcement(
    user_id: int, cgroup_root: Path = CGROUP_ROOT, proc: Path = PROC, systemd: Path = SYSTEMD
) -> Enforcement:
    """Decide whether one of Slurm's cgroup plugins will work for `user_id`.

    Makes and removes an empty directory, in v1 one for each controller: the mount options alone do not show whether a
    container may write there. In v2, if systemd makes the cgroups, this is not tried.
    """
    if user_id != 0:
        return off("only root may make cgroups")
    unified = (cgroup_root / "cgroup.controllers").exists()
    missing = _missing_in_v2(cgroup_root, proc) if unified else _missing_in_v1(cgroup_root)
    if missing:
        return off(missing)
    # A random name, because one process may start several sandboxes at once.
    probe = f"rightsizer-probe-{secrets.token_hex(4)}"
    tops = [cgroup_root / name for name in V1_CONTROLLERS]
    if unified:
        tops = [] if systemd.is_dir() else [cgroup_root]
    try:
        present = [_files_of_new_group(top / probe) for top in tops]
    except OSError as error:
        return off(f"cannot make {error.filename}: {error.strerror}")
    if unified:
        # The nodes' scopes may not swap at all (scopes.py), so there is nothing left for Slurm to limit.
        return Enforcement(memory=True, swap=False, reason=f"cgroup v2 in {cgroup_root}", plugin="cgroup/v2")
    if "memory.limit_in_bytes" not in present[0]:
        return off(f"{cgroup_root}/memory has no memory.limit_in_bytes")
    swap = "memory.memsw.limit_in_bytes" in present[0]
    return Enforcement(memory=True, swap=swap, reason=f"cgroup v1 in {cgroup_root}")


def off(reason: str) -> Enforcement:
    """Return an enforcement without any limits, for this reason."""
    return Enforcement(memory=False, swap=False, reason=reason)


def _missing_in_v1(cgroup_root: Path) -> str:
    """Return what Slurm's cgroup/v1 lacks here; '' if nothing."""
    for controller in V1_CONTROLLERS:
        if not (cgroup_root / controller / "cgroup.procs").exists():
            return f"the cgroup v1 controller {controller} is not mounted in {cgroup_root}"
    return ""


def _missing_in_v2(cgroup_root: Path, proc: Path) -> str:
    """Return what Slurm's cgroup/v2 lacks here; '' if nothing."""
    here = (cgroup_root / "cgroup.controllers").read_text(encoding="ascii").split()
    for controller in V2_CONTROLLERS:
        if controller not in here:
            return f"{cgroup_root} is cgroup v2 without the controller {controller}"
    if any(not line.startswith("0::") for line in (proc / "self/cgroup").read_text("utf-8").splitlines()):
        return (
            f"{cgroup_root} is cgroup v2, but cgroup v1 is in use too, and Slurm's cgroup/v2 plugin refuses "
            "that"
        )
    top = top_of((proc / "1/cgroup").read_text("utf-8"))
    if top:
        return f"this container sees the cgroups of the whole host, and is in {top} of them"
    return ""


def _files_of_new_group(group: Path) -> set[str]:
    """Make a cgroup, list the files that the kernel creates in it, and remove it again."""
    group.mkdir()
    try:
        return {file.name for file in group.iterdir()}
    finally:
        group.rmdir()
