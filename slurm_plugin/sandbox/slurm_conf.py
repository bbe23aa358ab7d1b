"""Slurm's configuration files for a sandbox, as text. Pure: it reads and writes nothing.

A node's hardware is that of its shape, whatever this host has.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from slurm_plugin.sandbox.enforcement import CGROUP_ROOT, Enforcement
from slurm_plugin.sandbox.layout import Layout
from slurm_plugin.sandbox.release import Version, quirks_of
from slurm_plugin.sandbox.shape import PLAIN, Shape

DEF_MEM_PER_CPU_MIB = 1000
DATABASE_NAME = "slurm_acct"
DATABASE_USER = "slurm"
LOOPBACK = "127.0.0.1"


class Ports(msgspec.Struct, frozen=True):
    """The TCP ports of one sandbox, all different; each slurmd has its own."""

    mariadb: int
    slurmdbd: int
    slurmctld: int
    slurmd: tuple[int, ...]


@dataclass(frozen=True)
class ClusterPlan:
    """All that the configuration files depend on; `user` is SlurmUser, `starter` runs all other processes."""

    layout: Layout
    ports: Ports
    version: Version
    host: str
    user: str
    starter: str
    hook: bool
    enforcement: Enforcement
    plugins: Path | None = None
    clients: bool = False
    shape: Shape = PLAIN

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the nodes, one per slurmd port."""
        return self.layout.node_names(len(self.ports.slurmd))


def slurm_conf(plan: ClusterPlan) -> str:
    """Render slurm.conf."""
    sections = (
        identity(plan),
        daemons(plan),
        enforcement(plan),
        scheduling(),
        accounting(plan),
        nodes(plan),
        [line.format(node=plan.nodes) for line in plan.shape.lines],
    )
    return (
        "# Written by `rightsizer sandbox up`; the next `up` writes it again.\n"
        + "\n\n".join("\n".join(section) for section in sections if section)
        + "\n"
    )


def identity(plan: ClusterPlan) -> list[str]:
    """Name the cluster, its users, and how its parts authenticate each other."""
    lines = [
        f"ClusterName={plan.layout.cluster}",
        f"SlurmctldHost={plan.host}({LOOPBACK})",
        f"SlurmUser={plan.user}",
        f"SlurmdUser={plan.starter}",
        "AuthType=auth/munge",
        f"AuthInfo=socket={plan.layout.munge_socket}",
        "CredType=cred/munge",
    ]
    if plan.plugins is not None:
        lines.append(f"PluginDir={plan.plugins}")
    if plan.hook:
        lines.append("JobSubmitPlugins=lua")
    if plan.clients:
        lines.append("CliFilterPlugins=cli_filter/lua")
    return lines


def daemons(plan: ClusterPlan) -> list[str]:
    """Set ports, state and logs, and timeouts short enough for a demo."""
    layout = plan.layout
    return [
        f"SlurmctldPort={plan.ports.slurmctld}",
        f"StateSaveLocation={layout.controller_state}",
        f"SlurmdSpoolDir={layout.state}/%n",
        f"SlurmctldPidFile={layout.controller_state}/slurmctld.pid",
        f"SlurmdPidFile={layout.run}/slurmd-%n.pid",
        f"SlurmctldLogFile={layout.log}/slurmctld.log",
        f"SlurmdLogFile={layout.log}/slurmd-%n.log",
        "SlurmctldDebug=info",
        "SlurmdDebug=info",
        "SlurmdParameters=config_overrides",
        "ReturnToService=2",
        "SlurmdTimeout=300",
        "KillWait=3",
        "MinJobAge=300",
        "MailProg=/bin/true",
    ]


def enforcement(plan: ClusterPlan) -> list[str]:
    """Track and limit jobs by cgroup if that works here, else only watch them through /proc."""
    limits = plan.enforcement
    doubled = limits.plugin == "cgroup/v2" and quirks_of(plan.version).doubles_huge_pages
    gather = "cgroup" if limits.memory and not doubled else "linux"
    return [
        f"ProctrackType=proctrack/{'cgroup' if limits.memory else 'linuxproc'}",
        *(["TaskPlugin=task/cgroup"] if limits.memory else []),
        f"JobAcctGatherType=jobacct_gather/{gather}",
        "JobAcctGatherFrequency=task=1",
    ]


def scheduling() -> list[str]:
    """Start short jobs at once: both schedulers run every two seconds, and after each submission and job end."""
    return [
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        f"DefMemPerCPU={DEF_MEM_PER_CPU_MIB}",
        "PriorityType=priority/multifactor",
        "PriorityWeightAge=1000",
        "SchedulerType=sched/backfill",
        "SchedulerParameters=bf_continue,bf_interval=2,bf_resolution=60,sched_interval=2,batch_sched_delay=0",
    ]


