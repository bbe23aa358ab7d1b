"""The daemons of a sandbox: how each is started, and how to tell that it is ready."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from accounting.errors import SandboxError, SlurmError
from slurm_plugin.sandbox import processes
from slurm_plugin.sandbox.environment import command_environment, daemon_environment
from slurm_plugin.sandbox.files import tail
from slurm_plugin.sandbox.layout import Layout
from slurm_plugin.sandbox.manifest import Manifest
from slurm_plugin.sandbox.release import Programs
from slurm_plugin.sandbox.slurm_conf import LOOPBACK

READY_PATIENCE_S = 120.0
COMMAND_PATIENCE_S = 60.0
POLL_S = 0.05

MUNGED, MARIADBD, SLURMDBD, SLURMCTLD, SERVE = "munged", "mariadbd", "slurmdbd", "slurmctld", "serve"
SERVE_CLIENTS = "serve-clients"
SLURMD_PREFIX = "slurmd-"


def slurmd_names(nodes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the nodes' daemons."""
    return tuple(SLURMD_PREFIX + node for node in nodes)


def start_order(nodes: tuple[str, ...]) -> tuple[str, ...]:
    """List all daemons in the order in which they are started."""
    return (MUNGED, MARIADBD, SLURMDBD, SLURMCTLD, *slurmd_names(nodes), SERVE, SERVE_CLIENTS)


@dataclass(frozen=True)
class Cluster:
    """A sandbox whose programs are known, so that its daemons and commands can be started."""

    layout: Layout
    manifest: Manifest
    programs: Programs

    @property
    def path_first(self) -> tuple[Path, ...]:
        """The folders with which PATH must begin for this sandbox's Slurm; none if it is the system's."""
        return (self.layout.wrappers,) if self.programs.tree else self.programs.prefix_folders

    def program(self, name: str) -> str:
        """Return the path of a Slurm program, or of the script that runs it out of another root file system."""
        return str(self.layout.wrappers / name) if self.programs.tree else self.programs.path(name)

    def command(self, *argv: str, patience_s: float = COMMAND_PATIENCE_S) -> str:
        """Run a Slurm command on this sandbox and return its stdout; SlurmError if it fails."""
        environment = command_environment(self.layout, self.path_first)
        full = [self.program(argv[0]), *argv[1:]]
        try:
            answer = subprocess.run(
                full,
                env=environment,
                capture_output=True,
                text=True,
                timeout=patience_s,
                check=False,
                cwd="/",
            )
        except subprocess.TimeoutExpired:
            raise SlurmError(
                f"`{' '.join(argv)}` did not answer within {patience_s:g} s; see {self.layout.log}"
            ) from None
        if answer.returncode != 0:
            said = " ".join((answer.stderr or answer.stdout).split())
            raise SlurmError(f"`{' '.join(argv)}` failed: {said}; see {self.layout.log}")
        return answer.stdout

    def complaint(self, *argv: str) -> str | None:
        """Return why a Slurm command does not succeed within a few seconds; None if it does."""
        try:
            self.command(*argv, patience_s=5.0)
        except SlurmError as error:
            return str(error)
        return None

    def node_states(self) -> dict[str, str]:
        """Ask slurmctld for the state of each node, in the long form of sinfo."""
        lines = self.command("sinfo", "--noheader", "--Node", "--format=%N %T", patience_s=5.0).splitlines()
        return dict(line.split(maxsplit=1) for line in lines if line.strip())


@dataclass(frozen=True)
class Daemon:
    """How a daemon is started, and a function that says why it is not ready yet (None: it is ready)."""

    name: str
    argv: tuple[str, ...]
    complaint: Callable[[], str | None]


def munged(cluster: Cluster) -> Daemon:
    """Munge's daemon with this sandbox's own key; root can run it only with --force."""
    layout = cluster.layout
    argv = (
        cluster.programs.path("munged"),
        "--foreground",
        "--force",
        f"--socket={layout.munge_socket}",
        f"--key-file={layout.munge_key}",
        f"--pid-file={layout.run}/munged.pid",
        f"--seed-file={layout.secret}/munged.seed",
    )
    return Daemon(MUNGED, argv, lambda: unix_complaint(layout.munge_socket))


def mariadbd(cluster: Cluster) -> Daemon:
    """MariaDB, tuned to start within a second: a power failure would lose only a sandbox."""
    layout, port = cluster.layout, cluster.manifest.ports.mariadb
    argv = (
        cluster.programs.path("mariadbd"),
        *database_options(layout),
        f"--socket={layout.mariadb_socket}",
        f"--pid-file={layout.run}/mariadbd.pid",
        f"--port={port}",
        f"--bind-address={LOOPBACK}",
        f"--init-file={layout.database_setup}",
        "--skip-name-resolve",
        "--skip-log-bin",
        "--performance-schema=OFF",
        "--max-connections=40",
        "--innodb-lock-wait-timeout=900",
        # On by default since 11.6.2, and not supported by Slurm: slurmdbd exits if two writes conflict.
        "--loose-innodb-snapshot-isolation=OFF",
    )
    return Daemon(MARIADBD, argv, lambda: tcp_complaint(port))


def database_options(layout: Layout) -> tuple[str, ...]:
    """List the options for both installing and running the database; --no-defaults must come first.

    Each MariaDB needs its own folder for temporary tables: at its start it deletes those of any other MariaDB there.
    """
    return (
        "--no-defaults",
        f"--datadir={layout.database}",
        f"--tmpdir={layout.scratch}",
        *(("--user=root",) if os.geteuid() == 0 else ()),
        "--innodb-buffer-pool-size=48M",
        "--innodb-log-file-size=16M",
        "--innodb-flush-log-at-trx-commit=0",
        "--innodb-doublewrite=OFF",
    )


