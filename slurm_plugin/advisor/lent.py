"""Which jobs may be let onto idle nodes of others, given a snapshot and the plan made for it. Pure.

A lent node is a node of a lent partition on which no job of another partition runs. Slurm chooses among those that
have room, so a condition for one is checked on all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import msgspec

from models.planning.problem import Pending, Plan, PlannedJob, Problem
from models.scheduling.room import Amounts, exceeds
from slurm_plugin.advisor.access import may_use
from slurm_plugin.advisor.features import features_of
from slurm_plugin.advisor.places import place_of
from slurm_plugin.advisor.preemption import BY_PARTITION, REQUEUE
from slurm_plugin.advisor.room import less
from slurm_plugin.policy.facts import MemoryTerms
from slurm_plugin.policy.submission import opts_out
from slurm_plugin.slurm.snapshot import PartitionState, QueuedJob, Snapshot

# A run may take longer than the median of similar ones by this share.
MARGIN = 0.5

# The share of cases in which the owner of a node is back within this many seconds.
BackWithin = Callable[[str, float], float]


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """A record that waits: as Slurm has it, as a plan takes it, and what was planned for it."""

    job: QueuedJob
    pending: Pending
    planned: PlannedJob

    @property
    def needs_s(self) -> float:
        """How long it must be left undisturbed (seconds)."""
        return min(self.pending.limit_s, self.pending.likely_s * (1 + MARGIN))


class Lent:
    """What a lent partition has free now on nodes that no owner uses, and the risk of using it."""

    def __init__(
        self,
        partition: PartitionState,
        whole: Mapping[str, Amounts],
        free: Mapping[str, Amounts],
        back_within: BackWithin,
    ) -> None:
        """`whole` is what each node has in all, `free` what jobs leave of that."""
        self.partition, self._back_within = partition, back_within
        self._whole, self._free = whole, dict(free)
        self._risks: dict[tuple[Amounts, float], float] = {}

    def risk(self, demand: Amounts, needs_s: float) -> float:
        """Return in which share of cases an owner is back before a job is done; infinite if it finds no room."""
        # Many jobs are alike, and few find room.
        if (demand, needs_s) not in self._risks:
            self._risks[demand, needs_s] = self._share(_fitting(demand, self._free), needs_s)
        return self._risks[demand, needs_s]

    def risk_later(self, demand: Amounts, needs_s: float) -> float:
        """Return the same for a job that starts once the jobs that run there have ended, or the first of them has."""
        return self._share(_fitting(demand, self._whole), needs_s)

    def take(self, demand: Amounts, tasks: int) -> None:
        """Take room for this many tasks, or for as many as fit, from the fullest nodes first."""
        for _ in range(tasks):
            nodes = _fitting(demand, self._free)
            if not nodes:
                return
            self._free[nodes[0]] = less(self._free[nodes[0]], demand)
            self._risks.clear()

    def _share(self, nodes: Sequence[str], needs_s: float) -> float:
        return sum(self._back_within(node, needs_s) for node in nodes) / len(nodes) if nodes else math.inf


def _fitting(demand: Amounts, room: Mapping[str, Amounts]) -> list[str]:
    """Return the nodes that have room for a demand, the fullest first."""
    return [name for _, name in sorted((has, name) for name, has in room.items() if not exceeds(demand, has))]


def waiting_of(snapshot: Snapshot, problem: Problem, plan: Plan) -> Iterator[Waits]:
    """Yield the records that wait, in the order of Slurm's queue."""
    pending = {one.job_id: one for one in problem.pending}
    planned = {one.job_id: one for one in plan.jobs}
    waiting = (job for job in snapshot.jobs if job.waits)
    for job in sorted(waiting, key=lambda job: (-job.priority, job.job_id)):
        yield Waits(job=job, pending=pending[job.job_id], planned=planned[job.job_id])


def nodes_of_owners(snapshot: Snapshot, lent: Collection[str]) -> set[str]:
    """Return the nodes on which jobs run that are not in a lent partition."""
    owners = (job for job in snapshot.jobs if not (job.waits or set(job.partitions) & set(lent)))
    return {node for job in owners for node in job.nodes}


