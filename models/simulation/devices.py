"""How fast each job runs on each node, by the profile of its kind; and what a round by deadlines asks. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy

from accounting.errors import ModelError
from models.scheduling.deadlines import Decision, Job, Terms
from models.scheduling.lanes import UNITS, Pool, units_of
from models.scheduling.ordering import Waiting
from models.scheduling.placement import Place
from models.scheduling.pressure import Pressure
from models.scheduling.room import Amounts, Parts, Room, amounts_of
from models.simulation.lending import Lending
from models.simulation.nodes import Cluster
from models.simulation.workload import Workload

# Ten years: the run time of a job that has no limit and is expected to run without end.
LONGEST_S = 10 * 365 * 86_400.0
# The speeds of one kind of jobs, by name of device.
Profile = Mapping[str, float]


def paces_of(jobs: Workload, cluster: Cluster, profiles: Sequence[Profile]) -> list[list[float]]:
    """Return the speed of each kind of jobs on each node; a single row if kinds have no profiles."""
    if not profiles:
        return [list(cluster.speeds)]
    if len(jobs) and not 0 <= int(jobs.kind.min()) <= int(jobs.kind.max()) < len(profiles):
        raise ModelError(
            f"there are {len(profiles)} profiles, and kinds up to {int(jobs.kind.max())}; give each one"
        )
    for number, profile in enumerate(profiles):
        for device in cluster.devices:
            if device and not 0 < profile.get(device, math.nan) < math.inf:
                raise ModelError(
                    f"kind {number} has no speed above 0 for the device {device}; give it one in `speeds`"
                )
    return [
        [
            speed * (profile[device] if device else 1.0)
            for speed, device in zip(cluster.speeds, cluster.devices, strict=True)
        ]
        for profile in profiles
    ]


class Devices:
    """The nodes of a cluster as pools of like nodes, and how long jobs would run in each."""

    def __init__(
        self,
        jobs: Workload,
        cluster: Cluster,
        paces: list[list[float]],
        lending: Lending | None,
        terms: Terms,
        explained: int = -1,
    ) -> None:
        self.paces, self.lending, self.terms, self.explained = paces, lending, terms, explained
        self.kinds = jobs.kind.tolist() if len(paces) > 1 else [0] * len(jobs)
        self._capacity, self._total = cluster.capacity, cluster.total
        self.pools = _pools(cluster, paces)
        self.pool_of = {node: at for at, pool in enumerate(self.pools) for node in pool.nodes}
        self.pressure = Pressure(terms.promised_share)
        # Jobs that run on what no other job needs.
        self.spare: set[int] = set()
        # The last decision on the job that is to be explained, in words.
        self.why = ""
        self._seen = -1
        own = [node for node in range(cluster.own) if node not in cluster.owners]
        self._unlent = amounts_of(cluster.capacity[:, own].sum(axis=1))
        self._holds: dict[Amounts, tuple[bool, ...]] = {}
        # A waiting job is asked about at every event.
        self._run_s: dict[int, tuple[Waiting, tuple[float, ...]]] = {}

    def speed(self, number: int, parts: Parts) -> float:
        """Return how fast a job runs on its nodes: at the speed of the slowest."""
        pace = self.paces[self.kinds[number]]
        return min(pace[node] for node, _ in parts)

    def holds(self, demand: Amounts, place: Place) -> tuple[bool, ...]:
        """Return which pools hold a job when they are empty."""
        if demand not in self._holds:
            self._holds[demand] = tuple(place(self._empty(pool), demand) is not None for pool in self.pools)
        return self._holds[demand]

    def run_s(self, number: int, job: Waiting, place: Place) -> tuple[float, ...]:
        """Return how long a job is expected to run in each pool; infinite: it does not fit there, or into its limit.

        A pool on which it would be ended at its limit is left out only if it would end in time on a faster one.
        """
        known = self._run_s.get(number)
        if known is None or known[0] is not job:
            known = self._run_s[number] = job, self._expected_s(number, job, place)
        return known[1]

    def _expected_s(self, number: int, job: Waiting, place: Place) -> tuple[float, ...]:
        pace = self.paces[self.kinds[number]]
        expected_s = min(job.predicted_s, LONGEST_S)
        found = [
            expected_s / pace[pool.nodes[0]] if holds else math.inf
            for pool, holds in zip(self.pools, self.holds(job.demand, place), strict=True)
        ]
        if min(found) <= job.limit_s:
            return tuple(run_s if run_s <= job.limit_s else math.inf for run_s in found)
        return tuple(found)

    def came(self, job: Job, now_s: float) -> float:
        """Learn of a job, and return how long it would keep all nodes that are not lent busy (seconds).

        A job without a deadline counts 0: it comes after those that have one, and so is never in their way.
        """
        if job.deadline_s == math.inf:
            return 0.0
        fastest_s = min(
            (run_s for run_s, pool in zip(job.run_s, self.pools, strict=True) if not pool.left_s), default=0.0
        )
        work_s = units_of(job.demand, self._unlent) / UNITS * min(fastest_s, LONGEST_S)
        # Jobs are numbered in the order in which they come; one that comes back is not new.
        if job.number > self._seen:
            self._seen = job.number
            self.pressure.came(now_s, work_s)
        return work_s

    def spare_share(self, most_s: float) -> float:
        """Return how much of a pool jobs that come last may hold, if jobs below `most_s` are promised their deadline.

        `spare_share` under pressure, else `calm_share` if a job with a deadline came lately, else 1.
        """
        if most_s < math.inf:
            return self.terms.spare_share
        return self.terms.calm_share if self.pressure.came_lately else 1.0

    def started(self, decision: Decision) -> None:
        """Note whether a job that starts holds what no other job needs."""
        (self.spare.add if decision.spare else self.spare.discard)(decision.number)

    def left_s(self, pool: Pool, now_s: float) -> tuple[float, ...]:
        """Return how long the owner of each of a pool's nodes likely leaves it alone; empty: they have no owners."""
        if self.lending is None or not pool.left_s:
            return ()
        return tuple(self.lending.left_s(node, now_s, self.terms.risk) for node in pool.nodes)

    def _empty(self, pool: Pool) -> Room:
        free = numpy.zeros_like(self._capacity)
        free[:, pool.nodes] = self._capacity[:, pool.nodes]
        return Room(free, self._total)


def _pools(cluster: Cluster, paces: list[list[float]]) -> tuple[Pool, ...]:
    """Return the nodes that are alike for all kinds of jobs, lent ones apart, in the order of their first nodes."""
    nodes: dict[tuple[str, bool, bool, tuple[float, ...]], list[int]] = {}
    for node in range(len(cluster.speeds)):
        device = cluster.devices[node] if cluster.devices else ""
        reserved = node >= cluster.own
        key = (device, reserved, node in cluster.owners, tuple(pace[node] for pace in paces))
        nodes.setdefault(key, []).append(node)
    return tuple(
        Pool(
            name=("lent " if lent else "") + (device or f"nodes of speed {speeds[0]:g}"),
            nodes=tuple(members),
            capacity=amounts_of(cluster.capacity[:, members].sum(axis=1)),
            left_s=(0.0,) * len(members) if lent else (),
        )
        for (device, _, lent, speeds), members in nodes.items()
    )
