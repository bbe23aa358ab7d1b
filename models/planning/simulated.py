"""The planner as a simulation's advice: from the simulation's state to a problem, from a plan to keys. Pure state.

It keeps what the advisor keeps from cycle to cycle: the factors in force, and the shadow, so that delays do not add
up. Slurm's own priority is age alone, a point a second, so a factor is seconds of age. Of a job it sees what it asks
for; how long it runs, it learns when the job has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from models.planning.arrivals import drawn_arrivals
from models.planning.planning import plan
from models.planning.problem import SHORTEST_S, Bounds, Coming, Holding, Machine, Pending, Plan, Problem
from models.planning.shadow import Phase, Seen, Shadow, Site, begun_anew
from models.planning.shadow_rolling import Shadows, measured, passed_on
from models.scheduling.placement import fewest_nodes
from models.scheduling.room import Amounts, Room, amounts_of
from models.simulation.hooks import Moving
from models.simulation.nodes import Cluster
from models.simulation.workload import Workload

# Above any age in points: Slurm's priorities are positive.
TOP_PRIORITY = 1 << 30
# Below that of any job that waits: what comes later is younger.
LATEST_PRIORITY = 0
POOL = frozenset({0})


class Asked(msgspec.Struct, frozen=True, gc=False):
    """What is known of a job before it runs: whose it is, its demand, on how many nodes, and for how long."""

    number: int
    user: int
    demand: Amounts
    nodes: int
    limit_s: float


class Expectation(Protocol):
    """How long jobs run, learned from those that ended."""

    def run_s(self, job: Asked) -> tuple[float, float]:
        """Return the likely run time of a job, and one that few exceed (seconds)."""

    def left_s(self, job: Asked, ran_s: float) -> float:
        """Return how much longer a job that has run for `ran_s` is likely to run (seconds)."""

    def ended(self, job: Asked, run_s: float, end_s: float) -> None:
        """Learn from a job that ended, and when."""


class PlannedAdvice:
    """Plans whenever a simulation asks, from what it has learned. `planned` is called with every plan.

    Arrivals are forecast for `forecast_s` seconds, 0: none.
    """

    def __init__(
        self,
        jobs: Sequence[Asked],
        cluster: Cluster,
        bounds: Bounds,
        expectation: Expectation,
        *,
        forecast_s: float = 0.0,
        period_s: float = 60.0,
        seed: int = 1,
        planned: Callable[[float, Plan], None] = lambda _now_s, _plan: None,
    ) -> None:
        self._jobs = jobs
        self._bounds = bounds
        self._expectation = expectation
        self._forecast_s = forecast_s
        self._period_s = period_s
        self._seed = seed
        self._planned = planned
        own = range(cluster.own)
        self._site = Site(
            machines=tuple(
                Machine(amounts=amounts_of(cluster.capacity[:, node]), pools=POOL) for node in own
            ),
            nodes=tuple(str(node) for node in own),
        )
        self._came_s: dict[int, float] = {}
        # What came so far, in order of arrival, and when; with the run time that was expected then.
        self._arrivals: list[Coming] = []
        self._arrived_s: list[float] = []
        self._factors: dict[int, int] = {}
        self._shadow: Shadow | None = None
        # What ended since the last plan, with its run time (seconds).
        self._ended: list[tuple[int, float]] = []

    @property
    def period_s(self) -> float:
        """Return the time between two plans (seconds)."""
        return self._period_s

    def came(self, number: int, now_s: float) -> None:
        """Note when a job came; one that comes back keeps its age: here a requeued job does not lose its place."""
        if number in self._came_s:
            return
        self._came_s[number] = now_s
        job = self._jobs[number]
        likely_s, _ = self._expectation.run_s(job)
        self._arrived_s.append(now_s)
        self._arrivals.append(
            Coming(
                at_s=now_s,
                pools=POOL,
                priority=LATEST_PRIORITY,
                demand=job.demand,
                limit_s=job.limit_s,
                likely_s=likely_s,
            )
        )

    def ended(self, number: int, now_s: float, start_s: float) -> None:
        """Learn how long a job ran."""
        self._expectation.ended(self._jobs[number], now_s - start_s, now_s)
        self._ended.append((number, now_s - start_s))

    def keys(self, now_s: float, waiting: Mapping[int, float], running: list[Moving]) -> Mapping[int, float]:
        """Return the keys that a plan's factors make."""
        for number in [number for number in self._factors if number not in waiting]:
            del self._factors[number]
        found = plan(self.problem(now_s, waiting, running), self._bounds, self._seed)
        self._planned(now_s, found)
        for job in found.jobs:
            self._factors[job.job_id] = job.after
        return {
            number: float(TOP_PRIORITY - self._priority(number) - self._factors.get(number, 0))
            for number in waiting
        }

    def problem(self, now_s: float, waiting: Mapping[int, float], running: list[Moving]) -> Problem:
        """Return what is known at a moment."""
        bounds = self._bounds
        coming = (
            drawn_arrivals(
                self._arrived_s,
                lambda first, last: self._arrivals[first:last],
                now_s,
                self._forecast_s,
                bounds.samples,
                self._seed,
            )
            if self._forecast_s
            else ()
        )
        holdings = tuple(self._holding(each, now_s) for each in running)
        shadows = self._shadowed(now_s, waiting, holdings)
        problem = Problem(
            machines=self._site.machines,
            pending=tuple(self._pending(number, now_s) for number in waiting),
            running=holdings,
            coming=coming,
        )
        return measured(problem, shadows, self._site, bounds.horizon_s, dict.fromkeys(waiting, 1))

    def _shadowed(self, now_s: float, waiting: Mapping[int, float], holdings: Sequence[Holding]) -> Shadows:
        """Pass the shadow on to a moment, and return what would be then."""
        likely_s = {number: self._expectation.run_s(self._jobs[number])[0] for number in waiting}
        seen = [self._seen(number, "waits", run_s, 0.0) for number, run_s in likely_s.items()]
        seen += [
            self._seen(held.job_id, "runs", held.ran_s + held.likely_left_s, held.ran_s) for held in holdings
        ]
        seen += [self._seen(number, "ended", run_s, run_s) for number, run_s in self._ended]
        self._ended.clear()
        if self._shadow is None:
            self._shadow = begun_anew(self._site, now_s, seen, holdings)
            return Shadows(self._shadow, self._shadow)
        shadows = passed_on(self._shadow, self._site, now_s, seen)
        self._shadow = shadows.certain
        return shadows

    def _seen(self, number: int, phase: Phase, run_s: float, ran_s: float) -> Seen:
        job = self._jobs[number]
        return Seen(
            job_id=number,
            phase=phase,
            came_s=self._came_s[number],
            pools=POOL,
            priority=self._priority(number),
            tier=1,
            demand=job.demand,
            nodes=job.nodes,
            limit_s=job.limit_s,
            run_s=run_s,
            ran_s=ran_s,
        )

    def _priority(self, number: int) -> int:
        """Return Slurm's own priority: the older, the higher, a point a second."""
        return TOP_PRIORITY - round(self._came_s[number])

    def _pending(self, number: int, now_s: float) -> Pending:
        job = self._jobs[number]
        likely_s, upper_s = self._expectation.run_s(job)
        return Pending(
            job_id=number,
            account=0,  # only fair share, which is not simulated, looks at it
            user=job.user,
            pools=POOL,
            priority=self._priority(number),
            factor=self._factors.get(number, 0),
            demand=job.demand,
            limit_s=job.limit_s,
            likely_s=likely_s,
            upper_s=upper_s,
            waited_s=now_s - self._came_s[number],
            nodes=job.nodes,
        )

    def _holding(self, each: Moving, now_s: float) -> Holding:
        job = self._jobs[each.number]
        ran_s = now_s - each.start_s
        left_s = max(SHORTEST_S, job.limit_s - ran_s)
        likely_s = self._expectation.left_s(job, ran_s)
        return Holding(
            job_id=each.number,
            user=job.user,
            parts=each.parts,
            ran_s=ran_s,
            limit_left_s=left_s,
            likely_left_s=min(left_s, max(SHORTEST_S, likely_s)),
        )


def asked_of(jobs: Workload, cluster: Cluster) -> list[Asked]:
    """Return what each job of a load asks for; one that no single node holds takes as few nodes as would hold it."""
    nodes = fewest_nodes(Room.of(cluster.capacity[:, : cluster.own]), jobs.asked.T)
    demands = [amounts_of(row) for row in jobs.asked]
    return [
        Asked(
            number=number,
            user=user,
            demand=demand,
            nodes=int(nodes[number]),
            limit_s=limit_s,
        )
        for number, (demand, user, limit_s) in enumerate(
            zip(demands, jobs.user.tolist(), jobs.limit_s.tolist(), strict=True)
        )
    ]
