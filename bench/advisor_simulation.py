"""The backfill advisor against Slurm's own order and against EASY++, in simulation, on three public loads.

    python -m bench.advisor_simulation [--load mit|philly|kabre|all] [--seeds N] [--first-seed N] [--shake-s S]
        [--since DATE] [--days D] [--pressure P] [--delay-h H] [--period-s S] [--strength K] [--row NAME ...]
        [--traces DIR] [--format table|json|csv]

The loads are semi-synthetic (bench/advisor_loads.py says what of each is real). In all of them, age is Slurm's
priority:

- EASY: backfill by the users' limits, first come first served. What Slurm does.
- EASY++: as published (Tsafrir): backfill by the mean of the user's last two runs, the shortest first.
- EASY, perfect: backfill by limits that are the true run times.
- advisor: EASY by the users' limits; every `--period-s` models/planning plans by what has ended so far and moves
  pending jobs. No plan knows the future. `+ forecast` draws arrivals from the past; `perfect` is told the true run
  times, an upper bound.
- one order: the same, but always `aged shortest first` (models/planning/orders.py) and no plan: a second of likely
  run time counts as much as having come `--strength` seconds later (infinite: the shortest first).
- one order, told: the same every ten minutes, but a job that would have started by now without us (it is told the
  actual starts of the first row) comes before all others, in the order of arrival, once it has waited 95 % of the
  longest wait there so far, or is late by three quarters of `--delay-h`. It shows how much there is to gain.
- one order, by the shadow: the same rule by what the advisor knows, the queue without us as in
  models/planning/shadow.py. It is told nothing, and nothing is rolled out.

Slowdowns are bounded by 10 s. `worst account` is the largest ratio of an account's mean slowdown to that in the
first row, of accounts with at least 20 jobs; `Jain` is their fairness index (1: all accounts' mean slowdowns are
equal). Ratios are to the first row. Figures are means over seeds with 95 % intervals; the seed draws Philly's
limits, MIT's accounts and the forecasts: nothing varies in other rows.

A schedule is chaotic: one job that starts sooner changes all that follow, and a longest wait is one job's.
`--shake-s` lets each job come up to that many seconds later, drawn by the seed, so that means over seeds show what
a single run cannot (Tsafrir, Ouaknine, Feitelson: Reducing performance evaluation sensitivity and variability by
input shaking, MASCOTS 2007).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from statistics import NormalDist

import msgspec
import numpy

from accounting.errors import ModelError
from bench.advisor_expectations import Learned, Perfect
from bench.advisor_loads import SOURCES, Load, read_load
from bench.advisor_orders import PERIOD_S, HeldBackByShadow, HeldBackFirst, OneOrder
from bench.arguments import add_traces, parser_of
from models.planning.arrivals import FORESEEN_S
from models.planning.orders import STRENGTH
from models.planning.problem import Bounds, Plan
from models.planning.simulated import Asked, PlannedAdvice, asked_of
from models.scheduling.placement import equal_larger
from models.scheduling.room import Floats, Room
from models.scheduling.run_time_guess import LastTwo
from models.simulation.engine import Hooks, Policy, simulate
from models.simulation.hooks import Advice
from models.simulation.results import Results, bounded_slowdowns
from slurm_plugin.cli.output import print_rows
from slurm_plugin.config.settings import Advisor as Settings

HOUR_S = 3600.0
FEWEST_JOBS = 20
# A site's bounds that limit writes, not orders: here a factor is seconds of age.
MOST_FACTOR, MOST_CHANGES = 10**8, 10**6
FIRST = "EASY"


class Case(msgspec.Struct, frozen=True):
    """A load to simulate, its bounds, the time between plans, the seed, and the weight of age."""

    load: Load
    bounds: Bounds
    period_s: float
    seed: int
    strength: float = STRENGTH

    @property
    def policy(self) -> Policy:
        """EASY; jobs too large for one node are spread over several in equal parts."""
        return Policy(start="easy", placement=equal_larger(Room.of(self.load.cluster.capacity)))

    @property
    def asked(self) -> list[Asked]:
        """What each job asks for."""
        return asked_of(self.load.jobs, self.load.cluster)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a load under one policy. Times are hours; `slowdowns` are mean slowdowns by account."""

    slowdown: float
    mean_wait_h: float
    p95_wait_h: float
    max_wait_h: float
    slowdowns: dict[int, float]
    plans: int = 0
    moved: int = 0
    took_s: float = 0.0


