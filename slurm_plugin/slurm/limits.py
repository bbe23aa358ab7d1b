"""Limits in Slurm's own configuration: a job cut below them would wait for ever, be given more, or run differently.

MinTRES of a QOS is the least that a job may ask for. Slurm allocates whole cores, and whole sockets with CR_Socket.
If a job is given more CPUs than a task asks for, an srun in it starts as many tasks as fit (seen on 24.11: on cores
of two threads, without `-n`, `-c 1` starts two). MaxMemPerCPU raises a job's CPUs if they cannot carry its memory,
and Lua sees only a partition's limit, not the cluster's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from accounting.tres import gpu_types, parse_tres, split_tres
from accounting.units import whole
from slurm_plugin.policy.facts import NO_MINIMUM, MemoryTerms, Minimum, Partition, gives_whole_sockets
from slurm_plugin.policy.maximums import Capacity, Maximum, Maximums, QosMaximums
from slurm_plugin.slurm.node_words import core_cpus, gpus_of, has_of, words_of

NUMBER = re.compile(r"-?\d{1,18}(?:\.\d{1,18})?\Z", re.ASCII)
_CONFIG_LINE = re.compile(r"^(\w+)\s*= (.*)$", re.MULTILINE)
# The names in Slurm's `scontrol show`, both for a partition's own values and for the cluster's.
_TERMS = {
    "max_per_cpu_mib": "MaxMemPerCPU",
    "max_per_node_mib": "MaxMemPerNode",
    "default_per_cpu_mib": "DefMemPerCPU",
    "default_per_node_mib": "DefMemPerNode",
}
# Slurm's own plugins that assign partitions to a job that names none.
_CHOOSE_PARTITIONS = frozenset({"all_partitions", "partition"})
# What limits the amounts that a job may ask for, and those times the minutes of its time limit. Associations have the
# first of each, too.
_OF_JOB = ("MaxTRES", "GrpTRES", "MaxTRESPU", "MaxTRESPA")
_MINUTES = ("MaxTRESMins", "GrpTRESMins", "GrpTRESRunMins", "MaxTRESRunMinsPU", "MaxTRESRunMinsPA")
# For each QOS: its minimum, whether it refuses a job that asks for more than its maximums, the maximums, and what it
# multiplies those of accounts with.
QOS_FORMAT = ",".join(("format=Name,MinTRES,Flags", *_OF_JOB, "MaxTRESPerNode", *_MINUTES, "LimitFactor"))
_REFUSES = "DenyOnLimit"
_OVER_PARTITION = "OverPartQOS"
# The flag of a QOS whose amounts are percentages of all that the cluster, or the partition that it belongs to, has.
RELATIVE = "Relative"
_GPU_TERMS = {"default_per_gpu_mib": "DefMemPerGPU", "default_cpus_per_gpu": "DefCpuPerGPU"}


def parse_qos(text: str) -> dict[str, Minimum]:
    """Read lines of QOS_FORMAT, `name|cpu=4,gres/gpu=1,mem=10G|…`; a QOS without a minimum is left out.

    Which type of GPU a job asks for is not known where this is used: the highest minimum of any type applies to all.
    """
    minimums: dict[str, Minimum] = {}
    for line in text.splitlines():
        name, tres, flags, *_ = [*line.split("|"), "", ""]
        least = parse_tres(tres)
        minimum = Minimum(
            cpus=least.cpus or 0,
            gpus=max(least.gpus or 0, *gpu_types(tres).values(), 0),
            mem_mib=least.mem_mib or 0,
            is_billed="billing" in split_tres(tres),
            is_share=bool(tres) and RELATIVE in flags.split(","),
        )
        if minimum != NO_MINIMUM:
            minimums[name] = minimum
    return minimums


def parse_qos_maximums(text: str) -> dict[str, QosMaximums]:
    """Read lines of QOS_FORMAT: the most that a job may ask for, by QOS; empty if none refuses jobs that ask for more.

    One whose amounts are percentages is left out: how much they are is not known here.
    """
    found: dict[str, QosMaximums] = {}
    for line in text.splitlines():
        name, _, flags, *limits = [*line.split("|"), "", ""]
        has, of_node, last = flags.split(","), len(_OF_JOB), len(_OF_JOB) + 1 + len(_MINUTES)
        if RELATIVE not in has:
            found[name] = QosMaximums(
                most=maximums_of(limits[:of_node], limits[of_node : of_node + 1], limits[of_node + 1 : last]),
                refuses=_REFUSES in has,
                over_partition=_OVER_PARTITION in has,
                account_factor=limit_factor_of("".join(limits[last : last + 1])),
            )
    return found if any(one.refuses for one in found.values()) else {}


def limit_factor_of(text: str) -> float | None:
    """Return the LimitFactor of a QOS; None if it has none. One of 0 changes nothing (`_apply_limit_factor`)."""
    if not NUMBER.match(text):
        return None
    return float(text) or 1.0


def maximums_of(of_job: Sequence[str], of_node: Sequence[str], minutes: Sequence[str]) -> Maximums:
    """Read lists of TRES, one for each kind of limit."""
    return Maximums(
        of_job=tuple(map(_maximum, of_job)),
        of_node=tuple(map(_maximum, of_node)),
        minutes=tuple(map(_maximum, minutes)),
    )


# Of many thousands of associations, most have the same limits, or none. What is said of one type of GPUs limits no
# others.
@lru_cache(maxsize=1024)
def _maximum(tres: str) -> Maximum:
    most = parse_tres(tres)
    gpus = whole(split_tres(tres).get("gres/gpu", "")) or 0
    return Maximum(cpus=most.cpus or 0, gpus=gpus, mem_mib=most.mem_mib or 0)


def config_words(text: str) -> dict[str, str]:
    """Return the settings in `scontrol show config`, each by its name: `MaxMemPerCPU            = 2000`."""
    return {name: value.strip() for name, value in _CONFIG_LINE.findall(text)}


def parse_config_terms(text: str) -> MemoryTerms:
    """Read `scontrol show config`; UNLIMITED and missing settings are 0."""
    return _terms(config_words(text), select_parameters(text))


def select_parameters(text: str) -> str | None:
    """Return SelectTypeParameters in `scontrol show config`; None if it has none."""
    return config_words(text).get("SelectTypeParameters")


def counts_memory(parameters: str | None) -> bool:
    """Whether SelectTypeParameters makes Slurm allocate memory at all; CR_Core and the like do not. None is unknown."""
    return parameters is None or "MEMORY" in parameters.upper()


def limits_virtual(factor: str | None) -> bool:
    """Whether Slurm limits address space by the memory asked for: VSizeFactor, as `110 percent`; 0 does not."""
    return bool(whole((factor or "").partition(" ")[0]))


def parameters_in(own: str | None, cluster: str | None) -> str | None:
    """Return the SelectTypeParameters that apply in a partition: its own, if the cluster's has cores or sockets.

    With CR_CPU, slurmctld ignores a partition's own (`_setup_cr_type`, 22.05 to 26.05).
    """
    is_heard = not select_names(cluster).isdisjoint({"CR_CORE", "CR_SOCKET"})
    return own if is_heard and own is not None and own.startswith("CR_") else cluster


def select_names(parameters: str | None) -> set[str]:
    """Return the words of SelectTypeParameters, without the memory: CR_CORE of `CR_Core_Memory,CR_LLN`."""
    return {name.strip().removesuffix("_MEMORY") for name in (parameters or "").upper().split(",")}


def limit_percent(words: dict[str, str]) -> float:
    """Return at how much of what a job has Slurm limits it, in percent, if that is less than all; else 0.

    `words` are those of `scontrol show config`, which has cgroup.conf too: `AllowedRAMSpace         = 90.0%`.
    """
    percent = words.get("AllowedRAMSpace", "").removesuffix("%")
    if words.get("ConstrainRAMSpace") != "yes" or not NUMBER.match(percent):
        return 0.0
    return float(percent) if 0 < float(percent) < 100 else 0.0


def gives_whole_nodes(text: str) -> bool:
    """Whether `scontrol show config` says that jobs get whole nodes everywhere."""
    return "linear" in config_words(text).get("SelectType", "")


def takes_turns(text: str) -> bool:
    """Whether `scontrol show config` says that jobs on the same CPUs take turns: Slurm then suspends all but one."""
    return "GANG" in config_words(text).get("PreemptMode", "")


def chooses_partitions(text: str) -> bool:
    """Whether `scontrol show config` has a plugin after ours that assigns partitions to a job that names none."""
    plugins = config_words(text).get("JobSubmitPlugins", "").replace("job_submit/", "").split(",")
    return "lua" in plugins and not _CHOOSE_PARTITIONS.isdisjoint(plugins[plugins.index("lua") :])


def has_no_qos(text: str) -> bool:
    """Whether `scontrol show config` says that there is no slurmdbd; only slurmdbd knows of QOS."""
    return "slurmdbd" not in config_words(text).get("AccountingStorageType", "slurmdbd")


def parse_partitions(text: str, cluster: MemoryTerms, parameters: str | None) -> dict[str, Partition]:
    """Read `scontrol --oneliner show partition`; what a partition does not set is the cluster's.

    `parameters` are the cluster's SelectTypeParameters.
    """
    partitions: dict[str, Partition] = {}
    for line in text.splitlines():
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        name, qos = words.get("PartitionName"), words.get("QoS", "N/A")
        select = parameters_in(words.get("SelectTypeParameters"), parameters)
        if name:
            partitions[name] = Partition(
                qos="" if qos == "N/A" else qos,
                memory=partition_terms(words, select, cluster),
                is_default=words.get("Default") == "YES",
                whole_nodes=_has_whole_nodes(words),
                whole_sockets=gives_whole_sockets(select),
                max_cpus_per_node=whole(words.get("MaxCPUsPerNode", "")) or 0,
                max_cpus_per_socket=whole(words.get("MaxCPUsPerSocket", "")) or 0,
                min_nodes=whole(words.get("MinNodes", "")) or 0,
                nodes=whole(words.get("TotalNodes", "")) or 0,
                shares_cpus=_shares_cpus(words),
            )
    return partitions


def partition_terms(words: dict[str, str], select: str | None, cluster: MemoryTerms) -> MemoryTerms:
    """Return what applies in a partition of these words: its own terms over the cluster's."""
    return _over(_terms(words, select), cluster)


