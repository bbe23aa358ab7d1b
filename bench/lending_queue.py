"""A queue over days on nodes of its own and lent ones, event by event: who lists the lent partition may start there.

Slurm as far as it matters here: in the advisor's order, and who passes must not delay the first (EASY, by limits). Who
lists both partitions starts in his own if he can, else on the fullest lent node that has room. Who is there when its
owner comes is ended, and queued again, anew in age, once AGAIN_S are over. Who lists both when is a Listing's to say;
the forecast asks production's own Lending each PERIOD_S, on snapshots of this queue.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from collections.abc import Collection, Sequence
from typing import Protocol

import msgspec
import numpy

from bench.edge_loads import GPUS_A_NODE
from bench.lending_loads import Asked, LendingLoad
from models.planning.orders import STRENGTH
from models.planning.problem import Holding, Machine, Pending, Plan, PlannedJob, Problem
from models.scheduling.lanes import Busy, Lanes, Pool, units_of
from models.scheduling.room import MILLI, Amounts
from slurm_plugin.advisor.lending import Lending
from slurm_plugin.config.settings import Advisor, Config, LentPartition
from slurm_plugin.slurm.snapshot import (
    AGAIN_S,
    NodeState,
    PartitionState,
    QueuedJob,
    SchedulerTerms,
    Snapshot,
)

PERIOD_S, HORIZON_S = float(Advisor().period_s), Advisor().horizon_s
# Of one moment, in this order; an owner goes before one comes.
END, GOES, COMES, SUBMIT, CYCLE = range(5)
OWN, LENT, OWNER = "own", "lent", "owner"
WHOLE: Amounts = (GPUS_A_NODE * MILLI, 0, 0)
# Slurm's moments are unix seconds, and 0 is none.
EPOCH_S = 1e9


class Listing(Protocol):
    """Who lists the lent partition besides his own."""

    def lists(self, number: int) -> bool:
        """Whether a job does."""

    def likes(self, number: int, node: int, now_s: float) -> bool:
        """Whether a job that does would start on a lent node that has room."""

    def look(self, queue: LendingQueue) -> None:
        """Look at the queue, each PERIOD_S."""


class Running(msgspec.Struct, gc=False):
    """A job that runs: on which node, since when, and until when it would (seconds)."""

    node: int
    start_s: float
    end_s: float
    ends_by_limit_s: float


class Became(msgspec.Struct):
    """What became of a job: when it ended, how often it was interrupted, and how long it ran in vain (seconds)."""

    end_s: float = math.nan
    start_s: float = math.nan
    lent: bool = False
    interrupted: int = 0
    lost_s: float = 0.0


class LendingQueue:
    """The loop. Lent nodes are numbered behind the own ones; a run takes `slower` times as long there."""

    def __init__(
        self, load: LendingLoad, listing: Listing, strength: float = STRENGTH, slower: float = 1.0
    ) -> None:
        self.jobs, self.listing, self.own, self.owners = load.jobs, listing, load.own_nodes, load.owners
        nodes = load.own_nodes + len(load.owners)
        self.free = [GPUS_A_NODE] * nodes
        self.had = [False] * nodes
        self.on: list[dict[int, Running]] = [{} for _ in range(nodes)]
        # (its place, its number), in this order; and since when it waits (seconds).
        self.waiting: list[tuple[float, int]] = []
        self.since_s = [job.submit_s for job in load.jobs]
        self.strength, self.slower = strength, slower
        self.became = [Became() for _ in load.jobs]
        self.now_s = 0.0
        self.owners_changed = True
        # Owners who came while jobs did, and who of them met one.
        self.came = self.met = 0
        self.events = [(job.submit_s, SUBMIT, number) for number, job in enumerate(load.jobs)]
        for at, spans in enumerate(load.owners, load.own_nodes):
            for from_s, to_s in spans:
                if to_s > 0:
                    self.events += [(max(0.0, from_s), COMES, at), (to_s, GOES, at)]
        self.events.append((0.0, CYCLE, 0))
        heapq.heapify(self.events)
        self.left = len(load.jobs)
        self.last_s = load.jobs[-1].submit_s if load.jobs else 0.0

    def run(self) -> None:
        """Run until all jobs have ended."""
        while self.left:
            self.now_s = self.events[0][0]
            while self.events and self.events[0][0] == self.now_s:
                _, kind, number = heapq.heappop(self.events)
                self._happens(kind, number)
            self._schedule()

    def _happens(self, kind: int, number: int) -> None:
        if kind == SUBMIT:
            self.since_s[number] = self.now_s
            insort(self.waiting, (self.now_s + self.strength * self.jobs[number].expected_s, number))
        elif kind == END:
            self._end(number)
        elif kind == CYCLE:
            self.listing.look(self)
            heapq.heappush(self.events, (self.now_s + PERIOD_S, CYCLE, 0))
        else:
            self.owners_changed = True
            self.had[number] = kind == COMES
            if kind == COMES:
                self._interrupt(number)

    def _end(self, number: int) -> None:
        for node, there in enumerate(self.on):
            if number in there and there[number].end_s == self.now_s:
                ended = there.pop(number)
                self.free[node] += self.jobs[number].gpus
                one = self.became[number]
                one.end_s, one.start_s, one.lent = self.now_s, ended.start_s, node >= self.own
                self.left -= 1

    def _interrupt(self, node: int) -> None:
        counts = self.now_s <= self.last_s
        self.came += counts
        self.met += counts and bool(self.on[node])
        for number, ended in self.on[node].items():
            one = self.became[number]
            one.interrupted += 1
            one.lost_s += self.now_s - ended.start_s
            heapq.heappush(self.events, (self.now_s + AGAIN_S, SUBMIT, number))
        self.on[node].clear()
        self.free[node] = GPUS_A_NODE

    def has_room(self) -> bool:
        """Whether a lent node that its owner has left has any room."""
        return any(free and not had for free, had in self._lent())

    def _lent(self) -> zip[tuple[int, bool]]:
        return zip(self.free[self.own :], self.had[self.own :], strict=True)

    def _schedule(self) -> None:
        """Start who can."""
        left, shadow = [], None
        room = self.has_room()
        for at, one in enumerate(self.waiting):
            number, job = one[1], self.jobs[one[1]]
            node = self._own_node(job, shadow)
            if node is None and room and self.listing.lists(number):
                node = self._lent_node(number, job)
            if node is None:
                left.append(one)
                if shadow is None:
                    shadow = self._shadow(job)
                if not room and not any(self.free[: self.own]):
                    left += self.waiting[at + 1 :]
                    break
                continue
            self._start(number, job, node)
            if node >= self.own:
                room = self.has_room()
        self.waiting = left

    def _own_node(self, job: Asked, shadow: list[float] | None) -> int | None:
        """Return the fullest own node that a job may have: it does not delay whom the shadow is of."""
        fit = sorted((free, node) for node, free in enumerate(self.free[: self.own]) if free >= job.gpus)
        for _, node in fit:
            if shadow is None or node != shadow[1] or self.now_s + job.limit_s <= shadow[0]:
                return node
            if shadow[2] >= job.gpus:
                shadow[2] -= job.gpus
                return node
        return None

    def _lent_node(self, number: int, job: Asked) -> int | None:
        fit = (
            (self.free[node], node)
            for node in range(self.own, len(self.free))
            if self.free[node] >= job.gpus
            and not self.had[node]
            and self.listing.likes(number, node, self.now_s)
        )
        return min(fit, default=(0, None))[1]

    def _shadow(self, job: Asked) -> list[float]:
        """Return when the first of the queue starts at the latest, on which node, and what is left there then."""
        found = []
        for node in range(self.own):
            free = self.free[node]
            for ends_s, gpus in sorted(
                (run.ends_by_limit_s, self.jobs[of].gpus) for of, run in self.on[node].items()
            ):
                free += gpus
                if free >= job.gpus:
                    found.append([ends_s, node, free - job.gpus])
                    break
        return min(found)

    def _start(self, number: int, job: Asked, node: int) -> None:
        self.free[node] -= job.gpus
        end_s = self.now_s + job.run_s * (self.slower if node >= self.own else 1.0)
        self.on[node][number] = Running(node, self.now_s, end_s, self.now_s + job.limit_s)
        heapq.heappush(self.events, (end_s, END, number))


class Nobody:
    """Nobody lists it."""

    def lists(self, number: int) -> bool:  # noqa: ARG002
        """Whether a job does: no."""
        return False

    def likes(self, number: int, node: int, now_s: float) -> bool:  # noqa: ARG002
        """Whether it would start there: as Slurm, wherever there is room."""
        return True

    def look(self, queue: LendingQueue) -> None:
        """Change nothing."""


class Everybody(Nobody):
    """Everybody lists it."""

    def lists(self, number: int) -> bool:  # noqa: ARG002
        """Whether a job does: yes."""
        return True


class Oracle(Everybody):
    """Everybody lists it, and starts where he will be done before the owner is back."""

    def __init__(self, load: LendingLoad) -> None:
        self._jobs, self._own = load.jobs, load.own_nodes
        self._comes_s = [[from_s for from_s, _ in spans] for spans in load.owners]

    def likes(self, number: int, node: int, now_s: float) -> bool:
        """Whether a job will be done there."""
        comes_s = self._comes_s[node - self._own]
        at = bisect_left(comes_s, now_s)
        return at == len(comes_s) or now_s + self._jobs[number].run_s <= comes_s[at]


class ByForecast(Nobody):
    """Production's rule: who is let in, cycle by cycle."""

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
        """Let in, and take out, as the advisor would."""
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
                account=0,
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
        """Return when jobs would start on the nodes of their own, as a pool, in the order of the queue."""
        return Plan(order="", why="", gain=0.0, tried=(), jobs=tuple(planned(queue)))


def planned(queue: LendingQueue) -> list[PlannedJob]:
    """Return when jobs are expected to start on own nodes: never, where that is beyond a plan's horizon.

    Who runs longer than expected has as long again to go.
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
