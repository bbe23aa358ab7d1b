"""What Slurm's own configuration sets: a job cut below it would wait for ever, be given more, or run otherwise.

MinTRES of a QOS is the least that a job may ask for. Where cores have two threads, an srun in a job of an odd number of
CPUs per task starts more tasks than before (seen on 24.11: without `-n`, `-c 1` starts two). MaxMemPerCPU raises the
CPUs of a job whose memory they cannot carry, and Lua sees a partition's alone, not the cluster's.
"""

from __future__ import annotations

import re

import msgspec

from accounting.tres import parse_tres, split_tres
from accounting.units import whole
from slurm_plugin.policy.facts import NO_MINIMUM, MemoryTerms, Minimum, Partition

_THREADS = re.compile(r"\bThreadsPerCore=(\d{1,3})\b")
_CONFIG_LINE = re.compile(r"^(\w+)\s*= (.*)$", re.MULTILINE)
# What Slurm's `scontrol show` calls each, as a partition's own value and as the cluster's.
_TERMS = {
    "max_per_cpu_mib": "MaxMemPerCPU",
    "default_per_cpu_mib": "DefMemPerCPU",
    "default_per_node_mib": "DefMemPerNode",
}
# Plugins of Slurm's own that give partitions to a job that names none.
_CHOOSE_PARTITIONS = frozenset({"all_partitions", "partition"})
_GPU_TERMS = {"default_per_gpu_mib": "DefMemPerGPU", "default_cpus_per_gpu": "DefCpuPerGPU"}


def parse_qos(text: str) -> dict[str, Minimum]:
    """Read `name|cpu=4,gres/gpu=1,mem=10G` lines; a QOS without a minimum is left out."""
    minimums: dict[str, Minimum] = {}
    for line in text.splitlines():
        name, _, tres = line.partition("|")
        least = parse_tres(tres)
        minimum = Minimum(
            cpus=least.cpus or 0,
            gpus=least.gpus or 0,
            mem_mib=least.mem_mib or 0,
            is_billed="billing" in split_tres(tres),
        )
        if minimum != NO_MINIMUM:
            minimums[name] = minimum
    return minimums


def config_words(text: str) -> dict[str, str]:
    """Return the settings in `scontrol show config`, each by its name: `MaxMemPerCPU            = 2000`."""
    return {name: value.strip() for name, value in _CONFIG_LINE.findall(text)}


def parse_config_terms(text: str) -> MemoryTerms:
    """Read `scontrol show config`; UNLIMITED and what is missing are 0."""
    words = config_words(text)
    return _terms(words, is_uncounted=not counts_memory(words.get("SelectTypeParameters")))


def counts_memory(parameters: str | None) -> bool:
    """Whether Slurm gives memory out at all, by SelectTypeParameters; CR_Core and the like do not. None is unknown."""
    return parameters is None or "MEMORY" in parameters.upper()


def gives_whole_nodes(text: str) -> bool:
    """Whether `scontrol show config` says that jobs get whole nodes everywhere."""
    return "linear" in config_words(text).get("SelectType", "")


def chooses_partitions(text: str) -> bool:
    """Whether `scontrol show config` has a plugin behind ours that gives partitions to a job that names none."""
    plugins = config_words(text).get("JobSubmitPlugins", "").replace("job_submit/", "").split(",")
    return "lua" in plugins and not _CHOOSE_PARTITIONS.isdisjoint(plugins[plugins.index("lua") :])


def has_no_qos(text: str) -> bool:
    """Whether `scontrol show config` says that there is no slurmdbd, which alone knows of QOS."""
    return "slurmdbd" not in config_words(text).get("AccountingStorageType", "slurmdbd")


def parse_partitions(text: str, cluster: MemoryTerms) -> dict[str, Partition]:
    """Read `scontrol --oneliner show partition`; what a partition leaves open is the cluster's."""
    partitions: dict[str, Partition] = {}
    for line in text.splitlines():
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        name, qos = words.get("PartitionName"), words.get("QoS", "N/A")
        if name:
            partitions[name] = Partition(
                qos="" if qos == "N/A" else qos,
                memory=_over(_terms(words), cluster),
                is_default=words.get("Default") == "YES",
                whole_nodes=_has_whole_nodes(words),
            )
    return partitions


def _has_whole_nodes(words: dict[str, str]) -> bool:
    """Whether nobody else may use what jobs of a partition leave of their nodes, or of their block of the topology."""
    return (
        words.get("OverSubscribe") == "EXCLUSIVE"
        or words.get("ExclusiveTopo") == "YES"
        # 26.05 prints all of it so.
        or words.get("Exclusive") in ("NODE", "TOPO")
    )


def parse_threads(text: str) -> int:
    """Read `scontrol --oneliner show node`; 1 where no node says."""
    return max((int(threads) for threads in _THREADS.findall(text)), default=1)


def _terms(words: dict[str, str], *, is_uncounted: bool = False) -> MemoryTerms:
    defaults = dict(word.split("=", 1) for word in words.get("JobDefaults", "").split(",") if "=" in word)
    said = {field: words.get(name, "") for field, name in _TERMS.items()}
    said |= {field: defaults.get(name, "") for field, name in _GPU_TERMS.items()}
    amounts = {field: whole(value) or 0 for field, value in said.items()}
    return msgspec.convert({**amounts, "is_uncounted": is_uncounted}, MemoryTerms)


def _over(own: MemoryTerms, cluster: MemoryTerms) -> MemoryTerms:
    """Put a partition's own terms over the cluster's: a default of either kind replaces the cluster's of both."""
    if own.default_per_cpu_mib or own.default_per_node_mib:
        cluster = msgspec.structs.replace(cluster, default_per_cpu_mib=0, default_per_node_mib=0)
    both = msgspec.structs.asdict(cluster) | {
        field: value for field, value in msgspec.structs.asdict(own).items() if value
    }
    return msgspec.convert(both, MemoryTerms)