def _has_whole_nodes(words: dict[str, str]) -> bool:
    """Whether nobody else may use what a partition's jobs leave free on their nodes, or their block of the topology."""
    return (
        words.get("OverSubscribe") == "EXCLUSIVE"
        or words.get("ExclusiveTopo") == "YES"
        # 26.05 prints all of these in this form.
        or words.get("Exclusive") in ("NODE", "TOPO")
    )


def _shares_cpus(words: dict[str, str]) -> bool:
    """Whether a partition puts several jobs on the same CPUs: OverSubscribe=FORCE:4. With FORCE:1 it does not."""
    force, _, jobs = words.get("OverSubscribe", "").partition(":")
    return force == "FORCE" and jobs != "1"


class NodeTerms(NamedTuple):
    """By partition, its capacity, and the most that any of its nodes has: CPUs of a core, GPUs of one type, sockets.

    `restricted` are the partitions with a node that reserves cores for each of its GPUs.
    """

    cpus_per_core: dict[str, int]
    most_gpus: dict[str, int]
    most_sockets: dict[str, int]
    capacity: dict[str, Capacity]
    restricted: frozenset[str]


def parse_node_terms(text: str) -> NodeTerms:
    """Read `scontrol --oneliner show node`; '' stands for nodes of no partition."""
    cpus_per_core: dict[str, int] = {}
    most_gpus: dict[str, int] = {}
    most_sockets: dict[str, int] = {}
    nodes: dict[str, list[tuple[int, int, int]]] = {}
    restricted = set[str]()
    for line in text.splitlines():
        words = words_of(line)
        names = words.get("Partitions", "").split(",")
        cpus, gpus = core_cpus(words), max(gpus_of(words).values(), default=0)
        sockets = whole(words.get("Sockets", "")) or 0
        for name in names:
            cpus_per_core[name] = max(cpus, cpus_per_core.get(name, 1))
            most_gpus[name] = max(gpus, most_gpus.get(name, 0))
            most_sockets[name] = max(sockets, most_sockets.get(name, 0))
            nodes.setdefault(name, []).append(has_of(words))
        if "RestrictedCoresPerGPU" in words:
            restricted.update(names)
    capacity = {name: _capacity(those) for name, those in nodes.items()}
    return NodeTerms(cpus_per_core, most_gpus, most_sockets, capacity, frozenset(restricted - {""}))


