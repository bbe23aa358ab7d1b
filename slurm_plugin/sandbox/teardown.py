"""End everything of a sandbox, whatever its state: jobs, daemons, stragglers, cgroups."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from accounting.errors import SandboxError, SlurmError
from slurm_plugin.sandbox import daemons, processes, scopes
from slurm_plugin.sandbox.daemons import Cluster
from slurm_plugin.sandbox.enforcement import CGROUP_ROOT
from slurm_plugin.sandbox.environment import marks
from slurm_plugin.sandbox.layout import Layout
from slurm_plugin.sandbox.processes import Identity, Record

# slurmctld saves its state and MariaDB flushes when they are asked to end.
DAEMON_PATIENCE_S = 10.0
JOB_PATIENCE_S = 8.0
STRAGGLER_PATIENCE_S = 1.0
CGROUP_PATIENCE_S = 3.0
ROUNDS = 5
# The file, and the word to write into it, that thaw a cgroup, in v1 and in v2.
THAWED = {"freezer.state": "THAWED", "cgroup.freeze": "0"}


def end_everything(cluster: Cluster, progress: Callable[[str], None] = lambda _: None) -> None:
    """End jobs, then daemons (those that need others first), then whatever is left, and remove the cgroups.

    Raises SandboxError, which names what does not end.
    """
    layout, nodes = cluster.layout, cluster.manifest.nodes
    if running_record(layout, daemons.SLURMCTLD) is not None:
        cancel_jobs(cluster)
        progress("jobs cancelled")
    for name in end_order(nodes):
        if end_daemon(layout, name):
            progress(f"{name} ended")
    end_leftovers(layout, nodes)
    for name in end_order(nodes):
        processes.forget_record(name, layout.run)


def end_leftovers(layout: Layout, nodes: tuple[str, ...]) -> None:
    """End whatever still runs, and remove the cgroups; SandboxError names what does not end."""
    left = end_stragglers(layout, nodes)
    if left:
        pids = ", ".join(str(one.pid) for one in left)
        raise SandboxError(
            f"these processes of {layout.root} do not end: {pids}; kill them by hand, then run `down` again"
        )
    stuck = remove_cgroups(nodes)
    if stuck:
        raise SandboxError(f"these cgroups are still in use: {', '.join(map(str, stuck))}; run `down` again")
    scopes.undo()


def end_order(nodes: tuple[str, ...]) -> tuple[str, ...]:
    """List the daemons in the order in which they may end: none before those that need it."""
    slurmds = daemons.slurmd_names(nodes)
    return (
        daemons.SERVE_CLIENTS,
        daemons.SERVE,
        daemons.SLURMCTLD,
        *slurmds,
        *scopes.holder_names(nodes),
        daemons.SLURMDBD,
        daemons.MARIADBD,
        daemons.MUNGED,
    )


def cancel_jobs(cluster: Cluster) -> None:
    """Cancel every job and wait a while for them to end, so that slurmdbd learns of it; never fails."""
    with contextlib.suppress(SlurmError, SandboxError):
        jobs = cluster.command("squeue", "--noheader", "--format=%A", patience_s=JOB_PATIENCE_S).split()
        if jobs:
            cluster.command("scancel", *jobs, patience_s=JOB_PATIENCE_S)
        deadline = time.monotonic() + JOB_PATIENCE_S
        while time.monotonic() < deadline:
            if not cluster.command("squeue", "--noheader", "--format=%i", patience_s=JOB_PATIENCE_S).strip():
                return
            time.sleep(0.2)


def running_record(layout: Layout, name: str) -> Record | None:
    """Return the record of the daemon of that name if it runs."""
    for record in processes.read_records(layout.run):
        if record.name == name and processes.is_running(record.identity):
            return record
    return None


def end_daemon(layout: Layout, name: str) -> bool:
    """End the daemon of that name; return whether it ran. One that does not end is left to `end_stragglers`."""
    record = running_record(layout, name)
    if record is not None:
        processes.end([record.identity], DAEMON_PATIENCE_S)
    processes.forget_record(name, layout.run)
    return record is not None


def end_stragglers(layout: Layout, nodes: tuple[str, ...]) -> tuple[Identity, ...]:
    """End slurmstepd, jobs, and daemons whose records are lost; return what is left after several rounds."""
    left: tuple[Identity, ...] = ()
    for _ in range(ROUNDS):
        thaw(nodes)
        left = processes.find_processes(marks(layout, nodes), cgroup_processes(nodes))
        if not left:
            return ()
        processes.end(left, STRAGGLER_PATIENCE_S)
    return left


def cgroup_folders(nodes: tuple[str, ...]) -> tuple[Path, ...]:
    """List the top cgroups of the nodes: slurm_NODE in each controller of v1, their scopes in v2."""
    v1 = (folder for node in nodes for folder in sorted(CGROUP_ROOT.glob(f"*/slurm_{node}")))
    return (*v1, *(scope for scope in map(scopes.scope_of, nodes) if scope.is_dir()))


def thaw(nodes: tuple[str, ...]) -> None:
    """Thaw suspended jobs: a frozen process cannot even be killed."""
    for top in cgroup_folders(nodes):
        for file, thawed in THAWED.items():
            for state in top.rglob(file):
                with contextlib.suppress(OSError):
                    state.write_text(thawed, encoding="ascii")


def cgroup_processes(nodes: tuple[str, ...]) -> tuple[int, ...]:
    """List the pids in the nodes' cgroups, which a job cannot leave, whatever it does to its environment."""
    pids: set[int] = set()
    for top in cgroup_folders(nodes):
        for members in top.rglob("cgroup.procs"):
            with contextlib.suppress(OSError):
                pids.update(int(line) for line in members.read_text(encoding="ascii").split())
    return tuple(pids)


def remove_cgroups(nodes: tuple[str, ...]) -> tuple[Path, ...]:
    """Remove the nodes' cgroups from the leaves up; return those that stay busy for several seconds."""
    deadline = time.monotonic() + CGROUP_PATIENCE_S
    left = cgroup_folders(nodes)
    while left:
        for top in left:
            for folder in (*sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True), top):
                with contextlib.suppress(OSError):
                    folder.rmdir()
        left = cgroup_folders(nodes)
        if left and time.monotonic() > deadline:
            break
        if left:
            time.sleep(0.1)
    return left
