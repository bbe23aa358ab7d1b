"""Which jobs list a lent partition: none, all, those let in by production's rule, or by an oracle of owners' returns.

The forecast calls `slurm_plugin.advisor.lending.Lending` on snapshots of the simulated queue, as the advisor does
in each cycle on a cluster's.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Sequence

import numpy

from bench.edge_loads import GPUS_A_NODE
from bench.lending_loads import Asked, LendingLoad
from bench.lending_queue import LENT, OWN, OWNER, WHOLE, LendingQueue, Running
from models.planning.problem import Holding, Machine, Pending, Plan, PlannedJob, Problem
from models.scheduling.lanes import Busy, Lanes, Pool, units_of
from models.scheduling.room import MILLI, Amounts
from slurm_plugin.advisor.lending import Lending
from slurm_plugin.config.settings import Advisor, Config, LentPartition
from slurm_plugin.slurm.snapshot import (
    NodeState,
    PartitionState,
    QueuedJob,
    SchedulerTerms,
    Snapshot,
)

HORIZON_S = Advisor().horizon_s
# Slurm's times are unix seconds, and 0 means none.
EPOCH_S = 1e9


class Nobody:
    """No job lists it."""

    def lists(self, number: int) -> bool:  # noqa: ARG002
        """Whether a job lists it: no."""
        return False

    def likes(self, number: int, node: int, now_s: float) -> bool:  # noqa: ARG002
        """Whether the job would start there: as in Slurm, wherever there is room."""
        return True

    def look(self, queue: LendingQueue) -> None:
        """Change nothing."""


class Everybody(Nobody):
    """Every job lists it."""

    def lists(self, number: int) -> bool:  # noqa: ARG002
        """Whether a job lists it: yes."""
        return True


class Oracle(Everybody):
    """Every job lists it, and starts where it will end before the owner returns."""

    def __init__(self, load: LendingLoad) -> None:
        self._jobs, self._own = load.jobs, load.own_nodes
        self._comes_s = [[from_s for from_s, _ in spans] for spans in load.owners]

    def likes(self, number: int, node: int, now_s: float) -> bool:
        """Whether a job will end there in time."""
        comes_s = self._comes_s[node - self._own]
        at = bisect_left(comes_s, now_s)
        return at == len(comes_s) or now_s + self._jobs[number].run_s <= comes_s[at]


class ByForecast(Nobody):
    """Production's rule: which jobs are let in, cycle by cycle."""

    def __init__(self, load: LendingLoad, risk: float) -> None:
        self._jobs, self._own = load.jobs, load.own_nodes
        terms = LentPartition(name=LENT, jobs_of=(OWN,), risk=risk)
        past = {
            f"{LENT}{node}": [
                (EPOCH_S + from_s, EPOCH_S + min(0.0, to_s)) for from_s, to_s in spans if from_s < 0
            ]
            for node, spans in enumerate(load.owners, load.own_nodes)
        }
        self.lending = Lending(Config(lent_partitions=(terms,)), lambda _of, _from_s, _to_s: past)
        names = [OWN] * load.own_nodes + [LENT] * len(load.owners)
        self._nodes = tuple(
            NodeState(
                name=f"{name}{node}",
                cpus=GPUS_A_NODE,
                mem_mib=0,
                gpus=0,
                partitions=(OWN,) if name == OWN else (LENT, OWNER),
            )
            for node, name in enumerate(names)
        )
        self._machines = tuple(Machine(amounts=WHOLE, pools=frozenset({name == LENT})) for name in names)
        self.listed: set[int] = set()

    def lists(self, number: int) -> bool:
        """Whether a job was let in."""
        return number in self.listed

    def look(self, queue: LendingQueue) -> None:
        """Let jobs in, and take them out, as the advisor would."""
        inside = any(number in self.listed for _, number in queue.waiting)
        asks = bool(queue.waiting) and (inside or queue.has_room())
        if not (asks or queue.owners_changed):
            return
        now = self._snapshot(queue, queue.waiting if asks else ())
        self.lending.see(now)
        queue.owners_changed = False
        if asks:
            ours = {number: LENT for _, number in queue.waiting if number in self.listed}
            for change in self.lending.changes(now, self._problem(queue), self._plan(queue), ours):
                (self.listed.add if change.added else self.listed.discard)(change.job_id)

    def _snapshot(self, queue: LendingQueue, waiting: Collection[tuple[float, int]]) -> Snapshot:
        theirs = tuple(
            _queued(-node, (OWNER,), queue.now_s, state="RUNNING", nodes=(f"{LENT}{node}",))
            for node, had in enumerate(queue.had)
            if had
        )
        jobs = tuple(
            _queued(
                number,
                (OWN, LENT) if number in self.listed else (OWN,),
                queue.since_s[number],
                priority=len(waiting) - place,
                restarts=queue.became[number].interrupted,
                cpus=self._jobs[number].gpus,
                limit_s=math.ceil(self._jobs[number].limit_s),
            )
            for place, (_, number) in enumerate(waiting)
        )
        return Snapshot(
            time_s=EPOCH_S + queue.now_s,
            jobs=theirs + jobs,
            nodes=self._nodes,
            partitions=(
                PartitionState(name=OWN),
                PartitionState(name=LENT, preempt_mode="REQUEUE"),
                PartitionState(name=OWNER, tier=10),
            ),
            reservations=(),
            terms=_TERMS,
        )

    def _problem(self, queue: LendingQueue) -> Problem:
        running = [
            Holding(
                job_id=number,
                user=0,
                parts=((node, _amounts(self._jobs[number])),),
                ran_s=queue.now_s - run.start_s,
                limit_left_s=run.ends_by_limit_s - queue.now_s,
                likely_left_s=0.0,
            )
            for node, there in enumerate(queue.on)
            for number, run in there.items()
        ]
        pending = [
            Pending(
                job_id=number,
                account=0,
                user=0,
                pools=frozenset({0}),
                priority=0,
                factor=0,
                demand=_amounts(self._jobs[number]),
                limit_s=self._jobs[number].limit_s,
                likely_s=self._jobs[number].expected_s,
                upper_s=self._jobs[number].limit_s,
                waited_s=queue.now_s - queue.since_s[number],
            )
            for _, number in queue.waiting
        ]
        return Problem(machines=self._machines, pending=tuple(pending), running=tuple(running))

    def _plan(self, queue: LendingQueue) -> Plan:
        """Return when jobs would start on the site's own nodes, taken as one pool, in the order of the queue."""
        return Plan(order="", why="", gain=0.0, tried=(), jobs=tuple(planned(queue)))


