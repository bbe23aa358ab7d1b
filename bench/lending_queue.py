"""A queue over days on own nodes and lent ones, event by event; only jobs that list the lent partition may start there.

Slurm as far as it matters here: jobs start in the advisor's order, and a job that passes others must not delay the
first one (EASY, by limits). A job that lists both partitions starts on its own nodes if it can, else on the fullest
lent node with room. A job on a node whose owner comes is preempted, and requeued with a new age after AGAIN_S. A
Listing decides which jobs list both, and when (lending_arms.py).
"""

from __future__ import annotations

import heapq
import math
from bisect import insort
from typing import Protocol

import msgspec

from bench.edge_loads import GPUS_A_NODE
from bench.lending_loads import Asked, LendingLoad
from models.planning.orders import STRENGTH
from models.scheduling.room import MILLI, Amounts
from slurm_plugin.config.settings import Advisor
from slurm_plugin.slurm.snapshot import AGAIN_S

PERIOD_S = float(Advisor().period_s)
# The order of events at one moment; an owner goes before one comes.
END, GOES, COMES, SUBMIT, CYCLE = range(5)
OWN, LENT, OWNER = "own", "lent", "owner"
WHOLE: Amounts = (GPUS_A_NODE * MILLI, 0, 0)


class Listing(Protocol):
    """Which jobs list the lent partition in addition to their own."""

    def lists(self, number: int) -> bool:
        """Whether a job lists it."""

    def likes(self, number: int, node: int, now_s: float) -> bool:
        """Whether a job that lists it would start on a lent node with room."""

    def look(self, queue: LendingQueue) -> None:
        """Look at the queue, every PERIOD_S."""


class Running(msgspec.Struct, gc=False):
    """A running job: its start, and its expected and latest end (seconds)."""

    start_s: float
    end_s: float
    ends_by_limit_s: float


class Became(msgspec.Struct):
    """The result of a job: when it ended, how often it was interrupted, and how long it ran in vain (seconds)."""

    end_s: float = math.nan
    start_s: float = math.nan
    lent: bool = False
    interrupted: int = 0
    lost_s: float = 0.0


class LendingQueue:
    """The event loop. Lent nodes are numbered after the own ones; a run takes `slower` times as long there."""

    def __init__(
        self, load: LendingLoad, listing: Listing, strength: float = STRENGTH, slower: float = 1.0
    ) -> None:
        self.jobs, self.listing, self.own, self.owners = load.jobs, listing, load.own_nodes, load.owners
        nodes = load.own_nodes + len(load.owners)
        self.free = [GPUS_A_NODE] * nodes
        self.had = [False] * nodes
        self.on: list[dict[int, Running]] = [{} for _ in range(nodes)]
        # (place, number), in this order; below, since when each job waits (seconds).
        self.waiting: list[tuple[float, int]] = []
        self.since_s = [job.submit_s for job in load.jobs]
        self.strength, self.slower = strength, slower
        self.became = [Became() for _ in load.jobs]
        self.now_s = 0.0
        self.owners_changed = True
        # How many owners came while jobs were still arriving, and how many of them met a job.
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
        """Whether any lent node without its owner has room."""
        return any(free and not had for free, had in self._lent())

    def _lent(self) -> zip[tuple[int, bool]]:
        return zip(self.free[self.own :], self.had[self.own :], strict=True)

    def _schedule(self) -> None:
        """Start the jobs that can start."""
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
        """Return the fullest own node on which a job may start without delaying the job of the shadow."""
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
        """Return the latest start of the queue's first job, the node for it, and what is then left on that node."""
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
        self.on[node][number] = Running(self.now_s, end_s, self.now_s + job.limit_s)
        heapq.heappush(self.events, (end_s, END, number))
