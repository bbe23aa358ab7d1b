"""A whole sandbox: start it, load it, change its mode, stop it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from accounting.decisions.decision import Mode
from accounting.errors import SandboxError
from slurm_plugin.sandbox import daemons, files, processes, scopes, slurm_user, teardown
from slurm_plugin.sandbox.daemons import Cluster, Daemon
from slurm_plugin.sandbox.enforcement import memory_enforcement, off
from slurm_plugin.sandbox.environment import marks, user_environment
from slurm_plugin.sandbox.layout import Layout
from slurm_plugin.sandbox.manifest import Manifest, read_manifest, write_manifest
from slurm_plugin.sandbox.ports import reserved_ports
from slurm_plugin.sandbox.release import Programs, find_programs, parse_version, release_of
from slurm_plugin.sandbox.shape import PLAIN, Shape
from slurm_plugin.sandbox.slurm_conf import ClusterPlan, Ports

NODES_MAX = 64
ACCOUNT = "demo"

Progress = Callable[[str], None]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `rightsizer sandbox up`; `mode` None keeps the folder's own mode (`observe` in a new folder).

    `shape`, `slurm_user` and `clients` are only for tests; the command line offers plain nodes, and one user for all.
    With `slurm_user`, slurmctld and slurmdbd, started by root, become that user, as on a real cluster. With `clients`,
    there are a cli_filter and the service that answers it.
    """

    directory: Path
    nodes: int = 4
    slurm_prefix: Path | None = None
    hook: bool = True
    mode: Mode | None = None
    serve: bool = True
    shape: Shape = PLAIN
    slurm_user: str = ""
    clients: bool = False


@dataclass(frozen=True)
class Sandbox:
    """A sandbox that `up` has made; it may have been stopped since."""

    cluster: Cluster

    @property
    def directory(self) -> Path:
        """The sandbox's folder."""
        return self.cluster.layout.root

    @property
    def layout(self) -> Layout:
        """The paths of its files."""
        return self.cluster.layout

    @property
    def manifest(self) -> Manifest:
        """What `up` made."""
        return self.cluster.manifest

    def environment(self) -> dict[str, str]:
        """Return the variables that make plain sbatch, sacct and rightsizer use this sandbox; PATH is complete."""
        return user_environment(self.layout, self.cluster.path_first)

    def command(self, *argv: str, patience_s: float = daemons.COMMAND_PATIENCE_S) -> str:
        """Run a Slurm command on the sandbox and return its stdout; SlurmError if it fails."""
        return self.cluster.command(*argv, patience_s=patience_s)


def start(options: Options, progress: Progress = lambda _: None) -> Sandbox:
    """Make a sandbox and start everything in it; if anything fails, end what was started.

    `progress` receives one short line for each daemon. Raises SandboxError or SlurmError.
    """
    layout = layout_of(options.directory)
    files.check_folder(layout)
    user_name(os.geteuid())
    if not 1 <= options.nodes <= NODES_MAX:
        raise SandboxError(f"--nodes {options.nodes} is not between 1 and {NODES_MAX}; choose another number")
    prefix = options.slurm_prefix.absolute() if options.slurm_prefix else None
    if prefix:
        files.refuse_characters(prefix, "--slurm-prefix")
    programs = find_programs(prefix)
    release = release_of(programs)
    refuse_running(layout)
    files.make_folders(layout)
    if options.slurm_user:
        slurm_user.check(options.slurm_user, layout, options.slurm_prefix)
    with told_if_unwritable(layout), locked(layout):
        refuse_running(layout)
        with ExitStack() as undo, reserved_ports(3 + options.nodes) as free:
            mariadb, slurmdbd, slurmctld, *slurmds = free
            ports = Ports(mariadb, slurmdbd, slurmctld, tuple(slurmds))
            cluster = Cluster(layout, new_manifest(options, layout, release, ports), programs)
            undo.callback(teardown.end_everything, cluster)
            cluster = with_scopes(cluster)
            write_manifest(cluster.manifest, layout)
            write_files(cluster, options.mode, options.shape)
            boot(cluster, progress)
            undo.pop_all()
    return Sandbox(cluster)


def load(directory: Path) -> Sandbox:
    """Return the sandbox in `directory`, running or not; SandboxError if there is none."""
    layout = layout_of(directory)
    manifest = read_manifest(layout)
    prefix = Path(manifest.slurm_prefix) if manifest.slurm_prefix else None
    return Sandbox(Cluster(layout, manifest, find_programs(prefix)))