def main() -> None:
    """Simulate and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--load", choices=[*SOURCES, "all"], default="all")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--since", default="", help="first day of the window; the load's own by default")
    parser.add_argument("--days", type=float, default=0.0, help="of the window; its own by default")
    parser.add_argument("--shake-s", type=float, default=0.0, help="jobs come up to so many seconds later")
    parser.add_argument("--pressure", type=float, default=0.9)
    parser.add_argument(
        "--delay-h", type=float, default=Settings().most_delay_s / HOUR_S, help="most_delay_s"
    )
    parser.add_argument("--period-s", type=float, default=PERIOD_S, help="time between plans")
    parser.add_argument(
        "--strength", type=float, default=STRENGTH, help="of rows with one order: how little age counts"
    )
    parser.add_argument(
        "--row", action="append", choices=list(WAYS), help="only these rows, beside the first"
    )
    add_traces(parser)
    arguments = parser.parse_args()
    if not arguments.strength > 0:
        parser.error("--strength must be above 0")
    names = list(SOURCES) if arguments.load == "all" else [arguments.load]
    ways = [FIRST, *(way for way in WAYS if way != FIRST and way in (arguments.row or WAYS))]
    rows = []
    for name in names:
        try:
            rows += measure(name, ways, arguments)
        except ModelError as error:
            sys.exit(str(error))
    print_rows(rows, arguments.format, "The advisor in simulation (semi-synthetic loads)")


def measure(name: str, ways: list[str], arguments: argparse.Namespace) -> list[dict[str, object]]:
    """Return the rows of a load: each policy, over all seeds."""
    found: dict[str, list[Row]] = {way: [] for way in ways}
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        load = read_load(
            name,
            arguments.traces,
            pressure=arguments.pressure,
            seed=seed,
            days=arguments.days,
            since=arguments.since,
            shake_s=arguments.shake_s,
        )
        bounds = Bounds(
            most_delay_s=arguments.delay_h * HOUR_S, most_factor=MOST_FACTOR, most_changes=MOST_CHANGES
        )
        case = Case(load, bounds, arguments.period_s, seed, arguments.strength)
        for way in ways:
            found[way].append(WAYS[way](case))
            print(f"{name} {seed} {way}: {found[way][-1]}", file=sys.stderr, flush=True)
    return [printed(name, way, found[way], found[FIRST]) for way in ways]


def easy(case: Case) -> Row:
    """Simulate what Slurm does."""
    return run(case, case.policy)


def easy_plus_plus(case: Case) -> Row:
    """Simulate EASY++."""
    return run(case, msgspec.structs.replace(case.policy, start="easy shortest", guess=LastTwo))


def easy_perfect(case: Case) -> Row:
    """Simulate EASY with limits that are the run times."""
    jobs = msgspec.structs.replace(case.load.jobs, limit_s=case.load.jobs.run_s)
    known = msgspec.structs.replace(case, load=msgspec.structs.replace(case.load, jobs=jobs))
    return run(known, case.policy)


def one_order(case: Case) -> Row:
    """Simulate one fixed order."""
    return run(case, case.policy, OneOrder(case.asked, Learned(), case.strength))


def told_order(case: Case) -> Row:
    """Simulate the order that is told when jobs would start without us."""
    without_us = simulate(case.load.jobs, case.load.cluster, case.policy)
    advice = HeldBackFirst(case.asked, Learned(), case.strength, without_us, case.bounds.most_delay_s)
    return run(case, case.policy, advice)


def shadow_order(case: Case) -> Row:
    """Simulate the order that uses the shadow."""
    advice = HeldBackByShadow(case.asked, case.load.cluster, case.bounds, Learned(), case.strength)
    return run(case, case.policy, advice)


def advised(*, forecast: bool = False, perfect: bool = False) -> Callable[[Case], Row]:
    """Return a function that simulates plans."""

    def simulated(case: Case) -> Row:
        plans: list[Plan] = []
        advice = PlannedAdvice(
            case.asked,
            case.load.cluster,
            case.bounds,
            Perfect(case.load.jobs.run_s) if perfect else Learned(),
            forecast_s=FORESEEN_S if forecast else 0.0,
            period_s=case.period_s,
            seed=case.seed,
            planned=lambda _now_s, found: plans.append(found),
        )
        row = run(case, case.policy, advice)
        moved = sum(bool(found.changes) for found in plans)
        return msgspec.structs.replace(row, plans=len(plans), moved=moved)

    return simulated


WAYS: dict[str, Callable[[Case], Row]] = {
    FIRST: easy,
    "EASY++": easy_plus_plus,
    "EASY, perfect": easy_perfect,
    "one order": one_order,
    "one order, told": told_order,
    "one order, by the shadow": shadow_order,
    "advisor": advised(),
    "advisor + forecast": advised(forecast=True),
    "advisor, perfect": advised(perfect=True),
}


def run(case: Case, policy: Policy, advice: Advice | None = None) -> Row:
    """Simulate until everything has ended."""
    began_s = time.perf_counter()
    results = simulate(case.load.jobs, case.load.cluster, policy, Hooks(advice=advice))
    return row_of(results, time.perf_counter() - began_s)


def row_of(results: Results, took_s: float) -> Row:
    """Return the figures of a simulation in which every job has ended."""
    waits_s = results.start_s - results.jobs.submit_s
    slowdowns = bounded_slowdowns(results.end_s - results.jobs.submit_s, results.end_s - results.start_s)
    account = results.jobs.kind
    numbers, counts = numpy.unique(account, return_counts=True)
    return Row(
        slowdown=float(slowdowns.mean()),
        mean_wait_h=float(waits_s.mean()) / HOUR_S,
        p95_wait_h=float(numpy.percentile(waits_s, 95)) / HOUR_S,
        max_wait_h=float(waits_s.max()) / HOUR_S,
        slowdowns={
            int(number): float(slowdowns[account == number].mean())
            for number, count in zip(numbers, counts, strict=True)
            if count >= FEWEST_JOBS
        },
        took_s=took_s,
    )


def printed(name: str, way: str, rows: list[Row], first: list[Row]) -> dict[str, object]:
    """Return a line of the table."""
    pairs = list(zip(rows, first, strict=True))
    worst = [
        max(one.slowdowns[number] / base.slowdowns[number] for number in base.slowdowns)
        for one, base in pairs
    ]
    return {
        "load": name,
        "way": way,
        "slowdown": interval([one.slowdown for one in rows]),
        "to EASY": interval([one.slowdown / base.slowdown for one, base in pairs], 3),
        "mean wait (h)": interval([one.mean_wait_h for one in rows]),
        "p95 (h)": interval([one.p95_wait_h for one in rows]),
        "max (h)": interval([one.max_wait_h for one in rows]),
        "max to EASY": interval([one.max_wait_h / base.max_wait_h for one, base in pairs], 3),
        "worst account": interval(worst),
        "Jain": interval([jain(numpy.array(list(one.slowdowns.values()))) for one in rows]),
        "plans": sum(one.plans for one in rows) // len(rows),
        "that moved": sum(one.moved for one in rows) // len(rows),
        "took (s)": round(sum(one.took_s for one in rows) / len(rows)),
    }


def jain(values: Floats) -> float:
    """Return Jain's fairness index of values above 0: 1 if all are equal, 1/n if one has everything."""
    return float(values.sum() ** 2 / (len(values) * (values**2).sum()))


def interval(values: list[float], digits: int = 2) -> str:
    """Return a mean, with its 95 % interval (normal) if there are several values."""
    mean = f"{numpy.mean(values):.{digits}f}"
    if len(values) < 2 or max(values) == min(values):
        return mean
    error = NormalDist().inv_cdf(0.975) * float(numpy.std(values, ddof=1)) / len(values) ** 0.5
    return f"{mean} ±{error:.{digits}f}"


if __name__ == "__main__":
    main()
