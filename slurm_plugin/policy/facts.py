"""What policy must know of the cluster and its people, gathered beforehand. Pure: `slurm_plugin/slurm` gathers it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from accounting.request import JobRequest
from slurm_plugin.policy.braked import Brake

# Stands for all of a node's memory where nothing says how much that is: more than any node has.
WHOLE_NODE_MIB = 2**40
# Stands for all CPUs of a socket, which may be any number: more than any has.
SOCKET_CPUS = 2**16
# What a core of a node that is not there yet has at least: two threads, as most have that have several.
UNSEEN_CORE_CPUS = 2


class Minimum(msgspec.Struct, frozen=True, kw_only=True):
    """The least that a job must ask for in all; memory is MiB, 0 = no minimum.

    `is_billed`: there is one of billing too, of which each partition makes its own sum of all that is asked.
    """

    cpus: int = 0
    gpus: int = 0
    mem_mib: int = 0
    is_billed: bool = False


NO_MINIMUM = Minimum()


class Maximum(msgspec.Struct, frozen=True, kw_only=True):
    """The most that a job may ask for in all, or Slurm refuses it; memory is MiB, 0 = any amount."""

    cpus: int = 0
    gpus: int = 0
    mem_mib: int = 0

    def is_below(self, request: JobRequest) -> bool:
        """Whether a job asks for more of anything."""
        asked = ((request.cpus, self.cpus), (request.gpus, self.gpus), (request.mem_mib, self.mem_mib))
        return any(is_beyond(amount or 0, most) for amount, most in asked)


NO_MAXIMUM = Maximum()


class MemoryTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What Slurm's configuration says of memory, in MiB; 0 where it says nothing of the kind.

    `max_per_cpu_mib` is MaxMemPerCPU, `max_per_node_mib` MaxMemPerNode. The defaults are what a job gets that asks
    for no memory, per CPU or per node, and what each GPU brings it of memory and CPUs (JobDefaults). `is_uncounted`:
    SelectTypeParameters names no memory, so that Slurm gives none out and limits nobody to it; what jobs ask only
    says which nodes are large enough. `limits_virtual`: VSizeFactor limits each process to so much address space,
    too.
    """

    max_per_cpu_mib: int = 0
    max_per_node_mib: int = 0
    default_per_cpu_mib: int = 0
    default_per_node_mib: int = 0
    default_per_gpu_mib: int = 0
    default_cpus_per_gpu: int = 0
    is_uncounted: bool = False
    limits_virtual: bool = False


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """One partition: its own QOS ('' for none), and the memory terms that hold in it, the cluster's included.

    `whole_nodes`: nobody else may use what its jobs leave of their nodes (OverSubscribe=EXCLUSIVE, ExclusiveTopo).
    `whole_sockets`: nobody else may use what they leave of their sockets (SelectTypeParameters=CR_Socket).
    `max_cpus_per_node`: all its jobs together may have so many CPUs of a node (MaxCPUsPerNode); 0: all of them.
    """

    qos: str = ""
    memory: MemoryTerms = MemoryTerms()
    is_default: bool = False
    whole_nodes: bool = False
    whole_sockets: bool = False
    max_cpus_per_node: int = 0


# An account and a user of it, and who stands for all that are not named.
Whose = tuple[str, str]
ANYBODY: Whose = ("", "")
# The parts of the facts that only Slurm knows; each may keep a job from being cut.
SLURM_PARTS = frozenset({"memory", "partitions", "qos_minimums", "given_qos", "cpus_per_core"})


class SiteFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Group → users; QOS → its minimum, or its maximum; the partitions by name, and the most CPUs of a core there.

    `given_qos` are those that Slurm may give jobs that name none, without the hook seeing it.
    `memory` are the cluster's own terms, for partitions that are not known; None while Slurm has not been asked.
    `select_parameters` are its SelectTypeParameters, None where they are not known.
    `whole_nodes`: all of its partitions give out nothing less (select/linear).
    `chosen_later`: a job that names no partition may be given any of them once we have decided.
    `brakes` are those that are pulled. `missing` are those of SLURM_PARTS that are needed and were never read.
    """

    groups: Mapping[str, frozenset[str]] = {}
    qos_minimums: Mapping[str, Minimum] = {}
    qos_maximums: Mapping[str, Maximum] = {}
    given_qos: Mapping[Whose, frozenset[str]] = {}
    partitions: Mapping[str, Partition] = {}
    memory: MemoryTerms | None = None
    select_parameters: str | None = None
    whole_nodes: bool = False
    chosen_later: bool = False
    cpus_per_core: Mapping[str, int] = {}
    brakes: frozenset[Brake] = frozenset()
    missing: frozenset[str] = frozenset()

    def partitions_of(self, request: JobRequest) -> list[Partition]:
        """Return the partitions that a job may run in: those it names, else the default one; unknown ones too."""
        unknown = Partition(
            memory=self.memory or MemoryTerms(), whole_sockets=gives_whole_sockets(self.select_parameters)
        )
        return [self.partitions.get(name, unknown) for name in self.partition_names(request)] or [unknown]

    def partition_names(self, request: JobRequest) -> list[str]:
        """Return the names of the partitions that a job may run in: those it gives, else the default one.

        All of them where another plugin gives it some of its own choice.
        """
        if request.partition:
            return request.partition.split(",")
        return [name for name, found in self.partitions.items() if self.chosen_later or found.is_default]

    def forms_of(self, request: JobRequest) -> tuple[str, ...]:
        """Return the ways of asking (forms.py) that a job has by where it may run, not by its own options."""
        if self.whole_nodes:
            return ("select_linear",)
        partitions = self.partitions_of(request)
        if any(one.whole_nodes for one in partitions):
            return ("exclusive_partition",)
        holds = {
            "min_billing": self.minimum_for(request).is_billed,
            "qos_maximum": self._is_refused(request),
            "whole_sockets": any(one.whole_sockets for one in partitions),
            "max_cpus_per_node": all(
                is_beyond(cpus_of_node(request), one.max_cpus_per_node) for one in partitions
            ),
        }
        return tuple(name for name, does in holds.items() if does)

    def cpus_step_for(self, request: JobRequest) -> int:
        """Return of how many CPUs Slurm gives a job a multiple, where it may run: those of a core, its threads.

        Fewer of them free nothing, and an srun in the job would start as many tasks as fit. Of a socket, which it is
        given whole, nobody says how many those are. Nor of a partition whose nodes only come once jobs wait (dynamic
        ones): it counts as the others, and as two at least.
        """
        if any(partition.whole_sockets for partition in self.partitions_of(request)):
            return SOCKET_CPUS
        if not self.cpus_per_core:
            return 1
        most = max(self.cpus_per_core.values())
        unseen = max(most, UNSEEN_CORE_CPUS)
        return max(
            (self.cpus_per_core.get(name, unseen) for name in self.partition_names(request)), default=most
        )

    def _is_refused(self, request: JobRequest) -> bool:
        """Whether Slurm refuses a job as it is asked, by each of the QOS that it names or of its partitions."""
        of_partitions = [partition.qos for partition in self.partitions_of(request)]
        return any(
            all(self.qos_maximums.get(name.lower(), NO_MAXIMUM).is_below(request) for name in names)
            for names in (request.qos.split(","), of_partitions)
        )

    def minimum_for(self, request: JobRequest) -> Minimum:
        """Return the least that this job must ask for: of any QOS and any partition that it may run in."""
        names = [*request.qos.split(","), *(partition.qos for partition in self.partitions_of(request))]
        names += self.given_qos.get((request.account.lower(), request.user.lower()), ())
        if not request.qos:
            names += self.given_qos.get(ANYBODY, ())
        # slurmdbd knows a QOS in lower case alone; a partition's is as slurm.conf has it.
        least = [self.qos_minimums[name.lower()] for name in names if name.lower() in self.qos_minimums]
        if not least:
            return NO_MINIMUM
        return Minimum(
            cpus=max(one.cpus for one in least),
            gpus=max(one.gpus for one in least),
            mem_mib=max(one.mem_mib for one in least),
            is_billed=any(one.is_billed for one in least),
        )

    def memory_for(self, request: JobRequest) -> MemoryTerms | None:
        """Return the strictest terms of the partitions that this job may run in; None while Slurm was not asked.

        Where a partition limits memory per CPU and has no default, a job that asks for none counts as asking for a
        node's.
        """
        if self.memory is None:
            return None
        terms = [_with_default(partition.memory) for partition in self.partitions_of(request)]
        return terms[0] if len(terms) == 1 else strictest(terms)


def cpus_of_node(request: JobRequest) -> int:
    """Return how many CPUs a job asks for of one node at least: each of its tasks may be on another one."""
    tasks = math.ceil(request.num_tasks / request.nodes) if request.nodes else 1
    return (request.cpus_per_task or 1) * tasks


def is_beyond(asked: int, most: int) -> bool:
    """Whether more is asked than a maximum, of which 0 is none."""
    return 0 < most < asked


def gives_whole_sockets(parameters: str | None) -> bool:
    """Whether each job is given all CPUs of the sockets that it is on, by SelectTypeParameters."""
    return "CR_SOCKET" in (parameters or "").upper()


def gives_all_memory(partition: Partition) -> bool:
    """Whether a job there that asks for no memory gets all that its nodes have, so that others find none left."""
    terms = partition.memory
    has_default = terms.default_per_cpu_mib or terms.default_per_node_mib
    return not (has_default or terms.is_uncounted or partition.whole_nodes)


def _with_default(terms: MemoryTerms) -> MemoryTerms:
    if terms.max_per_cpu_mib and not terms.default_per_cpu_mib and not terms.default_per_node_mib:
        return msgspec.structs.replace(terms, default_per_node_mib=WHOLE_NODE_MIB)
    return terms


def strictest(terms: Sequence[MemoryTerms]) -> MemoryTerms:
    """Return terms that keep all of these, of which there is one at least."""
    return MemoryTerms(
        max_per_cpu_mib=_least_set([one.max_per_cpu_mib for one in terms]),
        # A job runs in whichever of them takes it.
        max_per_node_mib=0
        if any(not one.max_per_node_mib for one in terms)
        else max(one.max_per_node_mib for one in terms),
        default_per_cpu_mib=_least_set([one.default_per_cpu_mib for one in terms]),
        default_per_node_mib=max(one.default_per_node_mib for one in terms),
        default_per_gpu_mib=max(one.default_per_gpu_mib for one in terms),
        default_cpus_per_gpu=max(one.default_cpus_per_gpu for one in terms),
        is_uncounted=any(one.is_uncounted for one in terms),
        limits_virtual=any(one.limits_virtual for one in terms),
    )


def _least_set(values: list[int]) -> int:
    return min((value for value in values if value), default=0)