def stop(directory: Path, *, remove: bool = False, progress: Progress = lambda _: None) -> None:
    """End every process of the sandbox and remove its cgroups, whatever its state; with `remove`, its folder too.

    If its folder cannot be written, the jobs are not cancelled first.

    Raises SandboxError if there is no sandbox, if it belongs to another user, or if a process does not end.
    """
    layout = layout_of(directory)
    try:
        manifest = read_manifest(layout)
    except SandboxError:
        # Somebody removed the folder of a running sandbox: only its processes can still be found.
        if not processes.find_processes(marks(layout, ())):
            raise
        teardown.end_leftovers(layout, layout.node_names(NODES_MAX))
        return
    files.refuse_foreign(layout)
    if manifest.user_id != os.geteuid():
        raise SandboxError(f"{layout.root} belongs to user {manifest.user_id}; run `down` as that user")
    try:
        with locked(layout):
            teardown.end_everything(Cluster(layout, manifest, _programs_at_hand(manifest)), progress)
    except OSError as error:  # such as a disk that has become read-only
        progress(f"cannot write {error.filename}: {error.strerror}; only the processes are ended")
        teardown.end_leftovers(layout, manifest.nodes)
    if remove:
        remove_folder(layout.root)
        progress(f"removed {layout.root}")


def layout_of(directory: Path) -> Layout:
    """Return the layout of a sandbox's folder; SandboxError if the folder cannot be found from where we are."""
    try:
        return Layout(directory.resolve())
    except (OSError, RuntimeError) as error:  # the working directory was removed; links in a circle
        raise SandboxError(
            f"cannot find {directory} from here ({error}); give --dir an absolute path"
        ) from None


def remove_folder(root: Path) -> None:
    """Remove the folder of a sandbox that has ended; SandboxError if something in it cannot be removed."""
    try:
        shutil.rmtree(root)
    except OSError as error:
        raise SandboxError(
            f"cannot remove {error.filename}: {error.strerror}; remove {root} by hand"
        ) from None


def set_mode(directory: Path, mode: Mode) -> None:
    """Write the mode into the sandbox's rightsizer.toml and restart the service if it runs; only the owner may."""
    sandbox = load(directory)
    files.refuse_foreign(sandbox.layout)
    files.rewrite_mode(sandbox.layout, mode)
    if teardown.running_record(sandbox.layout, daemons.SERVE) is not None:
        stop_service(directory)
        start_service(directory)


def start_service(directory: Path) -> None:
    """Start `rightsizer serve` on the sandbox, unless it runs already, and wait until it answers."""
    cluster = load(directory).cluster
    ended = [
        service
        for service in daemons.services(cluster)
        if teardown.running_record(cluster.layout, service.name) is None
    ]
    bring_up(ended, cluster, lambda _: None)


def stop_service(directory: Path) -> None:
    """End `rightsizer serve` of the sandbox, if it runs."""
    cluster = load(directory).cluster
    for service in daemons.services(cluster):
        teardown.end_daemon(cluster.layout, service.name)


def boot(cluster: Cluster, progress: Progress) -> None:
    """Start all daemons, each as soon as the daemons that it needs are ready."""
    daemons.install_database(cluster)
    bring_up([daemons.munged(cluster), daemons.mariadbd(cluster)], cluster, progress)
    bring_up([daemons.slurmdbd(cluster)], cluster, progress)
    register(cluster)
    bring_up([daemons.slurmctld(cluster)], cluster, progress)
    refuse_single_slurmd(cluster)
    bring_up([daemons.slurmd(cluster, node) for node in cluster.manifest.nodes], cluster, progress)
    if cluster.manifest.serve:
        bring_up(daemons.services(cluster), cluster, progress)


def refuse_single_slurmd(cluster: Cluster) -> None:
    """Raise SandboxError if there are several nodes, and this Slurm was built for one slurmd on a host.

    Its slurmd would share their cgroups, end each other's jobs, and leave them in COMPLETING (23.11, 25.11).
    """
    if len(cluster.manifest.nodes) > 1 and "MULTIPLE_SLURMD" not in cluster.command(
        "scontrol", "show", "config"
    ):
        raise SandboxError(
            "this Slurm was built for one slurmd on a host; use `rightsizer sandbox up --nodes 1`, or build it with "
            "`./configure --enable-multiple-slurmd`"
        )


def bring_up(several: list[Daemon], cluster: Cluster, progress: Progress) -> None:
    """Start daemons at once and wait until all are ready."""
    started = [(daemon, daemons.launch(cluster, daemon)) for daemon in several]
    for daemon, record in started:
        daemons.wait_ready(daemon, record)
        progress(f"{daemon.name} is ready")


