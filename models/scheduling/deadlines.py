"""Which waiting job starts on which device so that many meet their deadline, using idle machines of others, too.

Pure. Devices are pools of like nodes; the nodes of a lent pool were left by their owners for a while. At a moment:

1. Jobs that can be in time are planned, earliest deadline first: on a lent node that is free now, if the job ends
   there in time with a margin, and before the owner is likely back; else on the slowest device on which it is in
   time. So fast devices stay free for jobs that need them. On its fastest device a job needs no margin.
2. A job that finds no place may take that of a planned one that would use more: of jobs that cannot all be in time,
   few large ones wait rather than many small ones (Moore, Management Science 1968).
3. A job that is expected to end too late, but not by more than the margin, is planned on what is left: it may run
   shorter than expected.
4. All other jobs come last: those that are late anyhow, that found no place, or that are too large for what comes
   (pressure.py). They start on lent nodes, and together hold no more of any other pool than a share, so that few
   jobs wait for their ends; a job larger than that share may start if no other such job runs there.
5. Jobs whose planned moment is now start, on a node that holds them.

In a plan, what a pool has is a single number, the share of its scarcest resource; the room itself tells whether some
node really holds a job. A job that is due and finds no node, as what is free lies in pieces, keeps its part of the
plan.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
import numpy

from accounting.errors import ModelError
from models.scheduling.lanes import UNITS, Lanes, Pool, units_of
from models.scheduling.placement import Place
from models.scheduling.room import Amounts, Parts, Room


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How careful the plan is.

    `margin` is by how much a run may take longer, or less, than expected (0.5: half as long again). `risk` is the
    share of runs on lent nodes that an owner may end. `spare_share` is how much of a pool the jobs that come last may
    hold together, `calm_share` the same while all that comes can be done. `promised_share` is how much of all nodes
    that are not lent is promised to what comes, smallest first (pressure.py).
    """

    margin: float = 0.5
    risk: float = 0.2
    spare_share: float = 0.1
    calm_share: float = 0.25
    promised_share: float = 0.4

    def __post_init__(self) -> None:
        """Refuse values that make no sense."""
        if not (
            0 <= self.margin < math.inf
            and 0 < self.risk < 1
            and 0 <= self.spare_share <= 1
            and 0 <= self.calm_share <= 1
            and 0 < self.promised_share < math.inf
        ):
            raise ModelError(
                f"{self} are no terms; give a margin of 0 or more, a risk between 0 and 1, shares of 0 to 1 "
                "and a promised_share above 0"
            )