def rooms_of(snapshot: Snapshot, problem: Problem) -> tuple[dict[str, Amounts], dict[str, Amounts]]:
    """Return what each existing node has in all, and what of it is free, in the amounts of the problem."""
    names = [node.name for node in snapshot.nodes if not node.away]
    whole = [machine.amounts for machine in problem.machines]
    free = list(whole)
    for holding in problem.running:
        for place, amounts in holding.parts:
            free[place] = less(free[place], amounts)
    return dict(zip(names, whole, strict=True)), dict(zip(names, free, strict=True))


def why_not_lent(name: str, snapshot: Snapshot) -> str:
    """Return why no job can be let into a partition, and what to set; '' if jobs can be."""
    partition = next((one for one in snapshot.partitions if one.name == name), None)
    if partition is None:
        return f"there is no partition {name}; correct [[lent_partitions]]"
    if snapshot.terms.preempt_type != BY_PARTITION or REQUEUE not in partition.preempt_mode:
        return (
            f"its jobs are not requeued when an owner needs the nodes; set PreemptType={BY_PARTITION}, "
            f"and PreemptMode={REQUEUE} for this partition"
        )
    nodes = [set(node.partitions) - {name} for node in snapshot.nodes if name in node.partitions]
    tiers = {one.name: one.tier for one in snapshot.partitions}
    if not all(any(tiers.get(owner, 0) > partition.tier for owner in owners) for owners in nodes):
        return (
            "each of its nodes must also be in a partition with a higher PriorityTier, that of the node's "
            "owner; not all are"
        )
    return "" if partition.up else "the partition is down"


def may_be_let_in(one: Waits, partition: PartitionState, snapshot: Snapshot) -> bool:
    """Whether a partition accepts a job, and it may be interrupted there: its user allows it, once, and in time."""
    job = one.job
    return (
        job.batch
        and job.requeues
        and not opts_out(job.comment)
        and not job.restarts
        and one.pending.nodes == 1
        and not one.pending.out
        and not place_of(job, snapshot.time_s).kept
        and not features_of(job)
        and _limit_s(job) <= partition.longest_s
        and may_use(job, partition, snapshot)
        and _is_in_time(one, snapshot.time_s, snapshot.terms.again_s)
        and all(_is_alike(job, partition, own) for own in snapshot.partitions if own.name in job.partitions)
    )


def _limit_s(job: QueuedJob) -> float:
    return math.inf if job.limit_s is None else job.limit_s


def _is_alike(job: QueuedJob, partition: PartitionState, own: PartitionState) -> bool:
    """Whether a job gets no less time, the same memory and no more CPUs there than in a partition of its own.

    A job that asks for no limit or no memory gets those of the partition in which it starts, and one whose memory is
    above MaxMemPerCPU more CPUs (seen on 22.05 and 26.05). Slurm does not show what was asked for: whatever a job has
    as its own partition gives it counts as not asked for.
    """
    has_s = _limit_s(job)
    given_s = partition.longest_s if partition.default_s is None else partition.default_s
    if own.default_s is None and has_s == own.longest_s and given_s < has_s:
        return False
    return partition.memory == own.memory or _keeps_memory(job, partition.memory, own.memory)


def _keeps_memory(job: QueuedJob, there: MemoryTerms, own: MemoryTerms) -> bool:
    """Whether other defaults and maximums of memory change nothing for a job, which runs on one node."""
    per_cpu_mib = job.mem_per_cpu_mib
    unasked = (
        (job.mem_per_node_mib or 0) == own.default_per_node_mib
        if per_cpu_mib is None
        else per_cpu_mib == own.default_per_cpu_mib
    )
    most_mib = min(there.max_per_cpu_mib * job.cpus or math.inf, there.max_per_node_mib or math.inf)
    return not unasked and not job.gpus and job.mem_mib <= most_mib


def _is_in_time(one: Waits, now_s: float, again_s: float) -> bool:
    """Whether a job with a deadline meets it, even after an interruption, or would be late anyhow."""
    if not one.job.deadline_s:
        return True
    last_start_s = one.pending.start_by_s
    again_in_time = one.needs_s + again_s <= last_start_s or one.planned.start_s > last_start_s
    return again_in_time and now_s + one.needs_s <= one.job.deadline_s


def is_worth_it(one: Waits, risk: float, soon_s: float, again_s: float) -> bool:
    """Whether what a job may lose is less than what it would wait, if it waits longer than `soon_s` (seconds).

    A job that is interrupted has lost its run, and waits for `again_s` before Slurm looks at it again.
    """
    waits_s = one.planned.start_s
    return waits_s > soon_s and risk * (one.pending.likely_s + again_s) < (1 - risk) * waits_s
