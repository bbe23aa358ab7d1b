"""Cgroup v2: make the scope in which Slurm's plugin keeps a node's jobs, before slurmd looks for it.

On every release, slurmd uses an existing scope as it is. Without one it asks systemd over D-Bus, which not every build
of slurmd can do. If it is told to ignore systemd, it moves processes and enables controllers outside the sandbox.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from accounting.errors import SandboxError
from slurm_plugin.sandbox import processes
from slurm_plugin.sandbox.daemons import Cluster
from slurm_plugin.sandbox.enforcement import CGROUP_ROOT, SYSTEMD, V2_CONTROLLERS
from slurm_plugin.sandbox.environment import daemon_environment
from slurm_plugin.sandbox.files import tail

# The slice in which every release looks for its scope.
SLICE = "system.slice"
# The prefix of a top-level cgroup whose name lists what we changed, to be undone when the last sandbox ends. It also
# takes the processes of a container's top cgroup: except for the host's top cgroup, a cgroup with processes may not
# enable controllers for those below it.
UNDO = "rightsizer-undo-"
HOLDER_PREFIX = "scope-"
# Processes that fork meanwhile make another round necessary.
ROUNDS = 20
PATIENCE_S = 20.0


def scope_of(node: str, root: Path = CGROUP_ROOT) -> Path:
    """Return the cgroup of a node's jobs, as slurmd names it."""
    return root / SLICE / f"{node}_slurmstepd.scope"


def holder_names(nodes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the processes that keep the nodes' scopes open for systemd."""
    return tuple(HOLDER_PREFIX + node for node in nodes)


def make_scopes(cluster: Cluster) -> None:
    """Make the scope of each node, with all that it needs; SandboxError or OSError if that is impossible."""
    if SYSTEMD.is_dir():
        ask_systemd(cluster)
    else:
        make_by_hand(cluster.manifest.nodes)


def ask_systemd(cluster: Cluster) -> None:
    """Let systemd make each scope, delegated to Slurm, and keep a process in it: systemd removes an empty scope."""
    layout = cluster.layout
    environment = daemon_environment(layout, cluster.path_first)
    started = []
    for node in cluster.manifest.nodes:
        scope = scope_of(node)
        argv = (
            "systemd-run",
            "--scope",
            "--quiet",
            "--collect",
            f"--slice={SLICE}",
            f"--unit={scope.name}",
            "--property=Delegate=yes",
            "--property=TasksMax=infinity",
            "--property=MemorySwapMax=0",
            *("sleep", "infinity"),
        )
        name = HOLDER_PREFIX + node
        record = processes.spawn(name, argv, environment, layout.log / f"{name}.out", layout.run)
        started.append((scope, record))
    for scope, record in started:
        _wait_held(scope, record)
        # The process may not stay at the top of its scope, because Slurm enables controllers there.
        (scope / "system").mkdir()
        _write(scope / "system/cgroup.procs", str(record.pid))


def _wait_held(scope: Path, record: processes.Record) -> None:
    """Wait until a holder is in its scope; SandboxError with the end of its log if it does not get there."""
    until_s = time.monotonic() + PATIENCE_S
    while str(record.pid) not in _words(scope / "cgroup.procs"):
        if not processes.is_running(record.identity) or time.monotonic() > until_s:
            raise SandboxError(f"systemd did not make {scope.name}: {tail(Path(record.log))}")
        time.sleep(processes.POLL_S)


def make_by_hand(nodes: tuple[str, ...], root: Path = CGROUP_ROOT) -> None:
    """Make each scope on a host where systemd does not manage the cgroups; OSError if the kernel refuses."""
    with _locked(root):
        missing = [name for name in V2_CONTROLLERS if name not in _words(root / "cgroup.subtree_control")]
        changes = [*missing, *(() if (root / SLICE).is_dir() else (SLICE,))]
        if changes:
            aside = root / (UNDO + ",".join(changes))
            aside.mkdir(exist_ok=True)
            if missing and (root / "cgroup.type").exists():
                _move(root, aside)
        _switch("+", V2_CONTROLLERS, root)
        (root / SLICE).mkdir(exist_ok=True)
        _switch("+", V2_CONTROLLERS, root / SLICE)
        for node in nodes:
            scope = scope_of(node, root)
            scope.mkdir(exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # a kernel without swap
                _write(scope / "memory.swap.max", "0")


def undo(root: Path = CGROUP_ROOT) -> None:
    """Restore everything as it was before the first sandbox, unless another sandbox still needs it."""
    if not any(root.glob(UNDO + "*")):
        return
    # If the kernel refuses a step, somebody else uses that cgroup.
    with contextlib.suppress(OSError), _locked(root):
        if any((root / SLICE).glob(scope_of("*").name)):
            return
        for aside in root.glob(UNDO + "*"):
            changes = aside.name.removeprefix(UNDO).split(",")
            if SLICE in changes and (root / SLICE).is_dir():
                (root / SLICE).rmdir()
            for group in (root / SLICE, root):
                if group.is_dir():
                    _switch("-", [name for name in V2_CONTROLLERS if name in changes], group)
            _move(aside, root)
            aside.rmdir()


def _switch(sign: str, controllers: Iterable[str], group: Path) -> None:
    """Enable (`+`) or disable (`-`) these controllers for the cgroups below one."""
    for name in controllers:
        _write(group / "cgroup.subtree_control", sign + name)


def _move(source: Path, target: Path) -> None:
    """Move all processes from one cgroup to another, except those of another PID namespace, which read as 0."""
    for _ in range(ROUNDS):
        pids = [pid for pid in _words(source / "cgroup.procs") if pid != "0"]
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # the process has ended meanwhile
                _write(target / "cgroup.procs", pid)


def _words(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="ascii").split()
    except OSError:
        return []


def _write(file: Path, text: str) -> None:
    # Unbuffered and without O_CREAT, so that the kernel's answer to this write is not lost.
    descriptor = os.open(file, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode("ascii"))
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from None
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Let only one sandbox at a time change the top cgroup."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