def accounting(plan: ClusterPlan) -> list[str]:
    """Keep everything in slurmdbd; users need no account to submit (no AccountingStorageEnforce)."""
    return [
        "AccountingStorageType=accounting_storage/slurmdbd",
        f"AccountingStorageHost={LOOPBACK}",
        f"AccountingStoragePort={plan.ports.slurmdbd}",
        # Not a password: with munge, this is the socket for talking to slurmdbd (AuthInfo is not read there).
        f"AccountingStoragePass={plan.layout.munge_socket}",
        "AccountingStorageTRES=gres/gpu,gres/shard",
        f"AccountingStoreFlags={','.join(quirks_of(plan.version).store_flags)}",
    ]


def nodes(plan: ClusterPlan) -> list[str]:
    """List the nodes, each slurmd on its own port of this host, and the one partition."""
    lines = [f"GresTypes={','.join(plan.shape.gres_types)}"]
    for index, (name, port) in enumerate(zip(plan.nodes, plan.ports.slurmd, strict=True)):
        lines.append(
            f"NodeName={name} NodeHostname={plan.host} NodeAddr={LOOPBACK} Port={port} "
            + plan.shape.node(index).words
        )
    main = plan.nodes[: len(plan.nodes) - plan.shape.outside_main]
    lines.append(
        f"PartitionName=main Nodes={','.join(main)} Default=YES State=UP DefaultTime=10 MaxTime=1-00:00:00"
    )
    return lines


def gres_conf(plan: ClusterPlan) -> str:
    """Render gres.conf: the simulated GPUs are files, so autodetection is off."""
    lines = ["AutoDetect=off"]
    for index, name in enumerate(plan.nodes):
        lines += plan.shape.node(index).gres_lines(name, plan.layout.devices)
    return "\n".join(lines) + "\n"


def cgroup_conf(plan: ClusterPlan) -> str:
    """Render cgroup.conf; without enforcement it keeps slurmd away from the host's cgroups."""
    if not plan.enforcement.memory:
        plugin = quirks_of(plan.version).idle_cgroup_plugin
        return f"# Memory is not limited: {plan.enforcement.reason}.\nCgroupPlugin={plugin}\n"
    lines = [
        f"CgroupPlugin={plan.enforcement.plugin}",
        f"CgroupMountpoint={CGROUP_ROOT}",
        "ConstrainRAMSpace=yes",
    ]
    if quirks_of(plan.version).cgroup_automount:
        lines.append("CgroupAutomount=no")
    if plan.enforcement.swap:
        lines += ["ConstrainSwapSpace=yes", "AllowedSwapSpace=0"]
    return "\n".join(lines) + "\n"


def slurmdbd_conf(plan: ClusterPlan, password: str) -> str:
    """Render slurmdbd.conf; it holds the password, so only its owner may read it (mode 0600)."""
    layout = plan.layout
    lines = (
        "AuthType=auth/munge",
        f"AuthInfo=socket={layout.munge_socket}",
        f"DbdHost={plan.host}",
        f"DbdAddr={LOOPBACK}",
        f"DbdPort={plan.ports.slurmdbd}",
        f"SlurmUser={plan.user}",
        f"LogFile={layout.log}/slurmdbd.log",
        f"PidFile={layout.controller_state}/slurmdbd.pid",
        "DebugLevel=info",
        "StorageType=accounting_storage/mysql",
        f"StorageHost={LOOPBACK}",
        f"StoragePort={plan.ports.mariadb}",
        f"StorageUser={DATABASE_USER}",
        f"StoragePass={password}",
        f"StorageLoc={DATABASE_NAME}",
        *((f"PluginDir={plan.plugins}",) if plan.plugins is not None else ()),
    )
    return "\n".join(lines) + "\n"


def database_setup_sql(password: str) -> str:
    """Render the SQL that MariaDB runs at each start, one statement a line: slurmdbd's database, and its only login.

    slurmdbd would create its database itself. But once a connection has failed because the database was missing, the
    library of MariaDB 11.8.9 (Debian 13) accepts no more results. `password` must have only letters and digits.
    """
    account = f"'{DATABASE_USER}'@'{LOOPBACK}'"
    return "\n".join(
        (
            "DELETE FROM mysql.global_priv WHERE User IN ('root', '');",
            "FLUSH PRIVILEGES;",
            f"CREATE DATABASE IF NOT EXISTS {DATABASE_NAME};",
            f"CREATE USER IF NOT EXISTS {account} IDENTIFIED BY '{password}';",
            f"GRANT ALL PRIVILEGES ON {DATABASE_NAME}.* TO {account};",
            "FLUSH PRIVILEGES;",
            "",
        )
    )
