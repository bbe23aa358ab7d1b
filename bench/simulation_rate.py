"""What a simulated job costs, policy by policy, against a bare event loop in the same process.

    python -m bench.simulation_rate [--jobs 100000] [--nodes 32] [--pressure 0.9] [--sweep] [--plots DIR]
        [--format table|json|csv]

A made-up load (bench/simulation_load.py) on one core, in seconds of CPU time; each policy runs twice, and both
results are compared bit by bit. The floor is a heap that takes an arrival and an end for each job and does nothing
else. With `--sweep`, also the cost per job over the number of jobs and of nodes, with everything else equal;
`--plots` draws it.
"""

from __future__ import annotations

import hashlib
import heapq
import time
from collections.abc import Sequence
from pathlib import Path

from bench.arguments import parser_of
from bench.figures import goal
from bench.simulation_load import even_cluster, made_up_load
from models.scheduling.ordering import ORDERINGS
from models.scheduling.run_time_guess import LastTwo
from models.simulation.engine import Policy, simulate
from models.simulation.results import Results, figures
from models.simulation.workload import Workload
from slurm_plugin.cli.output import note, print_rows

MOST_S, GOAL_JOBS = 10.0, 100_000
POLICIES = {
    "FIFO": Policy(),
    "SRTF": Policy(ordering=ORDERINGS["srtf"]),
    "DRF": Policy(ordering=ORDERINGS["drf"]),
    "EASY": Policy(start="easy"),
}
OTHERS = {
    "SRTF, what fits": Policy(ordering=ORDERINGS["srtf"], start="greedy"),
    "EASY++": Policy(start="easy", guess=LastTwo),
}
JOB_SWEEP, NODE_SWEEP = (10_000, 30_000, 100_000), (8, 32, 128, 512)
# Other simulators of queues, in jobs per second: measured by us once, on other machines and loads, so only the
# order of magnitude counts.
PEERS = {"AccaSim, EASY (20,000 jobs)": 20_000 / 8.8, "Alibaba's PAI simulator, FIFO to DRF": (480 + 740) / 2}
# On a larger cluster, as many jobs would be over before a queue forms.
JOBS_A_NODE = 300
Row = dict[str, object]


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=int, default=GOAL_JOBS)
    parser.add_argument("--nodes", type=int, default=32)
    parser.add_argument("--pressure", type=float, default=0.9)
    parser.add_argument("--sweep", action="store_true", help="also over the number of jobs and of nodes")
    parser.add_argument("--plots", type=Path, help="draw the sweep into this folder (it is made if need be)")
    arguments = parser.parse_args()
    rows = [
        measure(name, policy, arguments.jobs, arguments.nodes, arguments.pressure, twice=True)
        for name, policy in (POLICIES | OTHERS).items()
    ]
    if arguments.format == "table":
        print_rows(goals(rows, arguments.jobs), "table", "Goals")
        print_rows(against_peers(rows), "table", "Jobs a second, over those of others")
    print_rows(rows, arguments.format, "A simulated load, by policy")
    if arguments.sweep or arguments.plots:
        swept = sweep(arguments.pressure)
        print_rows(swept, arguments.format, "Cost over jobs and nodes")
        if arguments.plots:
            note(f"drawn: {draw_sweep(swept, arguments.plots)}")


def measure(name: str, policy: Policy, jobs: int, nodes: int, pressure: float, *, twice: bool) -> Row:
    """Return the row of one policy: CPU seconds, events and what came out."""
    note(f"{name}: {jobs:,} jobs on {nodes} nodes")
    cluster = even_cluster(nodes)
    load = made_up_load(jobs, cluster, pressure)
    floor_s = bare_loop_s(load)
    begin_s = time.process_time()
    results = simulate(load, cluster, policy)
    took_s = time.process_time() - begin_s
    same = not twice or digest(simulate(load, cluster, policy)) == digest(results)
    found = figures(results)
    return {
        "policy": name,
        "jobs": jobs,
        "nodes": nodes,
        "CPU s": round(took_s, 2),
        "jobs/s": round(jobs / took_s),
        "µs/job": round(took_s / jobs * 1e6, 1),
        "/ bare loop": round(took_s / floor_s, 1),
        "most waiting": max(moment.waiting for moment in results.moments),
        "mean wait (s)": round(found.mean_wait_s),
        "bounded slowdown": round(found.bounded_slowdown, 2),
        "twice the same": ("yes" if same else "NO") if twice else "-",
    }