def _capacity(nodes: Sequence[tuple[int, int, int]]) -> Capacity:
    """Return the capacity of nodes, each given by its CPUs, MiB and GPUs."""
    cpus, mem_mib, gpus = zip(*nodes, strict=True)
    return Capacity(
        nodes=len(nodes),
        of_node=Maximum(cpus=max(cpus), mem_mib=max(mem_mib), gpus=max(gpus)),
        together=Maximum(cpus=sum(cpus), mem_mib=sum(mem_mib), gpus=sum(gpus)),
    )


def _terms(words: dict[str, str], select: str | None) -> MemoryTerms:
    defaults = dict(word.split("=", 1) for word in words.get("JobDefaults", "").split(",") if "=" in word)
    said = {field: words.get(name, "") for field, name in _TERMS.items()}
    said |= {field: defaults.get(name, "") for field, name in _GPU_TERMS.items()}
    terms = msgspec.convert({field: whole(value) or 0 for field, value in said.items()}, MemoryTerms)
    return msgspec.structs.replace(
        terms,
        is_uncounted=not counts_memory(select),
        limits_virtual=limits_virtual(words.get("VSizeFactor")),
        limit_percent=limit_percent(words),
    )


def _over(own: MemoryTerms, cluster: MemoryTerms) -> MemoryTerms:
    """Put a partition's own terms over the cluster's: a default of either kind replaces both of the cluster's.

    So does a maximum; but a cluster's MaxMemPerCPU still counts, so that CPUs which it would raise are kept.
    """
    cluster = msgspec.structs.replace(cluster, is_uncounted=own.is_uncounted)
    if own.default_per_cpu_mib or own.default_per_node_mib:
        cluster = msgspec.structs.replace(cluster, default_per_cpu_mib=0, default_per_node_mib=0)
    if own.max_per_cpu_mib:
        cluster = msgspec.structs.replace(cluster, max_per_node_mib=0)
    both = msgspec.structs.asdict(cluster) | {
        field: value for field, value in msgspec.structs.asdict(own).items() if value
    }
    return msgspec.convert(both, MemoryTerms)
