"""What a plan is made from, and the plan itself: the queue, what runs, the nodes, the site's bounds. Pure values.

Seconds count from the moment of the plan; amounts are in the units of scheduling.room.
"""

from __future__ import annotations

import math
from itertools import chain
from typing import Literal

import msgspec

from models.planning.ledger import CONTINUOUS, Clock, Dues, Elsewhere, Ledger, Limits
from models.scheduling.availability import Window
from models.scheduling.room import Amounts, Parts

# A run is taken to last at least this long.
SHORTEST_S = 1.0
Objective = Literal["slowdown", "wait", "utilisation", "deadlines", "energy"]


class Yields(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job that Slurm may preempt for any job of a tier above `above`, once it has run for `exempt_s`."""

    above: int
    exempt_s: float = 0.0


class Machine(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A node: what it has in all, and the pools (partitions, or parts of them) to which it belongs."""

    amounts: Amounts
    pools: frozenset[int]


class Pending(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A waiting record. `priority` is Slurm's, without `factor`, the SiteFactor in force.

    `demand` is that of one task of an array of `tasks`, over `nodes` nodes in equal parts. It may use machines of any
    of its `pools`. `likely_s` is the median of its expected run time, `upper_s` a bound that few runs exceed; without
    evidence both are its limit. `fair_share` is 0 to 1, more is better; None: it does not count. `kept` says why we
    may not change its place, '' if we may. A record that is `out` (held, dependent) cannot start now at all.
    `unmoved_start_s` is when it would start, or would have started (below 0), if nothing had ever been moved;
    infinite: not known. `deadline_s` is when it has to have ended, even if it runs to its limit. Slurm considers
    records of a higher `tier` (PriorityTier; with preempt/qos that of its QOS before it) first, whatever their
    priority. Once it runs it `yields` to others, None: to nobody. No record is put behind one of the same user that
    has a higher `nice`. Each of its tasks counts for limits by its `dues`.
    """

    job_id: int
    account: int
    user: int
    pools: frozenset[int]
    priority: int
    factor: int
    demand: Amounts
    limit_s: float
    likely_s: float
    upper_s: float
    waited_s: float
    tasks: int = 1
    nodes: int = 1
    fair_share: float | None = None
    kept: str = ""
    out: bool = False
    unmoved_start_s: float = math.inf
    deadline_s: float = math.inf
    tier: int = 1
    nice: int = 0
    yields: Yields | None = None
    dues: Dues = ()

    @property
    def start_by_s(self) -> float:
        """When Slurm gives it up because it could no longer end by its deadline (seconds from now; infinite: never)."""
        return math.inf if math.isinf(self.deadline_s) else self.deadline_s - self.limit_s


class Holding(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A running job: where, how long it has run, how much longer at most and likely, to whom it yields, its dues."""

    job_id: int
    user: int
    parts: Parts
    ran_s: float
    limit_left_s: float
    likely_left_s: float
    yields: Yields | None = None
    dues: Dues = ()


class Coming(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job that a forecast expects: when it comes, and with which priority; the rest is as in Pending."""

    at_s: float
    pools: frozenset[int]
    priority: int
    demand: Amounts
    limit_s: float
    likely_s: float
    tier: int = 1
    dues: Dues = ()


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What the site allows and wants.

    No job is to start more than `most_delay_s` later than without us; one that would have started without us comes
    first once it has waited nearly as long as the longest wait without us. A job that has waited `most_wait_s` comes
    before all that may be moved, in Slurm's own order. Of two jobs of different accounts whose fair-share factors
    differ by more than `most_inversion`, the better one is never put behind. No factor is beyond ±`most_factor`
    points, and no more than `most_changes` change at once. A plan is not worth it unless it is better by `least_gain`
    (a share of what an order can change of the objective); the standing order is kept until it costs as much
    (planning.py).
    """

    objective: Objective = "slowdown"
    most_delay_s: float = 3600.0
    most_wait_s: float = math.inf
    most_inversion: float = 0.1
    most_factor: int = 10_000
    most_changes: int = 1_000
    least_gain: float = 0.02
    horizon_s: float = 86_400.0
    samples: int = 3


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """All that a plan knows. `coming` has one list of arrivals for each sample of the forecast; empty: no forecast.

    `windows` are what machines lack for a time, for all jobs that no reservation names. `longest_wait_s` is the
    longest wait if nothing is moved; 0: not known. The last `bounds` amounts are no resources: each says how much of
    a machine the jobs under one bound may take together (models/scheduling/room.py). `limits` has how much may count
    for each limit, by name (ledger.py); what runs `elsewhere` counts, too, and is not in `running`. `clock` is when
    Slurm recounts limits that fall.
    """

    machines: tuple[Machine, ...]
    pending: tuple[Pending, ...]
    running: tuple[Holding, ...]
    coming: tuple[tuple[Coming, ...], ...] = ()
    windows: tuple[Window, ...] = ()
    longest_wait_s: float = 0.0
    bounds: int = 0
    limits: Limits = {}
    elsewhere: tuple[Elsewhere, ...] = ()
    clock: Clock = CONTINUOUS

    @property
    def ledger(self) -> Ledger:
        """How much of each limit is in use now."""
        running = ((one.dues, one.ran_s) for one in self.running)
        elsewhere = ((one.dues, one.ran_s) for one in self.elsewhere)
        return Ledger(self.limits, chain(running, elsewhere), self.clock)

    def shares(self) -> list[float]:
        """Return the largest share of any resource of all machines that one task of each pending record takes."""
        columns = list(zip(*(machine.amounts for machine in self.machines), strict=True))
        wholes = [max(1, sum(column)) for column in columns[: len(columns) - self.bounds]]
        return [max(a / w for a, w in zip(job.demand, wholes, strict=False)) for job in self.pending]


class PlannedJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A waiting job in a plan: its factor before and after, and its start (from now) without us and with the plan.

    `low_s` to `high_s` holds 80 % of drawn starts, and once calibrated (0048) of real ones; infinite: not within the
    horizon.
    """

    job_id: int
    before: int
    after: int
    base_start_s: float
    start_s: float
    low_s: float
    high_s: float
    reason: str


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """An order that was tried: its value of the objective (less is better), and why it is not used, '' if it may be."""

    order: str
    value: float
    refused: str = ""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The best of what was tried. `order` is «as it is» if that is to change nothing; `why` says so in words."""

    order: str
    why: str
    gain: float
    tried: tuple[Tried, ...]
    jobs: tuple[PlannedJob, ...]

    @property
    def changes(self) -> tuple[PlannedJob, ...]:
        """The jobs whose factor is to change."""
        return tuple(job for job in self.jobs if job.before != job.after)
