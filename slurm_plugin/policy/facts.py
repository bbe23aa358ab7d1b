"""What policy must know of the cluster and its users, gathered beforehand. Pure: `slurm_plugin/slurm` gathers it."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import msgspec

from accounting.request import JobRequest
from slurm_plugin.policy.braked import Brake
from slurm_plugin.policy.maximums import (
    NO_MAXIMUMS,
    NO_QOS_MAXIMUMS,
    Capacity,
    Maximums,
    QosMaximums,
    asks_for_more,
    cpus_of_node,
    is_beyond,
    mem_of_node_mib,
    multiplied,
)

# Stands for all of a node's memory if nothing says how much that is: more than any node has.
WHOLE_NODE_MIB = 2**40
# Stands for all CPUs of a socket, whose number is not known: more than any socket has.
SOCKET_CPUS = 2**16
# The least CPUs assumed per core of a node that does not exist yet: two threads, as most multithreaded cores have.
UNSEEN_CORE_CPUS = 2


class Minimum(msgspec.Struct, frozen=True, kw_only=True):
    """The least that a job must ask for in all; memory is MiB, 0 = no minimum.

    `is_billed`: there is a minimum of billing too, which each partition computes in its own way from all that is
    asked. `is_share`: the amounts are shares of the cluster or of a partition in percent, so how much they are is not
    known here.
    """

    cpus: int = 0
    gpus: int = 0
    mem_mib: int = 0
    is_billed: bool = False
    is_share: bool = False


NO_MINIMUM = Minimum()


class MemoryTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Slurm's memory configuration, in MiB; 0 where nothing is set.

    `max_per_cpu_mib` is MaxMemPerCPU, `max_per_node_mib` MaxMemPerNode. `looser_per_cpu_mib` are higher MaxMemPerCPU
    of other partitions that the job may run in. The defaults are what a job gets per CPU or per node if it asks for no
    memory, and the memory and CPUs that come with each GPU (JobDefaults). `is_uncounted`: SelectTypeParameters names no
    memory, so that Slurm does not allocate it and limits nobody to it; what a job asks for only decides which nodes are
    large enough. `limits_virtual`: VSizeFactor also limits the address space of each process. `limit_percent`: Slurm
    limits jobs to less than what they have (AllowedRAMSpace); 0: to no less.
    """

    max_per_cpu_mib: int = 0
    looser_per_cpu_mib: tuple[int, ...] = ()
    max_per_node_mib: int = 0
    default_per_cpu_mib: int = 0
    default_per_node_mib: int = 0
    default_per_gpu_mib: int = 0
    default_cpus_per_gpu: int = 0
    is_uncounted: bool = False
    limits_virtual: bool = False
    limit_percent: float = 0.0


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """One partition: its own QOS ('' for none), and the memory terms that apply in it, including the cluster's.

    `whole_nodes`: nobody else may use what its jobs leave free on their nodes (OverSubscribe=EXCLUSIVE,
    ExclusiveTopo). `whole_sockets`: nobody else may use what they leave free on their sockets
    (SelectTypeParameters=CR_Socket). `max_cpus_per_node`, `max_cpus_per_socket`: all its jobs together may use this
    many CPUs of a node, or of each socket; 0: all of them. `min_nodes`: each of its jobs has so many nodes at least.
    `nodes`: so many belong to it, also such as Slurm does not show (those of the cloud, 22.05).
    `shares_cpus`: several of its jobs may be on the same CPUs, though none of them asks for that (OverSubscribe=FORCE).
    """

    qos: str = ""
    memory: MemoryTerms = MemoryTerms()
    is_default: bool = False
    whole_nodes: bool = False
    whole_sockets: bool = False
    max_cpus_per_node: int = 0
    max_cpus_per_socket: int = 0
    min_nodes: int = 0
    nodes: int = 0
    shares_cpus: bool = False


