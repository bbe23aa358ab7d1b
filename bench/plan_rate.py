"""What a plan costs, phase by phase, against sorting the queue and against one EASY rollout of it in the same process.

    python -m bench.plan_rate [--times 3] [--windows none|some|all] [--gpu-types 0] [--limited none|cpus|time]

Made-up queues on one core, in seconds of CPU time, the minimum of several runs: 10,000 records on 1,000 nodes, and
1,000 on 100. A quarter are arrays, a quarter need several nodes; each node runs four jobs; limits are two to a
hundred times the run time. With `--windows some`, a tenth of the nodes will be down, and pools overlap; with `all`,
each node is reserved a day from now, as for maintenance. With `--gpu-types`, nodes have four GPUs and all jobs ask
for some, two of three by type; if there are several types, each node is of one. With `--limited cpus`, half of the
users may have no more CPUs at a time than they have now, and all are counted; with `time`, no more CPU time that
runs may still use, as Slurm counts it every five minutes. The queue without us is simulated again from an hour ago,
of which nothing is certain. The goal is for that and the plan together.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import msgspec
import numpy

from bench.arguments import parser_of
from bench.figures import goal
from models.planning.candidates import glimpse
from models.planning.cells import cells_of, slurm_order
from models.planning.futures import likely_future
from models.planning.ledger import Clock, Due, Dues, Ledger
from models.planning.orders import columns_of, smallest_area
from models.planning.planning import MOST_STARTS, SHARE_OF_ONE, plan
from models.planning.problem import Bounds, Holding, Machine, Pending, Problem
from models.planning.prospects import ahead_of
from models.planning.rollout import expected_starts, places_of
from models.planning.shadow import Seen, Site, begun_anew
from models.planning.shadow_rolling import measured, passed_on
from models.scheduling.availability import Window
from models.scheduling.room import Amounts
from slurm_plugin.cli.output import note, print_rows

GOAL_RECORDS, GOAL_NODES, MOST_S = 10_000, 1_000, 5.0
SIZES = ((GOAL_RECORDS, GOAL_NODES), (1_000, 100))
CPU_MILLI, MEM_MIB, GPUS = 32_000, 128_000, 4
USERS = 50
HOUR_S = 3600.0
WHOLE = "both"
WINDOWS = ("none", "some", "all")
LIMITED = ("none", "cpus", "time")
COUNTED_EACH_S = 300.0
Found = TypeVar("Found")
Row = dict[str, object]


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument(
        "--windows", choices=WINDOWS, default=WINDOWS[0], help="which nodes are to be down or reserved"
    )
    parser.add_argument("--gpu-types", type=int, default=0, help="of how many types the GPUs are; 0: no GPUs")
    parser.add_argument(
        "--limited",
        choices=LIMITED,
        default=LIMITED[0],
        help="of what half of the users have as much as they may: CPUs, or CPU time that runs may still use",
    )
    arguments = parser.parse_args()
    rows = [
        row
        for size in SIZES
        for row in measure(
            made_up_queue(*size, arguments.windows, arguments.gpu_types, arguments.limited),
            arguments.times,
        )
    ]
    if arguments.format == "table":
        print_rows(goals(rows), "table", "Goals")
    print_rows(rows, arguments.format, "What a plan costs")


def measure(problem: Problem, times: int) -> list[Row]:
    """Return the rows of one queue: each phase by itself, and the whole."""
    records, nodes = len(problem.pending), len(problem.machines)
    note(f"{records:,} records on {nodes:,} nodes")
    bounds = Bounds()
    sort_s, order = timed(lambda: slurm_order(problem.pending), times)
    rank = places_of(order)
    cells_s, cells = timed(lambda: cells_of(problem), times)
    futures = [likely_future(problem, cells)]
    most = MOST_STARTS // SHARE_OF_ONE
    easy_s, ahead = timed(lambda: ahead_of(problem, bounds, cells, futures, rank, most), times)
    wished = smallest_area(columns_of(problem, rank, 1))
    glimpse_s, _ = timed(lambda: glimpse(ahead, "", wished), times)
    starts_s, _ = timed(lambda: expected_starts(problem, 9), times)
    plan_s, found = timed(lambda: plan(problem, bounds), times)
    shadow_s = timed_shadow(problem, bounds.horizon_s, times)
    phases = {
        "sorting": sort_s,
        "cells": cells_s,
        f"one EASY rollout ({ahead.starts} starts)": easy_s,
        "one order, at a glimpse": glimpse_s,
        "expected starts, 9 futures": starts_s,
        "the queue without us": shadow_s,
        f"a plan ({len(found.tried)} orders, {len(found.changes)} changes)": plan_s,
        WHOLE: plan_s + shadow_s,
    }
    return [
        {
            "records": records,
            "nodes": nodes,
            "what": what,
            "CPU s": round(took_s, 3),
            "/ sorting": round(took_s / sort_s, 1),
            "/ rollout": round(took_s / easy_s, 2),
        }
        for what, took_s in phases.items()
    ]


def timed_shadow(problem: Problem, horizon_s: float, times: int) -> float:
    """Return the cost of advancing the queue without us by an hour, and of measuring a problem against it."""
    nodes = tuple(str(node) for node in range(len(problem.machines)))
    site = Site(
        machines=problem.machines,
        nodes=nodes,
        windows=problem.windows,
        limits=problem.limits,
        clock=problem.clock,
    )
    seen = [_seen(job) for job in problem.pending]
    shadow = begun_anew(site, 0.0, seen, problem.running)
    tasks = {job.job_id: job.tasks for job in problem.pending}
    took_s, _ = timed(
        lambda: measured(problem, passed_on(shadow, site, HOUR_S, seen), site, horizon_s, tasks), times
    )
    return took_s


def _seen(job: Pending) -> Seen:
    return Seen(
        job_id=job.job_id,
        phase="waits",
        came_s=-job.waited_s,
        pools=job.pools,
        priority=job.priority,
        tier=job.tier,
        demand=job.demand,
        nodes=job.nodes,
        limit_s=job.limit_s,
        run_s=job.likely_s,
        tasks=job.tasks,
        dues=job.dues,
    )


def timed(work: Callable[[], Found], times: int) -> tuple[float, Found]:
    """Return the fewest CPU seconds of several runs, and the result of the last."""
    least_s = float("inf")
    for _ in range(max(1, times)):
        begin_s = time.process_time()
        found = work()
        least_s = min(least_s, time.process_time() - begin_s)
    return least_s, found


def goals(rows: list[Row]) -> list[Row]:
    """Return how a plan of the larger size compares with its goal."""
    (whole,) = (row for row in rows if row["records"] == GOAL_RECORDS and row["what"] == WHOLE)
    where = f"{GOAL_RECORDS:,} records, {GOAL_NODES:,} nodes"
    return [goal("a cycle's plan (CPU s)", where, float(str(whole["CPU s"])), MOST_S, at_most=True)]


def made_up_queue(
    records: int, nodes: int, windows: str, gpu_types: int = 0, limited: str = LIMITED[0]
) -> Problem:
    """Return a queue on a busy cluster."""
    plain = _plain_queue(records, nodes, windows)
    found = _with_gpus(plain, gpu_types) if gpu_types else plain
    return found if limited == LIMITED[0] else _with_limits(found, limited)


def _with_limits(problem: Problem, of: str) -> Problem:
    """Return a queue in which every second user may have no more CPUs, or CPU time, than now."""
    replace, names = msgspec.structs.replace, [f"user {number}: {of}" for number in range(USERS)]

    def dues(user: int, amounts: Amounts, limit_s: float) -> Dues:
        cpus = amounts[0] // 1000
        if of == LIMITED[1]:
            return (Due(names[user % USERS], cpus),)
        return (Due(names[user % USERS], round(cpus * limit_s), falls=cpus),)

    running = tuple(
        replace(one, dues=dues(at, one.parts[0][1], one.ran_s + one.limit_left_s))
        for at, one in enumerate(problem.running)
    )
    in_use = Ledger({}, ((one.dues, one.ran_s) for one in running))
    return replace(
        problem,
        pending=tuple(replace(one, dues=dues(one.user, one.demand, one.limit_s)) for one in problem.pending),
        running=running,
        limits={name: round(in_use.in_use(name)) for name in names[::2]},
        clock=Clock(at_s=-77.0, every_s=COUNTED_EACH_S),
    )


def _with_gpus(problem: Problem, types: int) -> Problem:
    """Return a queue with one GPU per requested CPU; a single type is not named."""
    replace = msgspec.structs.replace

    def told(amounts: Amounts, kind: int | None) -> Amounts:
        cpu_milli, mem_mib, _ = amounts
        gpu_milli = -(-cpu_milli // (CPU_MILLI // GPUS)) * 1000
        rows = (gpu_milli * (kind == each) for each in range(types)) if types > 1 else ()
        return (cpu_milli, mem_mib, gpu_milli, *rows)

    return replace(
        problem,
        machines=tuple(
            replace(one, amounts=told(one.amounts, at % types)) for at, one in enumerate(problem.machines)
        ),
        pending=tuple(
            replace(one, demand=told(one.demand, at % types if at % 3 else None))
            for at, one in enumerate(problem.pending)
        ),
        running=tuple(
            replace(one, parts=tuple((node, told(amounts, node % types)) for node, amounts in one.parts))
            for one in problem.running
        ),
        windows=tuple(replace(one, amounts=told(one.amounts, one.node % types)) for one in problem.windows),
    )


def _plain_queue(records: int, nodes: int, windows: str) -> Problem:
    draw = numpy.random.default_rng(1)
    overlap = windows == "some"
    pools = (frozenset([0, 1]), frozenset([0, 2])) if overlap else (frozenset([0]),)
    amounts = (CPU_MILLI, MEM_MIB, 0)
    return Problem(
        machines=tuple(Machine(amounts=amounts, pools=pools[at % len(pools)]) for at in range(nodes)),
        pending=tuple(_record(at, records, draw, overlap=overlap) for at in range(records)),
        running=tuple(_running(at, node, draw) for node in range(nodes) for at in range(4)),
        windows=tuple(
            Window(node=node, from_s=from_s, to_s=48 * HOUR_S, amounts=amounts)
            for node, from_s in _reserved(nodes, windows)
        ),
    )


def _reserved(nodes: int, windows: str) -> list[tuple[int, float]]:
    """Return the nodes that will be down or reserved, each with its start (seconds)."""
    if windows == "some":
        return [(node, (6 + node % 8) * HOUR_S) for node in range(0, nodes, 10)]
    return [(node, 24 * HOUR_S) for node in range(nodes)] if windows == "all" else []


def _record(at: int, records: int, draw: numpy.random.Generator, *, overlap: bool) -> Pending:
    limit_s = float(draw.choice([1, 4, 24])) * HOUR_S
    likely_s = limit_s * float(draw.uniform(0.01, 0.6))
    kind = draw.uniform()
    nodes = int(draw.choice([2, 4, 8, 16])) if kind < 0.25 else 1
    cpu_milli = 1000 * nodes * int(draw.choice([1, 2, 4, 8, 16, 32]))
    return Pending(
        job_id=at + 1,
        account=at % 7,
        user=at % USERS,
        pools=frozenset([int(draw.integers(0, 3)) if overlap else 0]),
        priority=100_000 - at,
        factor=0,
        demand=(cpu_milli, cpu_milli * 2, 0),
        limit_s=limit_s,
        likely_s=likely_s,
        upper_s=min(limit_s, 2.5 * likely_s),
        waited_s=10.0 * (records - at),
        tasks=int(draw.integers(2, 50)) if kind > 0.75 else 1,
        nodes=nodes,
        fair_share=(at % 7) / 7,
    )


def _running(at: int, node: int, draw: numpy.random.Generator) -> Holding:
    limit_left_s = float(draw.uniform(60, 24 * HOUR_S))
    return Holding(
        job_id=1_000_000 + 4 * node + at,
        user=0,
        parts=((node, (CPU_MILLI // 4, MEM_MIB // 8, 0)),),
        ran_s=HOUR_S,
        limit_left_s=limit_left_s,
        likely_left_s=limit_left_s * float(draw.uniform(0.02, 0.8)),
    )


if __name__ == "__main__":
    main()