def bare_loop_s(load: Workload) -> float:
    """Return the CPU seconds of a heap that takes each job's arrival and end, and does nothing else."""
    begin_s = time.process_time()
    events = [(at_s, 0, number) for number, at_s in enumerate(load.submit_s.tolist())]
    heapq.heapify(events)
    run_s = load.run_s.tolist()
    while events:
        at_s, kind, number = heapq.heappop(events)
        if not kind:
            heapq.heappush(events, (at_s + run_s[number], 1, number))
    return time.process_time() - begin_s


def digest(results: Results) -> str:
    """Return a digest of every start, end and place, and of what was allocated when."""
    told = hashlib.sha256()
    for part in (results.start_s, results.end_s, results.outcome):
        told.update(part.tobytes())
    told.update(repr([run.parts for run in results.runs]).encode())
    told.update(repr(results.moments).encode())
    return told.hexdigest()


def goals(rows: Sequence[Row], jobs: int) -> list[Row]:
    """Return the goals: CPU seconds of the named policies for this many jobs, and two identical runs."""
    named = [row for row in rows if row["policy"] in POLICIES]
    wanted_s = MOST_S * jobs / GOAL_JOBS
    alike = sum(row["twice the same"] == "yes" for row in rows)
    return [
        *(
            goal(
                f"{row['policy']} (CPU s)", f"{jobs:,} jobs", float(str(row["CPU s"])), wanted_s, at_most=True
            )
            for row in named
        ),
        goal("policies with two runs alike", "all", alike, len(rows), at_most=False),
    ]


def against_peers(rows: Sequence[Row]) -> list[Row]:
    """Return how many times as many jobs per second each policy processes as other simulators."""
    return [
        {"simulator": name, "jobs/s": round(rate)}
        | {str(row["policy"]): round(float(str(row["jobs/s"])) / rate, 1) for row in rows}
        for name, rate in PEERS.items()
    ]


def sweep(pressure: float) -> list[Row]:
    """Return rows over the number of jobs on 32 nodes, and over the number of nodes with as many jobs for each."""
    over_jobs = [(jobs, 32) for jobs in JOB_SWEEP]
    over_nodes = [(JOBS_A_NODE * nodes, nodes) for nodes in NODE_SWEEP]
    return [
        measure(name, policy, jobs, nodes, pressure, twice=False)
        for jobs, nodes in dict.fromkeys(over_jobs + over_nodes)
        for name, policy in POLICIES.items()
    ]


def draw_sweep(rows: Sequence[Row], folder: Path) -> Path:
    """Draw µs per job over jobs and over nodes; needs matplotlib (the extra `plots`)."""
    from matplotlib import pyplot

    from bench.panels import finish_panel, save

    folder.mkdir(parents=True, exist_ok=True)
    figure, grid = pyplot.subplots(1, 2, figsize=(9, 3.8), layout="constrained", sharey=True)
    lines = []
    over_nodes = [(JOBS_A_NODE * nodes, nodes) for nodes in NODE_SWEEP]
    cells = ((grid[0], "jobs", [(jobs, 32) for jobs in JOB_SWEEP]), (grid[1], "nodes", over_nodes))
    for axes, along, wanted in cells:
        for name in POLICIES:
            points = [row for row in rows if row["policy"] == name and (row["jobs"], row["nodes"]) in wanted]
            (line,) = axes.plot(
                [row[along] for row in points], [row["µs/job"] for row in points], marker="o", label=name
            )
            lines.append(line)
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_xlabel("jobs on 32 nodes" if along == "jobs" else f"nodes, {JOBS_A_NODE} jobs each")
        axes.set_ylabel("CPU time a job (µs)")
        finish_panel(axes)
    return save(figure, "Cost of a simulated job", lines[: len(POLICIES)], folder / "simulation_rate.png")


if __name__ == "__main__":
    main()
