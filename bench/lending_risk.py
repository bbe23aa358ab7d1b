"""What lending onto idle nodes of others brings over days, by how much risk is taken: production's own rule, simulated.

    python -m bench.lending_risk [--traces DIR] [--seeds 5] [--case mixed …] [--load 1 …] [--risk 0.2 …] [--show TABLE]

Loads are from two public traces (bench/lending_loads.py): semi-synthetic. Jobs are short, as they are, or long,
compared with the times that owners stay away. An interrupted job begins again. A wait is the job's turnaround less
its run time, and includes interrupted runs. `arms`: no job is let onto others' nodes; those that the advisor lets
in, at each `risk`; all jobs list both partitions; or jobs start there that will end before the owner returns, as
only an oracle knows. An owner who meets a job waits up to KillWait (30 s) until it has ended. `owners`: how often
owners were back within a time, by the forecast. Rules were chosen on seeds 1 to 3.
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise

import msgspec
import numpy

from bench.arguments import add_traces, folder_with, parser_of, print_tables
from bench.lending_arms import ByForecast, Everybody, Nobody, Oracle
from bench.lending_loads import CASES, DAY_S, LendingLoad, read_lending_load
from bench.lending_queue import LendingQueue, Listing
from bench.patent_loads import PHILLY
from models.planning.orders import STRENGTH
from models.scheduling.idleness import Owners
from models.simulation.nodes import HOUR_S
from models.simulation.results import bounded_slowdowns
from slurm_plugin.cli.output import note

LOADS, RISKS = (0.7, 1.0), (0.05, 0.1, 0.2, 0.5, 1.0)
NOBODY, ALL, ORACLE = "own nodes only", "everybody lists both", "who knows the owners"
SHOWN = ("arms", "owners")
# Forecasts are made for owners' returns within these times, every STEP_S.
WITHIN_S, STEP_S = (600.0, HOUR_S, 4 * HOUR_S, 12 * HOUR_S), 1200.0
SHARES = (0.05, 0.1, 0.2, 0.5, 0.8, 1.01)
Row = dict[str, object]


class Measured(msgspec.Struct, frozen=True):
    """The result of a load in one arm: seconds, and shares 0..1; work is in GPU seconds, of all requested."""

    mean_wait_s: float
    p95_wait_s: float
    slowdown: float
    there: float
    interrupted: float
    lost: float
    owners_met: float


# By case, load and arm: one for each seed.
Found = dict[tuple[str, float, str], list[Measured]]
# The forecast probability of an owner's return, and whether the owner was back.
Said = tuple[float, bool]


def main() -> None:
    """Print both tables, or one."""
    parser = parser_of(__doc__)
    add_traces(parser)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=11, help="rules were chosen on seeds 1 to 3")
    parser.add_argument("--case", action="append", choices=list(CASES), help="again for more")
    parser.add_argument("--load", type=float, action="append", help="of the own nodes; again for more")
    parser.add_argument("--risk", type=float, action="append", help="again for more")
    parser.add_argument("--error", type=float, default=0.5, help="by how much run times are expected wrongly")
    parser.add_argument(
        "--strength", type=float, default=STRENGTH, help="of the advisor's order; 0: first come, first served"
    )
    parser.add_argument("--slower", type=float, default=1.0, help="how much longer runs take on lent nodes")
    parser.add_argument("--show", choices=SHOWN)
    arguments = parser.parse_args()
    traces = folder_with(arguments.traces, str(PHILLY))
    found: Found = {}
    said: list[Said] = []
    for case in arguments.case or CASES:
        for load in arguments.load or LOADS:
            for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
                note(f"{case} jobs, load {load:g}, seed {seed}")
                made = read_lending_load(traces, CASES[case], load, seed, error=arguments.error)
                if arguments.show != "arms":
                    said += said_of_owners(made, CASES[case].days * DAY_S)
                if arguments.show == "owners":
                    continue
                for name, listing in arms(made, arguments.risk or RISKS):
                    one = measured(made, listing, arguments.strength, arguments.slower)
                    found.setdefault((case, load, name), []).append(one)
    tables = {
        "arms": ("Jobs on own nodes, and on idle ones of others", rows(found)),
        "owners": ("How often owners were back, by what was said of it", calibration(said)),
    }
    print_tables(tables, arguments)


def arms(load: LendingLoad, risks: Iterable[float]) -> Iterator[tuple[str, Listing]]:
    """Yield the listings by name."""
    yield NOBODY, Nobody()
    for risk in risks:
        yield f"by forecast, risk {risk:g}", ByForecast(load, risk)
    yield ALL, Everybody()
    yield ORACLE, Oracle(load)


def measured(
    load: LendingLoad, listing: Listing, strength: float = STRENGTH, slower: float = 1.0
) -> Measured:
    """Return the result of a load, in the advisor's order with this strength (models/planning/orders.py).

    Nobody, not even the oracle, knows how much slower lent nodes are.
    """
    queue = LendingQueue(load, listing, strength, slower)
    queue.run()
    pairs = list(zip(load.jobs, queue.became, strict=True))
    run_s = numpy.array([job.run_s for job in load.jobs])
    stayed_s = numpy.array([became.end_s - job.submit_s for job, became in pairs])
    return Measured(
        mean_wait_s=float((stayed_s - run_s).mean()),
        p95_wait_s=float(numpy.percentile(stayed_s - run_s, 95)),
        slowdown=float(bounded_slowdowns(stayed_s, run_s).mean()),
        there=statistics.fmean(became.lent for _, became in pairs),
        interrupted=statistics.fmean(became.interrupted for _, became in pairs),
        lost=sum(became.lost_s * job.gpus for job, became in pairs)
        / sum(job.run_s * job.gpus for job in load.jobs),
        owners_met=queue.met / max(1, queue.came),
    )


def rows(found: Found) -> list[Row]:
    """Return a row for each case, load and arm."""
    return [
        {
            "jobs": case,
            "load": load,
            "arm": name,
            "mean wait (min)": round(_mean(each, "mean_wait_s") / 60, 1),
            "p95 wait (h)": round(_mean(each, "p95_wait_s") / HOUR_S, 1),
            "of own only %": round(100 * _of_own(found, (case, load, name)), 1),
            "slowdown": round(_mean(each, "slowdown"), 2),
            "there %": round(100 * _mean(each, "there")),
            "interrupted %": round(100 * _mean(each, "interrupted"), 1),
            "work lost %": round(100 * _mean(each, "lost"), 2),
            "owners met %": round(100 * _mean(each, "owners_met"), 1),
        }
        for (case, load, name), each in found.items()
    ]


def _of_own(found: Found, key: tuple[str, float, str]) -> float:
    """Return the mean wait relative to that on own nodes only, as the mean over seeds."""
    own = found[key[0], key[1], NOBODY]
    return statistics.fmean(
        one.mean_wait_s / max(1.0, other.mean_wait_s) for one, other in zip(found[key], own, strict=True)
    )


def _mean(each: list[Measured], name: str) -> float:
    return statistics.fmean(getattr(one, name) for one in each)


def said_of_owners(load: LendingLoad, for_s: float) -> list[Said]:
    """Return the forecasts for each idle node, moment by moment, and whether its owner was back by then."""
    owners, found = Owners[int](), []
    changes = []
    for node, spans in enumerate(load.owners):
        past = [span for span in spans if span[1] <= 0]
        owners.learned(node, (later[0] - before[1] for before, later in pairwise(past)))
        if not any(from_s <= 0 < to_s for from_s, to_s in spans):
            owners.goes(node, past[-1][1] if past else 0.0)
        changes += [(from_s, owners.comes, node) for from_s, _ in spans if from_s > 0]
        changes += [(to_s, owners.goes, node) for _, to_s in spans if to_s > 0]
    changes.sort(key=lambda change: (change[0], change[2]))
    passed = 0
    for now_s in numpy.arange(0.0, for_s, STEP_S).tolist():
        while passed < len(changes) and changes[passed][0] <= now_s:
            at_s, happens, node = changes[passed]
            happens(node, at_s)
            passed += 1
        for node in owners.idle_since_s:
            comes_s = [from_s for from_s, _ in load.owners[node]]
            after = comes_s[bisect_right(comes_s, now_s) :]
            found += [
                (owners.back_within(node, now_s, more_s), bool(after) and after[0] < now_s + more_s)
                for more_s in WITHIN_S
            ]
    return found


def calibration(said: list[Said]) -> list[Row]:
    """Return how often owners were back, by the forecast."""
    table: list[Row] = []
    least = 0.0
    for most in SHARES:
        within = [(share, back) for share, back in said if least <= share < most]
        if within:
            table.append(
                {
                    "said %": f"{100 * least:.0f} to {100 * min(1.0, most):.0f}",
                    "mean of it": round(100 * statistics.fmean(share for share, _ in within), 1),
                    "back %": round(100 * statistics.fmean(back for _, back in within), 1),
                    "moments": len(within),
                }
            )
        least = most
    return table


if __name__ == "__main__":
    main()