class Job(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A waiting job: its deadline, and how long it is expected to run in each pool (seconds).

    An infinite time says that it never fits there. `usable` returns what of a room the job may use now, None: all. A
    `large` job is promised nothing; it gets what others do not need.
    """

    number: int
    deadline_s: float
    demand: Amounts
    run_s: tuple[float, ...]
    usable: Callable[[Room], Room] | None = None
    large: bool = False


class Looked(NamedTuple):
    """A device that was considered for a job: when the job would end there (seconds), and a word on that."""

    pool: int
    end_s: float
    word: str


class Decision(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What becomes of a waiting job now: it starts in a pool on these parts, or waits; and what was considered."""

    number: int
    pool: int
    parts: Parts | None
    spare: bool
    looked: tuple[Looked, ...]


# The words on a device.
IN_TIME, LUCKY, CLOSE, TOO_LATE = (
    "in time",
    "in time with luck",
    "in time, but closer than the margin",
    "too late",
)
OWNER, TAKEN, GIVEN_UP = (
    "its owner is likely back before",
    "no place on lent nodes now",
    "given to smaller jobs",
)
SMALLER, SPARE, SHARE_HELD = (
    "in time, in the place of a larger one",
    "late anyhow",
    "late ones hold their share",
)


class _Planned(NamedTuple):
    """A job's place in the plan of a pool."""

    area: float
    number: int
    job: Job
    pool: int
    units: int
    start_s: float


def decide(
    now_s: float, room: Room, jobs: Sequence[Job], pools: Sequence[Pool], place: Place, terms: Terms
) -> list[Decision]:
    """Return what becomes of each waiting job at a moment, those that start first; the room is not changed."""
    return _Round(now_s, room.copy(), pools, place, terms).decide(jobs)


class _Round:
    """One moment's plan."""

    def __init__(self, now_s: float, room: Room, pools: Sequence[Pool], place: Place, terms: Terms) -> None:
        self.now_s, self.room, self.pools, self.place, self.terms = now_s, room, pools, place, terms
        self.own = tuple(at for at, pool in enumerate(pools) if not pool.left_s)
        self.lent = tuple(at for at, pool in enumerate(pools) if pool.left_s)
        self.lanes = {at: Lanes(pools[at], now_s, room.free) for at in self.own}
        # The factor of a run that takes as much less than expected as the margin allows for.
        self.hope = 1 / (1 + terms.margin)
        self.planned: list[_Planned] = []
        self.looked: dict[int, list[Looked]] = {}
        self.found: list[Decision] = []
        # The shortest run for which no lent node of a pool could take a demand.
        self.refused_s: dict[tuple[int, Amounts], float] = {}

    def decide(self, jobs: Sequence[Job]) -> list[Decision]:
        """Plan jobs that can be in time, then those that may be with luck; then start those that come last."""
        last: list[Job] = []
        late: list[Job] = []
        lucky: list[Job] = []
        for job in sorted(jobs, key=lambda job: (job.deadline_s, job.number)):
            self.looked[job.number] = []
            if self.now_s + min(job.run_s) > job.deadline_s:
                hopes = self.now_s + min(job.run_s) * self.hope <= job.deadline_s
                (lucky if hopes else late).append(job)
            elif not self._lent(job) and (job.large or not (self._plan(job) or self._replace(job))):
                last.append(job)
        last += [job for job in lucky if job.large or not self._plan(job, self.hope)]
        for one in self.planned:
            due = one.start_s <= self.now_s
            self._decided(one.job, one.pool, self._placed(one.job, one.pool) if due else None)
        for job in last + sorted(late, key=lambda job: job.number):
            if not (self._lent(job, spare=True) or self._spare(job)):
                self._decided(job, -1, None, spare=True)
        return sorted(self.found, key=lambda one: one.parts is None)

    def _by_speed(self, job: Job, *, lent: bool) -> tuple[int, ...]:
        return _slowest_first(job.run_s, self.lent if lent else self.own)

    def _lent(self, job: Job, *, spare: bool = False) -> bool:
        """Start a job on a lent node if it ends there in time, and before the owner is likely back."""
        # A job that fits nowhere else has no choice.
        alone = not self._by_speed(job, lent=False)
        for at in self._by_speed(job, lent=True):
            needs_s = job.run_s[at] * (1 + self.terms.margin)
            if not spare and self.now_s + needs_s > job.deadline_s:
                self._look(job, at, needs_s, TOO_LATE)
                continue
            pool = self.pools[at]
            if needs_s >= self.refused_s.get((at, job.demand), math.inf):
                self._look(job, at, needs_s, TAKEN)
                continue
            stays = zip(pool.nodes, pool.left_s, strict=True)
            nodes = [node for node, left_s in stays if alone or left_s >= needs_s]
            parts = self._placed(job, at, nodes) if nodes else None
            self._look(
                job, at, needs_s, (SPARE if spare else IN_TIME) if parts else TAKEN if nodes else OWNER
            )
            if parts is not None:
                self._decided(job, at, parts, spare=spare)
                return True
            if job.usable is None:
                self.refused_s[at, job.demand] = needs_s
        return False

    def _plan(self, job: Job, hope: float = 1.0) -> bool:
        """Give a job a place in the plan of the slowest pool on which it is in time."""
        pools = self._by_speed(job, lent=False)
        for at in pools:
            units = units_of(job.demand, self.pools[at].capacity)
            run_s = job.run_s[at]
            start_s = self.lanes[at].start_s(units, run_s)
            # By the single number, the pool never has enough left; a node may have room all the same.
            apart = start_s == math.inf
            start_s = self.now_s if apart else start_s
            careful_s = run_s * hope if at == pools[-1] else run_s * (1 + self.terms.margin)
            word = _word(job.deadline_s, start_s + run_s, start_s + careful_s, lucky=hope < 1)
            self._look(job, at, start_s + run_s - self.now_s, word)
            if word not in {IN_TIME, LUCKY} or (start_s <= self.now_s and not self._open(job, at)):
                continue
            if not apart:
                self.lanes[at].take(units, run_s)
            self.planned.append(_Planned(units * run_s, job.number, job, at, units, start_s))
            return True
        return False

    def _replace(self, job: Job) -> bool:
        """Give a job the place of the planned job that uses most, if it uses less and is in time there."""
        best = -1
        for index, one in enumerate(self.planned):
            run_s = job.run_s[one.pool]
            units = units_of(job.demand, self.pools[one.pool].capacity)
            if (
                units <= one.units
                and units * run_s < one.area
                and one.start_s + run_s <= job.deadline_s
                and (best < 0 or one.area > self.planned[best].area)
            ):
                best = index
        if best < 0:
            return False
        one = self.planned[best]
        run_s, units = job.run_s[one.pool], units_of(job.demand, self.pools[one.pool].capacity)
        self._look(one.job, one.pool, one.start_s + one.job.run_s[one.pool] - self.now_s, GIVEN_UP)
        self._decided(one.job, -1, None)
        self._look(job, one.pool, one.start_s + run_s - self.now_s, SMALLER)
        self.planned[best] = _Planned(units * run_s, job.number, job, one.pool, units, one.start_s)
        self.lanes[one.pool].shorten(one.start_s, one.job.run_s[one.pool], one.units, run_s)
        return True

    def _spare(self, job: Job) -> bool:
        """Start a job that comes last on what the plan does not need now, within the share of such jobs."""
        pools = self._by_speed(job, lent=False)
        for at in pools:
            lanes, units = self.lanes[at], units_of(job.demand, self.pools[at].capacity)
            if lanes.spare_units and lanes.spare_units + units > self.terms.spare_share * UNITS:
                self._look(job, at, job.run_s[at], SHARE_HELD)
                continue
            if (
                lanes.start_s(units, job.run_s[at]) <= self.now_s
                and (parts := self._placed(job, at)) is not None
            ):
                lanes.take(units, job.run_s[at])
                lanes.spare_units += units
                self._look(job, at, job.run_s[at], SPARE)
                self._decided(job, at, parts, spare=True)
                return True
        return False

    def _room_for(self, job: Job, nodes: Sequence[int]) -> Room:
        return _of(self.room if job.usable is None else job.usable(self.room), nodes)

    def _open(self, job: Job, at: int) -> bool:
        """Whether windows let a job start in a pool now; also True if it would not fit there without windows."""
        nodes = self.pools[at].nodes
        if job.usable is None or self.place(self._room_for(job, nodes), job.demand) is not None:
            return True
        return self.place(_of(self.room, nodes), job.demand) is None

    def _placed(self, job: Job, at: int, nodes: Sequence[int] | None = None) -> Parts | None:
        """Take a job's parts out of the room; None: no node of the pool holds it."""
        parts = self.place(self._room_for(job, self.pools[at].nodes if nodes is None else nodes), job.demand)
        if parts is not None:
            self.room.take(parts)
        return parts

    def _look(self, job: Job, at: int, after_s: float, word: str) -> None:
        self.looked[job.number].append(Looked(at, self.now_s + after_s, word))

    def _decided(self, job: Job, at: int, parts: Parts | None, *, spare: bool = False) -> None:
        looked = tuple(self.looked[job.number])
        self.found.append(Decision(number=job.number, pool=at, parts=parts, spare=spare, looked=looked))


@functools.lru_cache(maxsize=65_536)  # a job that waits is asked about at every event
def _slowest_first(run_s: tuple[float, ...], pools: tuple[int, ...]) -> tuple[int, ...]:
    """Return those of the pools that can hold a job at all, the slowest for it first."""
    return tuple(sorted((at for at in pools if run_s[at] < math.inf), key=lambda at: -run_s[at]))


def _of(room: Room, nodes: Sequence[int]) -> Room:
    """Return what of a room is on some nodes."""
    free = numpy.zeros_like(room.free)
    free[:, nodes] = room.free[:, nodes]
    return Room(free, room.total)


def _word(deadline_s: float, end_s: float, careful_s: float, *, lucky: bool) -> str:
    """Return the word on an end, as expected and as computed with care."""
    if careful_s <= deadline_s:
        return LUCKY if lucky and end_s > deadline_s else IN_TIME
    return CLOSE if end_s <= deadline_s else TOO_LATE


def told(decision: Decision, pools: Sequence[Pool], job: Job, now_s: float) -> str:
    """Return a decision in words: what was considered, when the job would end there, and why."""
    fastest_s = min(job.run_s)
    slack_s = job.deadline_s - now_s - fastest_s
    if fastest_s == math.inf:
        due = "fits on no device by itself"
    elif slack_s == math.inf:
        due = "has no deadline"
    else:
        due = (
            f"can be in time nowhere, by {-slack_s:.0f} s" if slack_s < 0 else f"has {slack_s:.0f} s to spare"
        )
    seen = "; ".join(
        f"{pools[one.pool].name}: {one.word}"
        + (f", ends in {one.end_s - now_s:.0f} s" if one.end_s < math.inf else "")
        for one in decision.looked
    )
    what = f"starts on {pools[decision.pool].name}" if decision.parts else "waits"
    return f"{what}: it {due}" + (f" ({seen})" if seen else "")
