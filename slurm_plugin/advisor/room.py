"""The nodes as a plan sees them: which exist, what runs where, and what is reserved when. Pure.

It decides nothing about the queue. What runs on a node that is away, or reserved now, is left out: nothing that may
be planned can start there before the node is back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from models.planning.problem import Holding, Machine, Yields
from models.scheduling.availability import Window
from models.scheduling.room import MILLI, PLAIN, Amounts, typed
from slurm_plugin.advisor.cpu_caps import cap_of, capped_of, under_caps
from slurm_plugin.advisor.features import features_of, pool_name
from slurm_plugin.advisor.preemption import Ranks
from slurm_plugin.advisor.run_time import RunTime, likely_left_s, most_left_s, over_limit_of
from slurm_plugin.advisor.whole_cores import WholeCores, whole_cores_of
from slurm_plugin.slurm.snapshot import NodeState, PartitionState, QueuedJob, ReservedNodes, Snapshot

# The memory of nodes if memory does not count: more than jobs ask for.
ENDLESS_MIB = 1 << 40
UNTYPED = ""


class Numbers(msgspec.Struct, frozen=True):
    """The numbers that stand for pools, accounts and users in a problem, and the types of GPUs that it distinguishes.

    A pool is a partition, or those of its nodes that have a feature. `capped` are the partitions whose jobs may not
    use all CPUs of some node (MaxCPUsPerNode, MaxCPUsPerSocket): for each of them a bound follows all amounts.
    """

    pools: Mapping[str, int]
    accounts: Mapping[str, int]
    users: Mapping[str, int]
    gpu_types: tuple[str, ...] = ()
    capped: tuple[PartitionState, ...] = ()

    @property
    def total(self) -> tuple[int, ...]:
        """Which amounts are real resources (1), as `typed` needs it: all but the bounds (0)."""
        return (*([1] * (PLAIN + len(self.gpu_types))), *([0] * len(self.capped)))


def numbers_of(snapshot: Snapshot) -> Numbers:
    """Return numbers for all that a snapshot names, the same for the same names."""
    jobs = snapshot.jobs
    pools = {partition.name for partition in snapshot.partitions}
    pools |= {name for job in jobs for name in job.partitions}
    # There are few kinds of nodes, though they may have many features.
    pools |= {name for kind in {_kind(node) for node in snapshot.nodes} for name in _pool_names(*kind)}
    return Numbers(
        _numbered(pools),
        _numbered({job.account for job in jobs}),
        _numbered({job.user for job in jobs}),
        gpu_types_of(snapshot.nodes),
        capped_of(snapshot),
    )


def _kind(node: NodeState) -> tuple[Sequence[str], Sequence[str]]:
    return node.partitions, node.features


def _pool_names(partitions: Sequence[str], features: Sequence[str]) -> list[str]:
    of_features = (pool_name(partition, feature) for partition in partitions for feature in features)
    return [*partitions, *of_features]


def pools_of(job: QueuedJob, partitions: Iterable[str], numbers: Numbers) -> frozenset[int]:
    """Return the pools of some partitions that a job may use; empty if no node there has what it asks for."""
    names = list(partitions)
    if features := features_of(job):
        names = [pool_name(name, feature) for name in names for feature in features]
    return frozenset(numbers.pools[name] for name in names if name in numbers.pools)


def _numbered(names: Iterable[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(sorted(names))}


def gpu_types_of(nodes: Iterable[NodeState]) -> tuple[str, ...]:
    """Return the types of GPUs that nodes have, in their own order; empty if all GPUs are of one type, or of none."""
    found = dict[str, None]()
    for node in nodes:
        found |= dict.fromkeys(name for name, _ in node.gpu_types)
        if node.gpus > sum(count for _, count in node.gpu_types):
            found[UNTYPED] = None
    return tuple(name for name in found if name != UNTYPED) if len(found) > 1 else ()


def amounts_of_node(node: NodeState, numbers: Numbers) -> Amounts:
    """Return what a node has for jobs, in the units of scheduling.room, and for those of each capped partition."""
    plain = (node.cpus * MILLI, node.mem_mib, node.gpus * MILLI)
    caps = (cap_of(node, one) * MILLI for one in numbers.capped)
    return *plain, *_of_types(node.gpu_types, numbers.gpu_types), *caps


def amounts_of_job(job: QueuedJob, partitions: Sequence[str], cores: WholeCores, numbers: Numbers) -> Amounts:
    """Return what a job, or one task of an array, takes in all; of GPU types, what is known or asked for by name.

    `partitions` are those where it may start, or runs.
    """
    cpus, mem_mib = cores.taken(job)
    plain = (cpus * MILLI, mem_mib, job.gpus * MILLI)
    caps = (cpus * MILLI * is_under for is_under in under_caps(partitions, numbers.capped))
    return *plain, *_of_types(job.gpu_types, numbers.gpu_types), *caps


def _of_types(counts: Iterable[tuple[str, int]], gpu_types: Sequence[str]) -> Iterable[int]:
    known = dict(counts)
    return (known.get(name, 0) * MILLI for name in gpu_types)


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes that accept jobs, what of them is reserved when, and what runs on the rest."""

    machines: tuple[Machine, ...]
    windows: tuple[Window, ...]
    running: tuple[Holding, ...]


