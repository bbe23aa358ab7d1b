"""Cgroup v2: the scope in which Slurm's plugin keeps the jobs of a node, made before slurmd looks for it.

slurmd takes a scope that is there as it is, on every release. Left to itself it asks systemd over D-Bus, which not
every build of it can; told to ignore systemd, it moves processes and enables controllers that are not the sandbox's.
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

# Where every release looks for its scope.
SLICE = "system.slice"
# A cgroup at the top whose name says what was not so before, until the last sandbox ends. It also takes the processes
# of a container's top cgroup: none with processes may have controllers below it, but for the host's own.
UNDO = "rightsizer-undo-"
HOLDER_PREFIX = "scope-"
# Forks and execs meanwhile make another round necessary.
ROUNDS = 20
PATIENCE_S = 20.0


def scope_of(node: str, root: Path = CGROUP_ROOT) -> Path:
    """Return the cgroup of a node's jobs, as slurmd names it."""
    return root / SLICE / f"{node}_slurmstepd.scope"


def holder_names(nodes: tuple[str, ...]) -> tuple[str, ...]:
    """Name the processes that keep the nodes' scopes open for systemd."""
    return tuple(HOLDER_PREFIX + node for node in nodes)


def make_scopes(cluster: Cluster) -> None:
    """Make the scope of each node, with all that it needs; SandboxError or OSError where that is impossible."""
    if SYSTEMD.is_dir():
        ask_systemd(cluster)
    else:
        make_by_hand(cluster.manifest.nodes)


def ask_systemd(cluster: Cluster) -> None:
    """Have systemd make each scope, delegated to Slurm, and keep a process in it: systemd ends one that is empty."""
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
        # Not at the top of its scope, where Slurm enables controllers.
        (scope / "system").mkdir()
        _write(scope / "system/cgroup.procs", str(record.pid))


def _wait_held(scope: Path, record: processes.Record) -> None:
    """Wait until a holder is in its scope; SandboxError with its last words where it never is."""
    until_s = time.monotonic() + PATIENCE_S
    while str(record.pid) not in _words(scope / "cgroup.procs"):
        if not processes.is_running(record.identity) or time.monotonic() > until_s:
            raise SandboxError(f"systemd did not make {scope.name}: {tail(Path(record.log))}")
        time.sleep(processes.POLL_S)


def make_by_hand(nodes: tuple[str, ...], root: Path = CGROUP_ROOT) -> None:
    """Make each scope where nobody else governs the cgroups; OSError where the kernel refuses that."""
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
    """Put everything back as it was before the first sandbox, unless another one still needs it."""
    if not any(root.glob(UNDO + "*")):
        return
    # What is refused is in use by somebody else.
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
    """Let the cgroups below one have these controllers (`+`), or no longer (`-`)."""
    for name in controllers:
        _write(group / "cgroup.subtree_control", sign + name)


def _move(source: Path, target: Path) -> None:
    """Move all processes from one cgroup to another; those of another PID namespace, which read as 0, stay."""
    for _ in range(ROUNDS):
        pids = [pid for pid in _words(source / "cgroup.procs") if pid != "0"]
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                _write(target / "cgroup.procs", pid)


def _words(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="ascii").split()
    except OSError:
        return []


def _write(file: Path, text: str) -> None:
    # Unbuffered and without O_CREAT: the kernel's answer to this very write is what counts.
    descriptor = os.open(file, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode("ascii"))
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from None
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Let one sandbox at a time change the top cgroup."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