def register(cluster: Cluster) -> None:
    """Add the cluster's name to slurmdbd before slurmctld asks for it, and the one account; both only once."""
    known = cluster.command(
        "sacctmgr", "--noheader", "--parsable2", "list", "cluster", "format=cluster"
    ).split()
    name = cluster.layout.cluster
    if name not in known:
        cluster.command("sacctmgr", "--immediate", "add", "cluster", name)
    accounts = cluster.command(
        "sacctmgr", "--noheader", "--parsable2", "list", "account", "format=account"
    ).split()
    if ACCOUNT not in accounts:
        cluster.command("sacctmgr", "--immediate", "add", "account", ACCOUNT)


def new_manifest(options: Options, layout: Layout, release: str, ports: Ports) -> Manifest:
    """Return the manifest of a sandbox that is about to be made."""
    return Manifest(
        nodes=layout.node_names(options.nodes),
        ports=ports,
        release=release,
        slurm_prefix=str(options.slurm_prefix.absolute()) if options.slurm_prefix else None,
        hook=options.hook,
        serve=options.serve,
        clients=options.clients,
        user_id=os.geteuid(),
        enforcement=memory_enforcement(os.geteuid()),
        slurm_user=options.slurm_user,
    )


def with_scopes(cluster: Cluster) -> Cluster:
    """Make the scopes that cgroup v2 needs; if that fails, return a sandbox without memory limits."""
    manifest = cluster.manifest
    if manifest.enforcement.plugin != "cgroup/v2":
        return cluster
    try:
        scopes.make_scopes(cluster)
    except SandboxError as error:
        reason = str(error)
    except OSError as error:
        reason = f"cannot change {error.filename}: {error.strerror}"
    else:
        return cluster
    teardown.end_everything(cluster)
    return replace(cluster, manifest=msgspec.structs.replace(manifest, enforcement=off(reason)))


def write_files(cluster: Cluster, mode: Mode | None, shape: Shape) -> None:
    """Write all configuration files of a sandbox."""
    manifest = cluster.manifest
    starter = user_name(manifest.user_id)
    files.write_rightsizer_files(
        cluster.layout,
        mode,
        hook=manifest.hook,
        clients=manifest.clients,
        slurm_user=manifest.slurm_user,
    )
    if cluster.programs.tree is not None:
        files.write_programs(cluster.layout.wrappers, cluster.programs.tree.wrappers())
    files.write_slurm_files(
        ClusterPlan(
            layout=cluster.layout,
            ports=manifest.ports,
            version=parse_version(manifest.release),
            host=socket.gethostname().partition(".")[0],
            user=manifest.slurm_user or starter,
            starter=starter,
            hook=manifest.hook,
            clients=manifest.clients,
            enforcement=manifest.enforcement,
            plugins=cluster.programs.plugins,
            shape=shape,
        )
    )
    if manifest.slurm_user:
        slurm_user.hand_over(cluster.layout, manifest.slurm_user)


def user_name(user_id: int) -> str:
    """Return the name of a user; SandboxError if this host has none for the number, as may be in a container."""
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        raise SandboxError(
            f"user id {user_id} has no name on this host, and Slurm knows users by name; run this as a "
            "user with a name"
        ) from None


def refuse_running(layout: Layout) -> None:
    """Raise SandboxError if any daemon of this folder still runs, known by its record or only by its marker."""
    recorded = any(processes.is_running(record.identity) for record in processes.read_records(layout.run))
    if recorded or processes.find_processes(marks(layout, ())):
        raise SandboxError(
            f"{layout.root} is already running; run `rightsizer sandbox down --dir {layout.root}` first"
        )


@contextlib.contextmanager
def locked(layout: Layout) -> Iterator[None]:
    """Let only one `up` or `down` at a time work on a folder; SandboxError if another one does."""
    layout.run.mkdir(exist_ok=True)
    with (layout.run / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SandboxError(
                f"another `rightsizer sandbox` command is working on {layout.root}; wait until it has ended"
            ) from None
        yield


@contextlib.contextmanager
def told_if_unwritable(layout: Layout) -> Iterator[None]:
    """Raise SandboxError for a file that cannot be written: the disk may be full, or have become read-only."""
    try:
        yield
    except OSError as error:
        file = error.filename2 or error.filename or layout.root  # of a link, the second is where it was to be
        raise SandboxError(
            f"cannot write {file}: {error.strerror}; check the owner and the free space"
        ) from None


def _programs_at_hand(manifest: Manifest) -> Programs:
    """Return the programs for `down`, which must work even if Slurm has been removed meanwhile."""
    try:
        return find_programs(Path(manifest.slurm_prefix) if manifest.slurm_prefix else None)
    except SandboxError:
        return Programs(folders=(), prefix_folders=(), plugins=None)