def cluster_of(snapshot: Snapshot, numbers: Numbers, run_time: Callable[[QueuedJob], RunTime]) -> Cluster:
    """Return the cluster of a snapshot, without what is away; what is reserved now comes back when that ends.

    If only a part of a node is reserved, that part is left out for as long as it is.
    """
    of_parts = parts_reserved(snapshot.nodes, snapshot.reservations)
    whole = [one for one in snapshot.reservations if one not in of_parts]
    spans = reserved_spans(whole, snapshot.time_s)
    here = (node for node in snapshot.nodes if not node.away)
    nodes = without_parts(here, of_parts, snapshot.time_s)
    if not snapshot.terms.memory_counts:
        nodes = [msgspec.structs.replace(node, mem_mib=ENDLESS_MIB) for node in nodes]
    open_now = {
        node.name: place
        for place, node in enumerate(nodes)
        if all(begin > 0 for begin, _ in spans.get(node.name, ()))
    }
    free = [amounts_of_node(node, numbers) for node in nodes]
    running = holdings(snapshot, numbers, open_now, free, run_time, _in_force(of_parts, snapshot.time_s))
    return Cluster(
        machines=_machines(nodes, numbers),
        windows=tuple(windows_of(nodes, numbers, spans, running)),
        running=tuple(running),
    )


def _machines(nodes: Sequence[NodeState], numbers: Numbers) -> tuple[Machine, ...]:
    pools = {
        kind: frozenset(numbers.pools[name] for name in _pool_names(*kind)) for kind in set(map(_kind, nodes))
    }
    return tuple(Machine(amounts=amounts_of_node(node, numbers), pools=pools[_kind(node)]) for node in nodes)


def parts_reserved(nodes: Sequence[NodeState], reservations: Iterable[ReservedNodes]) -> list[ReservedNodes]:
    """Return the reservations that leave some of their nodes' CPUs to others."""
    cpus = {node.name: node.cpus for node in nodes}
    return [one for one in reservations if 0 < one.cpus < sum(cpus.get(name, 0) for name in one.nodes)]