def planned(queue: LendingQueue) -> list[PlannedJob]:
    """Return when jobs are expected to start on own nodes: never, if that is beyond a plan's horizon.

    A job that runs longer than expected is assumed to take as long again.
    """
    own = range(queue.own)
    capacity = (queue.own * GPUS_A_NODE * MILLI, 0, 0)
    busy = [
        Busy(_expected_end_s(queue.jobs[number], run, queue.now_s), _amounts(queue.jobs[number]))
        for node in own
        for number, run in queue.on[node].items()
    ]
    free = numpy.zeros((3, queue.own), dtype=numpy.int64)
    free[0] = [MILLI * queue.free[node] for node in own]
    pool = Pool(name=OWN, nodes=tuple(own), capacity=capacity, busy=tuple(busy))
    lanes, found = Lanes(pool, queue.now_s, free), []
    for _, number in queue.waiting:
        job = queue.jobs[number]
        units = units_of(_amounts(job), capacity)
        told_s = lanes.start_s(units, job.expected_s) - queue.now_s
        start_s = told_s if told_s <= HORIZON_S else math.inf
        lanes.take(units, job.expected_s)
        found.append(
            PlannedJob(
                job_id=number,
                before=0,
                after=0,
                base_start_s=start_s,
                start_s=start_s,
                low_s=start_s,
                high_s=start_s,
                reason="",
            )
        )
    return found


def _expected_end_s(job: Asked, run: Running, now_s: float) -> float:
    end_s = run.start_s + job.expected_s
    return end_s if end_s > now_s else now_s + (now_s - run.start_s)


def _amounts(job: Asked) -> Amounts:
    return (job.gpus * MILLI, 0, 0)


_TERMS = SchedulerTerms(
    priority_type="priority/multifactor",
    scheduler_type="sched/backfill",
    parameters=(),
    preempt_type="preempt/partition_prio",
    preempt_mode="REQUEUE",
)


def _queued(
    number: int,
    partitions: tuple[str, ...],
    since_s: float,
    *,
    state: str = "PENDING",
    nodes: Sequence[str] = (),
    priority: int = 0,
    restarts: int = 0,
    cpus: int = GPUS_A_NODE,
    limit_s: int | None = None,
) -> QueuedJob:
    return QueuedJob(
        job_id=number,
        user="user",
        uid=1,
        account="account",
        partitions=partitions,
        qos="normal",
        name="job",
        state=state,
        reason="Priority",
        submit_s=EPOCH_S + since_s,
        eligible_s=EPOCH_S + since_s,
        start_s=0.0,
        end_s=0.0,
        limit_s=limit_s,
        priority=priority,
        site_factor=0,
        cpus=cpus,
        mem_mib=0,
        gpus=0,
        nodes=tuple(nodes),
        restarts=restarts,
    )