# An account and one of its users; ANYBODY stands for all that are not named.
Whose = tuple[str, str]
ANYBODY: Whose = ("", "")
# The parts of the facts that only Slurm knows. A missing one may keep a job from being cut.
SLURM_PARTS = frozenset({"memory", "partitions", "qos_minimums", "given_qos", "cpus_per_core"})


class SiteFacts(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What is known of the site. `groups` maps a group to its users; `cpus_per_core` has the most, by partition.

    `given_qos` are those that Slurm may give to jobs that name none, without the hook seeing it.
    `qos_maximums` is empty if no QOS refuses jobs. `account_maximums` has, for each user and account, what all
    associations from the user's up let a job ask for, by the partition that the user's is for, '' for any.
    `memory` holds the cluster's own terms, for partitions that are not known; None until Slurm has been asked.
    `select_parameters` are its SelectTypeParameters, None if not known.
    `whole_nodes`: all of its partitions allocate only whole nodes (select/linear).
    `takes_turns`: jobs on the same CPUs take turns, so that each has them to itself while it runs (PreemptMode=GANG).
    `restricted_cores` are the partitions with nodes that reserve cores for each of their GPUs (RestrictedCoresPerGPU).
    `most_gpus` and `most_sockets` have the most GPUs of one type, and sockets, that a node has, by partition, and
    `capacity` what its nodes have.
    `chosen_later`: a job that names no partition may be given any of them after the decision.
    `brakes` are those that are pulled. `missing` are those of SLURM_PARTS that are needed and were never read.
    """

    groups: Mapping[str, frozenset[str]] = {}
    qos_minimums: Mapping[str, Minimum] = {}
    qos_maximums: Mapping[str, QosMaximums] = {}
    account_maximums: Mapping[Whose, Mapping[str, Maximums]] = {}
    given_qos: Mapping[Whose, frozenset[str]] = {}
    partitions: Mapping[str, Partition] = {}
    memory: MemoryTerms | None = None
    select_parameters: str | None = None
    whole_nodes: bool = False
    takes_turns: bool = False
    chosen_later: bool = False
    cpus_per_core: Mapping[str, int] = {}
    restricted_cores: frozenset[str] = frozenset()
    most_gpus: Mapping[str, int] = {}
    most_sockets: Mapping[str, int] = {}
    capacity: Mapping[str, Capacity] = {}
    brakes: frozenset[Brake] = frozenset()
    missing: frozenset[str] = frozenset()

    def partitions_of(self, request: JobRequest) -> list[Partition]:
        """Return the partitions that a job may run in, unknown ones included: those it names, else the default one."""
        unknown = self._unknown
        return [self.partitions.get(name, unknown) for name in self.partition_names(request)] or [unknown]

    def partition_names(self, request: JobRequest) -> Sequence[str]:
        """Return the names of the partitions that a job may run in: those it names, else the default one.

        Returns all of them if another plugin chooses the partitions of a job that names none.
        """
        if request.partition:
            return [name for name in request.partition.split(",") if name]
        return self._of_nameless

    @functools.cached_property
    def _unknown(self) -> Partition:
        return Partition(
            memory=self.memory or MemoryTerms(), whole_sockets=gives_whole_sockets(self.select_parameters)
        )

    @functools.cached_property
    def _of_nameless(self) -> Sequence[str]:
        """The partitions of jobs that name none: a decision asks ten times, and a site may have dozens."""
        return [name for name, found in self.partitions.items() if self.chosen_later or found.is_default]

    def do_not_tell(self, request: JobRequest) -> bool:
        """Whether what Slurm allows this job is not known: it was never read, or is older than the job's partition."""
        # Without partitions Slurm did not answer: the service waits (`missing`), and `rightsizer predict` goes on.
        known = not self.partitions or all(name in self.partitions for name in self.partition_names(request))
        return bool(self.missing) or not known

    def forms_of(self, request: JobRequest) -> tuple[str, ...]:
        """Return the ways of asking (forms.py) that follow from where a job may run, not from its own options."""
        if self.whole_nodes:
            return ("select_linear",)
        partitions = self.partitions_of(request)
        if any(one.whole_nodes for one in partitions):
            return ("exclusive_partition",)
        minimum = self.minimum_for(request)
        holds = {
            "min_billing": minimum.is_billed,
            "min_share": minimum.is_share,
            "whole_sockets": any(one.whole_sockets for one in partitions),
            "shared_cpus": not self.takes_turns and any(one.shares_cpus for one in partitions),
            "restricted_cores": not self.restricted_cores.isdisjoint(self.partition_names(request)),
            "gpus_of_nodes": self._spans_nodes(request),
        }
        return (*(name for name, does in holds.items() if does), *self._refusals(request))

    def cpus_step_for(self, request: JobRequest) -> int:
        """Return how many CPUs a core has where a job may run (its threads): Slurm gives a job a multiple of that.

        Fewer CPUs than that free nothing, and an srun in the job would start as many tasks as fit. If a job is given
        whole sockets, their CPUs are not known. Neither are those of a partition whose nodes appear only once jobs
        wait (dynamic nodes): it counts like the partition with the most CPUs per core, and as two at least.
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

    def _spans_nodes(self, request: JobRequest) -> bool:
        """Whether a job has several nodes only because it asks for more GPUs in all than a node has, or by MinNodes.

        How many a node has is not known of a partition none of whose nodes is shown: while they are powered down,
        22.05 hides nodes of the cloud. Then it may be so.
        """
        if request.gpus_per_job is None:
            return False
        if any(one.min_nodes > (request.nodes or 1) for one in self.partitions_of(request)):
            return True
        # Without partitions Slurm did not answer.
        if request.nodes is not None or not self.partitions:
            return False
        # A node on which such a job can run has one at least.
        most = [self.most_gpus.get(name, 1) for name in self.partition_names(request)]
        return any(is_beyond(request.gpus_per_job, gpus) for gpus in most)

    def _refusals(self, request: JobRequest) -> tuple[str, ...]:
        """Return the forms by which all partitions that a job may run in refuse it as asked; none if one takes it.

        Each partition may have a reason of its own.
        """
        found = [self._refusal(place, request) for place in self.partition_names(request) or ("",)]
        return tuple(dict.fromkeys(found)) if all(found) else ()

    def _refusal(self, place: str, request: JobRequest) -> str:
        """Return the form by which a partition refuses a job as asked, or lets it wait for ever; '' if it takes it."""
        if self._is_refused(place, request):
            return "qos_maximum"
        if self._is_below(place, request):
            return "beyond_nodes"
        partition = self.partitions.get(place)
        memory = partition.memory if partition else self.memory
        if memory and is_beyond(mem_of_node_mib(request), memory.max_per_node_mib):
            return "max_mem_per_node"
        beyond = is_beyond(cpus_of_node(request), self._most_cpus_of_node(place))
        return "max_cpus_per_node" if beyond else ""

    def _most_cpus_of_node(self, name: str) -> int:
        partition = self.partitions.get(name)
        if partition is None:
            return 0
        of_sockets = partition.max_cpus_per_socket * self.most_sockets.get(name, 0)
        return min({partition.max_cpus_per_node, of_sockets} - {0}, default=0)

    def _is_below(self, name: str, request: JobRequest) -> bool:
        partition, capacity = self.partitions.get(name), self.capacity.get(name)
        if partition is None or capacity is None or capacity.nodes < partition.nodes:
            return False
        return capacity.is_below(request)

    def _is_refused(self, place: str, request: JobRequest) -> bool:
        """Whether Slurm refuses a job as asked in a partition, with each QOS that it may have there.

        A job that names no QOS has the one that its user is given, or else anybody.
        """
        if not self.qos_maximums:
            return False
        whose = (request.account.lower(), request.user.lower())
        given = self.given_qos.get(whose, self.given_qos.get(ANYBODY, frozenset()))
        names = request.qos.split(",") if request.qos else given or ("",)
        own = self.account_maximums.get(whose, {})
        association = own.get(place, own.get("", NO_MAXIMUMS))
        return all(self._refuses(request, name, place, association) for name in names)

    def _refuses(self, request: JobRequest, qos: str, place: str, association: Maximums) -> bool:
        """Whether Slurm refuses a job of a QOS in a partition, whose own QOS counts first, unless the job's may."""
        partition = self.partitions.get(place)
        first = self.qos_maximums.get(partition.qos.lower() if partition else "", NO_QOS_MAXIMUMS)
        second = self.qos_maximums.get(qos.lower(), NO_QOS_MAXIMUMS)
        if second.over_partition:
            first, second = second, first
        factor = next((one.account_factor for one in (first, second) if one.account_factor is not None), 1.0)
        levels = (first.most, second.most, multiplied(association, factor))
        return (first.refuses or second.refuses) and asks_for_more(request, levels)

    def minimum_for(self, request: JobRequest) -> Minimum:
        """Return the least that this job must ask for: of any QOS and any partition that it may run in."""
        names = [*request.qos.split(","), *(partition.qos for partition in self.partitions_of(request))]
        names += self.given_qos.get((request.account.lower(), request.user.lower()), ())
        if not request.qos:
            names += self.given_qos.get(ANYBODY, ())
        # slurmdbd knows a QOS only in lower case; a partition's QOS is written as in slurm.conf.
        least = [self.qos_minimums[name.lower()] for name in names if name.lower() in self.qos_minimums]
        if not least:
            return NO_MINIMUM
        return Minimum(
            cpus=max(one.cpus for one in least),
            gpus=max(one.gpus for one in least),
            mem_mib=max(one.mem_mib for one in least),
            is_billed=any(one.is_billed for one in least),
            is_share=any(one.is_share for one in least),
        )

    def memory_for(self, request: JobRequest) -> MemoryTerms | None:
        """Return the strictest terms of the partitions that this job may run in; None until Slurm has been asked.

        If a partition limits memory per CPU and has no default, a job that asks for no memory counts as asking for a
        node's.
        """
        if self.memory is None:
            return None
        terms = [_with_default(partition.memory) for partition in self.partitions_of(request)]
        return terms[0] if len(terms) == 1 else strictest(terms)


def gives_whole_sockets(parameters: str | None) -> bool:
    """Whether SelectTypeParameters gives each job all CPUs of the sockets that it is on."""
    return "CR_SOCKET" in (parameters or "").upper()


def gives_all_memory(partition: Partition) -> bool:
    """Whether a job that asks for no memory gets all of its nodes' memory there, so that none is left for others."""
    terms = partition.memory
    has_default = terms.default_per_cpu_mib or terms.default_per_node_mib
    return not (has_default or terms.is_uncounted or partition.whole_nodes)


def _with_default(terms: MemoryTerms) -> MemoryTerms:
    if terms.max_per_cpu_mib and not terms.default_per_cpu_mib and not terms.default_per_node_mib:
        return msgspec.structs.replace(terms, default_per_node_mib=WHOLE_NODE_MIB)
    return terms


def strictest(terms: Sequence[MemoryTerms]) -> MemoryTerms:
    """Return terms that satisfy all of these, without MaxMemPerNode: a job runs in whichever takes it.

    At least one is needed.
    """
    least_mib, *looser_mib = sorted({one.max_per_cpu_mib for one in terms} - {0}) or [0]
    return MemoryTerms(
        max_per_cpu_mib=least_mib,
        looser_per_cpu_mib=tuple(looser_mib),
        default_per_cpu_mib=_least_set([one.default_per_cpu_mib for one in terms]),
        default_per_node_mib=max(one.default_per_node_mib for one in terms),
        default_per_gpu_mib=max(one.default_per_gpu_mib for one in terms),
        default_cpus_per_gpu=max(one.default_cpus_per_gpu for one in terms),
        is_uncounted=any(one.is_uncounted for one in terms),
        limits_virtual=any(one.limits_virtual for one in terms),
        limit_percent=min((one.limit_percent for one in terms if one.limit_percent), default=0.0),
    )


def _least_set(values: list[int]) -> int:
    return min((value for value in values if value), default=0)
