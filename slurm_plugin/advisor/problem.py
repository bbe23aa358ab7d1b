"""Turns the cluster as Slurm has it into the input of a plan. Pure.

Partitions, and their nodes with a feature, are pools; a job's pools are those in which it may start. A job that a
plan must not move keeps its place, with the reason. An exclusive job takes whole nodes, and several if one cannot
hold it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from models.planning.ledger import Ledger
from models.planning.problem import Machine, Pending, Problem, Yields
from models.scheduling.placement import part_of
from models.scheduling.room import PLAIN, Amounts, exceeds
from slurm_plugin.advisor.access import may_use, takes
from slurm_plugin.advisor.places import Place, place_of, top_of
from slurm_plugin.advisor.preemption import Ranks
from slurm_plugin.advisor.room import Numbers, amounts_of_job, cluster_of, numbers_of, pools_of
from slurm_plugin.advisor.run_time import RunTime, limit_of
from slurm_plugin.advisor.shared_limits import SharedLimits, clock_of, counted, has_budget
from slurm_plugin.advisor.whole_cores import WholeCores, whole_cores_of
from slurm_plugin.slurm.reasons import reason_of
from slurm_plugin.slurm.snapshot import PartitionState, QueuedJob, Snapshot

MOST_PRIORITY = (1 << 32) - 1
# What factors may bridge by default.
REACH = 10_000
# Slurm's reason for a job that only waits its turn.
TURN = "Priority"
# Why a job that is in no simulation keeps its place.
DOWN = "its partition is down"
TOO_LARGE = "it asks for more of a node than its partition allows"
UNEQUAL = "equal parts of it do not fit on the nodes"
NONE_UP = "no node that it may use is up"

Expect = Callable[[QueuedJob], RunTime]


def problem_of(
    snapshot: Snapshot,
    expect: Expect,
    *,
    ours: Mapping[int, Collection[int]] | None = None,
    reach: int = REACH,
) -> Problem:
    """Return the problem of a snapshot; its pending records are in the order of the snapshot's waiting jobs.

    `expect` returns how long a job runs in all. `ours` are the SiteFactors that we may have set, by job (None: all
    that exist). A factor that somebody else has set is part of Slurm's order, and its job keeps its place. `reach` is
    how many points factors may bridge. Nothing is foreseen to come.
    """
    numbers = numbers_of(snapshot)
    cluster = cluster_of(snapshot, numbers, expect)
    waiting = [job for job in snapshot.jobs if job.waits]
    partitions = {partition.name: partition for partition in snapshot.partitions}
    open_to = [open_partitions(job, partitions, snapshot) for job in waiting]
    ranks = Ranks(snapshot)
    tiers = [
        ranks.tier(job.qos, names or job.partitions) for job, names in zip(waiting, open_to, strict=True)
    ]
    factors = {job.job_id: factor_of(job, ours) for job in waiting}
    own = [own_priority(job, factors[job.job_id]) for job in waiting]
    top = top_of(waiting, own, tiers, reach)
    kinds, cores, limits = Kinds(cluster.machines), whole_cores_of(snapshot), SharedLimits(snapshot)
    pending = [
        _pending(
            job,
            names or job.partitions,
            numbers,
            kinds,
            expect(job),
            cores=cores,
            limits=limits,
            factor=factors[job.job_id],
            priority=priority,
            tier=tier,
            yields=ranks.yields(job.qos, names or job.partitions),
            now_s=snapshot.time_s,
        )
        for job, names, priority, tier in zip(waiting, open_to, own, tiers, strict=True)
    ]
    running, elsewhere = counted(snapshot, cluster.running, numbers, cores, limits, expect)
    problem = Problem(
        machines=cluster.machines,
        pending=tuple(pending),
        running=running,
        windows=cluster.windows,
        bounds=len(numbers.capped),
        limits=limits.most,
        elsewhere=elsewhere,
        clock=clock_of(snapshot.terms, snapshot.time_s),
    )
    ledger = problem.ledger
    placed = [
        _at(
            one,
            _place(
                _that_may_wait(job, one, ledger),
                snapshot.time_s,
                top,
                shut="" if names else TOO_LARGE if _up(job, partitions) else DOWN,
                is_ours=one.factor == job.site_factor,
            ),
        )
        for job, one, names in zip(waiting, pending, open_to, strict=True)
    ]
    return msgspec.structs.replace(problem, pending=tuple(placed))


def _that_may_wait(job: QueuedJob, one: Pending, ledger: Ledger) -> QueuedJob:
    """Return a job as one that waits its turn if it waits for a limit whose end a plan can predict."""
    # Interpreting a reason takes longer than looking into the ledger, where most jobs wait for nothing.
    may_wait = ledger.barring(one.dues) is not None and not ledger.never(one.dues)
    reason = reason_of(job.reason) if may_wait else None
    # slurmctld may report no budget, or not all.
    is_known = reason and reason.shared and (not reason.budget or has_budget(one.dues))
    return msgspec.structs.replace(job, reason=TURN) if is_known else job


def _at(one: Pending, place: Place) -> Pending:
    return msgspec.structs.replace(one, kept=place.kept or one.kept, out=place.out) if place.kept else one


def factor_of(job: QueuedJob, ours: Mapping[int, Collection[int]] | None) -> int:
    """Return the SiteFactor in force if it is ours, 0 if somebody else has set it."""
    return job.site_factor if ours is None or job.site_factor in ours.get(job.job_id, ()) else 0


def own_priority(job: QueuedJob, factor: int) -> int:
    """Return Slurm's own priority of a job: without a factor of ours, which Slurm may have counted only in part."""
    own = job.priority if job.fixed or job.held else job.priority - factor
    return min(max(0, own), MOST_PRIORITY)


