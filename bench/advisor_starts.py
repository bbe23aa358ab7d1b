"""How often starts lie within their 80 % interval, as rolled out and as calibrated, on public loads.

    python -m bench.advisor_starts [--load mit|philly|kabre|all] [--since DATE] [--days D] [--period-s S]
        [--traces DIR] [--format table|json|csv]

The advisor is simulated as in bench.advisor_simulation. What production would journal of each plan is kept, and
what has started by the next plans calibrates these, with production's functions: nothing of the future is known.
There are rows for what was foreseen of a job first, last before it started, each time that it was journalled, and
in all plans (somebody asks at an arbitrary moment); and by how far ahead. Widths are medians. A start beyond the
horizon was promised to nobody and does not count.

That a forecast was the last before a start is known only afterwards: with plans this far apart, a job that is told
six hours and starts before the next plan is early by definition.
"""

from __future__ import annotations

import sys

import msgspec
import numpy

from accounting.errors import ModelError
from bench.advisor_expectations import Learned
from bench.advisor_loads import SOURCES, Load, read_load
from bench.advisor_simulation import MOST_CHANGES, MOST_FACTOR
from bench.arguments import add_traces, parser_of
from models.planning.interval_calibration import (
    LOOKED_BACK_S,
    UNCALIBRATED,
    Outcomes,
    calibrated,
    leads_of,
    learned,
)
from models.planning.problem import Bounds, Plan
from models.planning.simulated import PlannedAdvice, asked_of
from models.scheduling.placement import equal_larger
from models.scheduling.room import Floats, Ints, Room
from models.simulation.engine import Hooks, Policy, simulate
from slurm_plugin.advisor.evidence import told
from slurm_plugin.advisor.past_starts import READ_EVERY_S
from slurm_plugin.cli.output import print_rows
from slurm_plugin.config.settings import Advisor as Settings

# How often a plan is made (seconds).
PERIOD_S = 1800.0
LEADS = ("under 10 min", "to 1 h", "to 6 h", "more")
Flags = numpy.ndarray


class Foreseen(msgspec.Struct, frozen=True, kw_only=True):
    """What plans foresaw, one row per job and plan in the order of plans: seconds of the simulation.

    `journaled` marks what production would keep.
    """

    told_s: Floats
    job: Ints
    start_s: Floats
    low_s: Floats
    high_s: Floats
    journaled: Flags