def without_parts(
    nodes: Iterable[NodeState], of_parts: Iterable[ReservedNodes], now_s: float
) -> list[NodeState]:
    """Return nodes without what reservations of parts hold of them now: their cores, and an equal share of GPUs.

    If Slurm does not say which cores, it is an equal share of the CPUs. When such a reservation ends, or the next
    begins, the next cycle sees that.
    """
    cores, cpus, gpus = Counter[str](), Counter[str](), Counter[str]()
    for one in _in_force(of_parts, now_s):
        known = dict(one.cores)
        cores.update(known)
        share, gpu_share = -(-one.cpus // len(one.nodes)), -(-one.gpus // len(one.nodes))
        for name in one.nodes:
            cpus[name] += 0 if name in known else share
            gpus[name] += gpu_share
    return [
        msgspec.structs.replace(
            node,
            cpus=max(0, node.cpus - cpus[node.name] - cores[node.name] * node.cpus_per_core),
            gpus=max(0, node.gpus - gpus[node.name]),
        )
        for node in nodes
    ]


def _in_force(reservations: Iterable[ReservedNodes], now_s: float) -> list[ReservedNodes]:
    return [one for one in reservations if one.start_s <= now_s < one.end_s]


def reserved_spans(
    reservations: Iterable[ReservedNodes], now_s: float
) -> dict[str, list[tuple[float, float]]]:
    """Return from when to when (seconds from now) each node is reserved, overlapping spans merged."""
    spans: dict[str, list[tuple[float, float]]] = {}
    for reservation in sorted(reservations, key=lambda each: each.start_s):
        begin, end = max(0.0, reservation.start_s - now_s), reservation.end_s - now_s
        for name in reservation.nodes if end > begin else ():
            of_node = spans.setdefault(name, [])
            if of_node and begin <= of_node[-1][1]:
                of_node[-1] = (of_node[-1][0], max(end, of_node[-1][1]))
            else:
                of_node.append((begin, end))
    return spans


def windows_of(
    nodes: Sequence[NodeState],
    numbers: Numbers,
    spans: Mapping[str, Sequence[tuple[float, float]]],
    running: Sequence[Holding],
) -> list[Window]:
    """Return what nodes lack during reservations: all but what is held by jobs that may run into them."""
    held: dict[int, list[tuple[float, Amounts]]] = {}
    for holding in running if spans else ():
        for place, amounts in holding.parts:
            held.setdefault(place, []).append((holding.limit_left_s, amounts))
    windows = []
    for place, node in enumerate(nodes):
        for begin, end in spans.get(node.name, ()):
            left = amounts_of_node(node, numbers)
            for limit_left_s, amounts in held.get(place, ()):
                left = less(left, amounts) if limit_left_s > begin else left
            windows.append(Window(node=place, from_s=begin, to_s=end, amounts=left))
    return windows


def holdings(
    snapshot: Snapshot,
    numbers: Numbers,
    index: Mapping[str, int],
    free: list[Amounts],
    run_time: Callable[[QueuedJob], RunTime],
    apart: Sequence[ReservedNodes],
) -> list[Holding]:
    """Return the jobs that hold nodes, as from `held_parts`, and until when they are likely to."""
    ranks = Ranks(snapshot)
    return [
        _holding(
            job,
            parts,
            snapshot.time_s,
            numbers,
            run_time(job),
            ranks.yields(job.qos, job.partitions),
            over_limit_of(job, snapshot),
        )
        for job, parts in held_parts(snapshot, numbers, index, free, apart)
    ]


def held_parts(
    snapshot: Snapshot,
    numbers: Numbers,
    index: Mapping[str, int],
    free: list[Amounts],
    apart: Sequence[ReservedNodes] = (),
) -> Iterator[tuple[QueuedJob, list[tuple[int, Amounts]]]]:
    """Yield what jobs hold of nodes, jobs on one node first: for a job on several, only the sum is known.

    If a job's type of GPU is not known, the job has what jobs of known types leave, the first type first. Whatever is
    taken is taken from `free`, so that no node ever holds more than it has. If jobs take turns on the same CPUs, the
    running ones have them; a suspended job has what they leave, as if it resumed now. What the reservations `apart`
    hold is not in `free`: nothing of that is taken.
    """
    jobs = [job for job in snapshot.jobs if not job.waits and job.nodes]
    cores = whole_cores_of(snapshot)
    for job in sorted(jobs, key=lambda job: _turn(job, numbers.gpu_types)):
        taken = _taken(job, apart, cores, numbers)
        places = [index[name] for name in job.nodes if name in index]
        if parts := parts_of(job, taken, places, free, numbers.total):
            yield job, parts


def _turn(job: QueuedJob, gpu_types: Sequence[str]) -> tuple[bool, bool, int, int]:
    unknown = bool(gpu_types) and sum(count for _, count in job.gpu_types) < job.gpus
    return job.suspended, unknown, len(job.nodes), job.job_id


def _holding(
    job: QueuedJob,
    parts: list[tuple[int, Amounts]],
    now_s: float,
    numbers: Numbers,
    run_time: RunTime,
    yields: Yields | None,
    over_limit_s: float,
) -> Holding:
    ran_s = job.ran_s(now_s)
    limit_left_s = most_left_s(job, now_s, over_limit_s)
    return Holding(
        job_id=job.job_id,
        user=numbers.users[job.user],
        parts=tuple(parts),
        ran_s=ran_s,
        limit_left_s=limit_left_s,
        likely_left_s=likely_left_s(run_time, ran_s, limit_left_s),
        yields=yields,
    )


def _taken(job: QueuedJob, apart: Sequence[ReservedNodes], cores: WholeCores, numbers: Numbers) -> Amounts:
    """Return what a job takes of what is not reserved: still memory, if it runs in a reservation of CPUs and GPUs."""
    taken = amounts_of_job(job, job.partitions, cores, numbers)
    own = next((one for one in apart if one.name == job.reservation), None)
    if own is None:
        return taken
    _, mem, *gpus = taken
    return (0, mem, *([0] * len(gpus) if own.gpus else gpus))


def parts_of(
    job: QueuedJob, left: Amounts, places: Sequence[int], free: list[Amounts], total: Sequence[int]
) -> list[tuple[int, Amounts]]:
    """Return what a job that takes `left` holds of each of its nodes, in equal parts, and take that from `free`.

    `total` is that of the numbers.
    """
    parts = []
    # Nodes that are away are left out, and so is what the job has there.
    left = tuple(amount * len(places) // len(job.nodes) for amount in left)
    for number, place in enumerate(sorted(places, key=lambda place: free[place])):
        ahead = len(places) - number
        share = free[place] if job.exclusive else typed(_share(left, ahead, free[place]), free[place], total)
        free[place], left = less(free[place], share), less(left, share)
        parts.append((place, share))
    return parts


def _share(left: Amounts, among: int, most: Amounts) -> Amounts:
    """Return an equal share of what is left, rounded up, and at most `most`."""
    return tuple(min(-(-amount // among), bound) for amount, bound in zip(left, most, strict=True))


def less(amounts: Amounts, taken: Amounts) -> Amounts:
    """Return what is left of amounts, never negative."""
    return tuple(max(0, amount - other) for amount, other in zip(amounts, taken, strict=True))