def _up(job: QueuedJob, partitions: Mapping[str, PartitionState]) -> list[str]:
    return [name for name in job.partitions if name in partitions and partitions[name].up]


def open_partitions(
    job: QueuedJob, partitions: Mapping[str, PartitionState], snapshot: Snapshot
) -> tuple[str, ...]:
    """Return the listed partitions in which a job may start: those that are up, and accept it and its limit.

    If none of them allows it, returns all that are up and take a job of its size: a QOS may allow it.
    """
    up = tuple(name for name in _up(job, partitions) if takes(job, partitions[name]))
    limit_s = math.inf if job.limit_s is None else job.limit_s
    found = (partitions[name] for name in up)
    allowed = (one for one in found if limit_s <= one.longest_s and may_use(job, one, snapshot))
    return tuple(one.name for one in allowed) or up


def _place(job: QueuedJob, now_s: float, top: frozenset[int], *, shut: str, is_ours: bool) -> Place:
    place = place_of(job, now_s)
    if place.out:
        return place
    if shut:
        return Place(shut, out=True)
    if not place.kept and not is_ours:
        return Place("its SiteFactor was set by somebody else")
    if not place.kept and job.job_id in top:
        return Place("it is at the top of the queue")
    return place


class Kinds:
    """The different machines of each set of pools: they are few, while many jobs ask for them."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self._machines = machines
        self._found: dict[frozenset[int], Counter[Amounts]] = {}

    def of(self, pools: frozenset[int]) -> Counter[Amounts]:
        """Return how many machines of any of these pools have which amounts."""
        if pools not in self._found:
            self._found[pools] = Counter(each.amounts for each in self._machines if each.pools & pools)
        return self._found[pools]

    def hold(self, pools: frozenset[int], demand: Amounts, nodes: int) -> bool:
        """Whether `nodes` of them are large enough for equal parts of a demand."""
        part = part_of(demand, nodes)
        return nodes <= sum(
            count
            for amounts, count in self.of(pools).items()
            if all(has >= needs for has, needs in zip(amounts, part, strict=True))
        )


def _pending(
    job: QueuedJob,
    partitions: Sequence[str],
    numbers: Numbers,
    kinds: Kinds,
    run_time: RunTime,
    *,
    cores: WholeCores,
    limits: SharedLimits,
    factor: int,
    priority: int,
    tier: int,
    yields: Yields | None,
    now_s: float,
) -> Pending:
    pools = pools_of(job, partitions, numbers)
    asked = amounts_of_job(job, partitions, cores, numbers)
    whole, nodes = demand_of(job, asked, tuple(kinds.of(pools)))
    demand = whole or asked
    kept = "it asks for whole nodes, and they differ in size" if job.exclusive and whole is None else ""
    if not kinds.hold(pools, demand, nodes):
        kept = kept or (UNEQUAL if kinds.of(pools) else NONE_UP)
    since_s = job.eligible_s if 0 < job.eligible_s <= now_s else job.submit_s
    return Pending(
        job_id=job.job_id,
        account=numbers.accounts[job.account],
        user=numbers.users[job.user],
        pools=pools,
        priority=priority,
        factor=factor,
        demand=demand,
        limit_s=limit_of(job),
        likely_s=run_time.likely_s,
        upper_s=run_time.upper_s,
        waited_s=max(0.0, now_s - since_s),
        tasks=job.tasks,
        nodes=nodes,
        fair_share=job.fair_share,
        kept=kept,
        deadline_s=deadline_of(job, now_s),
        tier=tier,
        nice=job.nice,
        yields=yields,
        dues=limits.dues(job, partitions, demand, limit_of(job)),
    )


def deadline_of(job: QueuedJob, now_s: float) -> float:
    """Return by when a job that may run to its limit has to end (seconds from now; infinite: no deadline).

    A job that accepts less than its limit (TimeMin) gets the rest on top: Slurm gives it up that much later.
    """
    if not job.deadline_s:
        return math.inf
    limit_s = limit_of(job)
    # Of a job without a limit Slurm only requires that it starts.
    least_s = job.least_limit_s or (0.0 if job.limit_s is None else limit_s)
    return job.deadline_s - now_s + limit_s - min(least_s, limit_s)


def demand_of(job: QueuedJob, asked: Amounts, machines: Sequence[Amounts]) -> tuple[Amounts | None, int]:
    """Return what a job that asks so much takes, of how many nodes; None: it wants whole nodes, and they differ.

    `machines` has each kind that the job may use once. Nodes that differ only in the types of their GPUs are alike to
    a job that asks for no type; to one that asks for a type, those are alike that have as many of it.
    """
    most = tuple(max(column) for column in zip(*machines, strict=True)) or (0,) * len(asked)
    needed = [-(-amount // bound) for amount, bound in zip(asked, most, strict=True) if bound]
    nodes = max([1, job.num_nodes, *needed])
    if not job.exclusive:
        return asked, nodes
    typed = (0,) * PLAIN + part_of(asked, nodes)[PLAIN:]
    plain = {machine[:PLAIN] for machine in machines if not exceeds(typed, machine)}
    if len(plain) != 1:
        return None, nodes
    return (*(amount * nodes for amount in plain.pop()), *asked[PLAIN:]), nodes