def main() -> None:
    """Simulate and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--load", choices=[*SOURCES, "all"], default="all")
    parser.add_argument("--since", default="", help="first day of the window; the load's own by default")
    parser.add_argument("--days", type=float, default=0.0, help="of the window; its own by default")
    parser.add_argument("--period-s", type=float, default=PERIOD_S, help="time between plans")
    add_traces(parser)
    arguments = parser.parse_args()
    rows: list[dict[str, object]] = []
    for name in list(SOURCES) if arguments.load == "all" else [arguments.load]:
        try:
            load = read_load(
                name,
                arguments.traces,
                pressure=0.9,
                seed=1,
                days=arguments.days,
                since=arguments.since,
            )
        except ModelError as error:
            sys.exit(str(error))
        foreseen, start_s = planned(load, arguments.period_s)
        rows += [{"load": name, **row} for row in coverage(foreseen, start_s)]
    print_rows(rows, arguments.format, "Starts within the interval of 80 % (semi-synthetic loads)")


def planned(load: Load, period_s: float) -> tuple[Foreseen, Floats]:
    """Simulate the advisor, and return what its plans foresaw and when each job really started."""
    found: list[tuple[float, ...]] = []
    seen: frozenset[int] = frozenset()

    def heard(now_s: float, plan: Plan) -> None:
        nonlocal seen
        kept = {job.job_id for job in told(plan, seen)}
        seen = frozenset(job.job_id for job in plan.jobs)
        found.extend(
            (now_s, job.job_id, job.start_s, job.low_s, job.high_s, job.job_id in kept)
            for job in plan.jobs
            if numpy.isfinite(job.start_s)
        )

    bounds = Bounds(most_delay_s=Settings().most_delay_s, most_factor=MOST_FACTOR, most_changes=MOST_CHANGES)
    asked = asked_of(load.jobs, load.cluster)
    advice = PlannedAdvice(asked, load.cluster, bounds, Learned(), period_s=period_s, planned=heard)
    policy = Policy(start="easy", placement=equal_larger(Room.of(load.cluster.capacity)))
    results = simulate(load.jobs, load.cluster, policy, Hooks(advice=advice))
    told_s, job, start_s, low_s, high_s, journaled = numpy.array(found, dtype=float).reshape(-1, 6).T
    foreseen = Foreseen(
        told_s=told_s,
        job=job.astype(numpy.int64),
        start_s=start_s,
        low_s=low_s,
        high_s=high_s,
        journaled=journaled > 0,
    )
    return foreseen, results.start_s


def calibrated_afterwards(foreseen: Foreseen, started_s: Floats) -> tuple[Floats, Floats]:
    """Return the intervals that calibrated plans would have given: each knows what had started by then."""
    low_s, high_s = foreseen.low_s.copy(), foreseen.high_s.copy()
    told_s, known, due_s = foreseen.told_s, UNCALIBRATED, -numpy.inf
    for now_s in numpy.unique(told_s).tolist():
        if now_s >= due_s:
            known = learned(_outcomes(foreseen, started_s, low_s, high_s, now_s), now_s)
            due_s = now_s + READ_EVERY_S
        first, last = (int(numpy.searchsorted(told_s, now_s, side)) for side in ("left", "right"))
        rows = slice(first, last)
        low_s[rows], high_s[rows] = calibrated(known, foreseen.start_s[rows], low_s[rows], high_s[rows])
    return low_s, high_s


def _outcomes(foreseen: Foreseen, started_s: Floats, low_s: Floats, high_s: Floats, now_s: float) -> Outcomes:
    """Return what is known at a moment: a job that has not started by then still waits."""
    told_s = foreseen.told_s
    which = foreseen.journaled & (told_s < now_s) & (told_s >= now_s - LOOKED_BACK_S)
    came_s = started_s[foreseen.job[which]]
    return Outcomes(
        told_s=told_s[which],
        foreseen_s=(told_s + foreseen.start_s)[which],
        low_s=(told_s + low_s)[which],
        high_s=(told_s + high_s)[which],
        started_s=numpy.where(came_s <= now_s, came_s, numpy.nan),
    )


def coverage(foreseen: Foreseen, started_s: Floats) -> list[dict[str, object]]:
    """Return, for each choice of rows and each lead, the share of starts within intervals, and the widths of these."""
    after_s = started_s[foreseen.job] - foreseen.told_s
    rolled, then = (foreseen.low_s, foreseen.high_s), calibrated_afterwards(foreseen, started_s)
    leads = leads_of(foreseen.start_s)
    rows = []
    for said, which in {
        "first": _firsts(foreseen.job),
        "last": _firsts(foreseen.job[::-1])[::-1],
        "journaled": foreseen.journaled,
        "all plans": numpy.ones(len(leads), dtype=bool),
    }.items():
        for lead, ahead in enumerate(("any", *LEADS), -1):
            those = which & (leads == lead) if lead >= 0 else which
            if those.any():
                rows.append(
                    {
                        "foreseen": said,
                        "ahead": ahead,
                        "starts": int(those.sum()),
                        **_held("rolled", after_s[those], *(end[those] for end in rolled)),
                        **_held("calibrated", after_s[those], *(end[those] for end in then)),
                    }
                )
    return rows


def _firsts(job: Ints) -> Flags:
    found = numpy.zeros(len(job), dtype=bool)
    found[numpy.unique(job, return_index=True)[1]] = True
    return found


def _held(when: str, after_s: Floats, low_s: Floats, high_s: Floats) -> dict[str, object]:
    # Slurm records whole seconds.
    early, late = after_s < numpy.floor(low_s), after_s > high_s
    return {
        f"within {when} (%)": round(100 * float((~early & ~late).mean()), 1),
        f"early {when} (%)": round(100 * float(early.mean()), 1),
        f"width {when} (min)": round(float(numpy.median(high_s - low_s)) / 60, 1),
    }


if __name__ == "__main__":
    main()
