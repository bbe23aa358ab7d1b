"""Which daemons of a sandbox run, and whether its nodes accept jobs."""

from __future__ import annotations

import msgspec

from slurm_plugin.sandbox import daemons, files, teardown
from slurm_plugin.sandbox.cluster import Sandbox


class DaemonStatus(msgspec.Struct, frozen=True):
    """One daemon; `pid` is None if it does not run."""

    name: str
    pid: int | None
    running: bool


class Status(msgspec.Struct, frozen=True):
    """A sandbox at one moment; `node_states` are sinfo's words, `closed_parent` is what keeps other users out."""

    directory: str
    release: str
    daemons: tuple[DaemonStatus, ...]
    node_states: dict[str, str]
    memory_enforced: bool
    memory_reason: str
    closed_parent: str | None

    @property
    def healthy(self) -> bool:
        """Whether everything that should run does, and every node accepts jobs."""
        nodes_fine = bool(self.node_states) and all(map(daemons.is_usable, self.node_states.values()))
        return nodes_fine and all(daemon.running for daemon in self.daemons)


def status_of(sandbox: Sandbox) -> Status:
    """Look at every daemon and, if slurmctld runs, at every node."""
    layout, manifest = sandbox.layout, sandbox.manifest
    rows = []
    absent = {
        *(() if manifest.serve else (daemons.SERVE,)),
        *(() if manifest.serve and manifest.clients else (daemons.SERVE_CLIENTS,)),
    }
    for name in daemons.start_order(manifest.nodes):
        if name in absent:
            continue
        record = teardown.running_record(layout, name)
        rows.append(DaemonStatus(name, record.pid if record else None, record is not None))
    controller = any(row.running for row in rows if row.name == daemons.SLURMCTLD)
    states = dict(daemons.safe_node_states(sandbox.cluster)) if controller else {}
    closed = files.closed_parent(layout.root)
    return Status(
        directory=str(layout.root),
        release=manifest.release,
        daemons=tuple(rows),
        node_states={node: states.get(node, "unknown") for node in manifest.nodes},
        memory_enforced=manifest.enforcement.memory,
        memory_reason=manifest.enforcement.reason,
        closed_parent=str(closed) if closed else None,
    )