def install_database(cluster: Cluster) -> None:
    """Create MariaDB's own tables, once for each sandbox; SandboxError with the end of its log if that fails."""
    layout = cluster.layout
    done = layout.database / "installed"
    if done.exists():
        return
    shutil.rmtree(layout.database)  # a failed install leaves no usable database
    layout.database.mkdir(mode=0o700)
    log = layout.log / "mariadb-install-db.log"
    argv = [
        cluster.programs.path("mariadb-install-db"),
        *database_options(layout),
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        "--skip-name-resolve",
        "--force",  # otherwise it refuses a machine that cannot resolve its own name
    ]
    environment = daemon_environment(layout, cluster.path_first)
    with log.open("wb") as output:
        code = subprocess.run(
            argv,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,
            cwd="/",
        ).returncode
    if code != 0:
        said = tail(log, about="ERROR")
        raise SandboxError(f"mariadb-install-db failed: {said}; read {log}, fix the cause and run `up` again")
    done.touch()


def slurmdbd(cluster: Cluster) -> Daemon:
    """Slurm's database daemon; it finds slurmdbd.conf next to $SLURM_CONF."""
    argv = (cluster.program("slurmdbd"), "-D")
    return Daemon(SLURMDBD, argv, lambda: cluster.complaint("sacctmgr", "--noheader", "list", "cluster"))


def slurmctld(cluster: Cluster) -> Daemon:
    """Slurm's controller."""
    argv = (cluster.program("slurmctld"), "-D", "-f", str(cluster.layout.slurm_conf))
    return Daemon(SLURMCTLD, argv, lambda: cluster.complaint("scontrol", "ping"))


def slurmd(cluster: Cluster, node: str) -> Daemon:
    """One node's daemon; it is ready when slurmctld would give the node a job."""
    step_daemon = ("-d", cluster.program("slurmstepd")) if cluster.programs.tree else ()
    argv = (cluster.program("slurmd"), "-D", "-N", node, "-f", str(cluster.layout.slurm_conf), *step_daemon)
    return Daemon(SLURMD_PREFIX + node, argv, lambda: node_complaint(cluster, node))


def serve(cluster: Cluster) -> Daemon:
    """Our own service, run by this Python interpreter."""
    argv = (sys.executable, "-m", "slurm_plugin.cli", "serve")
    return Daemon(SERVE, argv, lambda: unix_complaint(cluster.layout.service_socket))


def serve_clients(cluster: Cluster) -> Daemon:
    """Our own service for the users' srun and salloc."""
    argv = (sys.executable, "-m", "slurm_plugin.cli", "serve", "--clients")
    return Daemon(SERVE_CLIENTS, argv, lambda: unix_complaint(cluster.layout.client_socket))


def services(cluster: Cluster) -> list[Daemon]:
    """List our own services on this sandbox."""
    return [serve(cluster), *([serve_clients(cluster)] if cluster.manifest.clients else [])]


def safe_node_states(cluster: Cluster) -> Mapping[str, str]:
    """Return the nodes' states; none if slurmctld does not answer."""
    try:
        return cluster.node_states()
    except SlurmError:
        return {}


def is_usable(state: str) -> bool:
    """Whether a node in this state (sinfo's %T) accepts jobs; a `*` marks a node that does not answer."""
    return state in {"idle", "mixed", "allocated", "completing"}


def launch(cluster: Cluster, daemon: Daemon) -> processes.Record:
    """Start a daemon without waiting for it; its output goes to log/NAME.out."""
    environment = daemon_environment(cluster.layout, cluster.path_first)
    log = cluster.layout.log / f"{daemon.name}.out"
    return processes.spawn(daemon.name, daemon.argv, environment, log, cluster.layout.run)


def wait_ready(daemon: Daemon, record: processes.Record) -> None:
    """Wait until a started daemon is ready.

    Raises SandboxError, with the last lines of its log, if it ends first or is not ready within READY_PATIENCE_S.
    """
    deadline = time.monotonic() + READY_PATIENCE_S
    while (complaint := daemon.complaint()) is not None:
        if not processes.is_running(record.identity):
            raise SandboxError(_failure(record, f"{daemon.name} ended right after its start"))
        if time.monotonic() > deadline:
            raise SandboxError(
                _failure(record, f"{daemon.name} was not ready after {READY_PATIENCE_S:g} s ({complaint})")
            )
        time.sleep(POLL_S)


def _failure(record: processes.Record, what: str) -> str:
    return f"{what}: {tail(Path(record.log))}; read {record.log}, fix the cause and run `up` again"


def node_complaint(cluster: Cluster, node: str) -> str | None:
    """Return why a node would not get a job; None if it would."""
    state = safe_node_states(cluster).get(node, "unknown")
    return None if is_usable(state) else f"node {node} is {state}"


def unix_complaint(path: Path) -> str | None:
    """Return why nothing answers on this Unix socket; None if something does."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError as error:
            return f"{path}: {error.strerror or error}"
    return None


def tcp_complaint(port: int) -> str | None:
    """Return why nothing on this host answers on this port; None if something does."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=1.0).close()
    except OSError as error:
        return f"port {port}: {error.strerror or error}"
    return None
