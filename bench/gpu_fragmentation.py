"""How many GPUs are handed out when jobs that share them come until no more fit: by fragmentation, and by its peers.

    python -m bench.gpu_fragmentation [--seeds 10] [--arrivals 1.3] [--load default gpushare100] [--ends 0.9 1.0 1.2]
        [--traces DIR] [--format table|json|csv]

The experiment of Weng et al. (USENIX ATC 2023, §6.2) on its own cluster and jobs (Alibaba, 2023: 1,213 nodes with
6,212 GPUs, 8,152 jobs; gpu/openb_*.csv.gz in $RIGHTSIZER_TRACES): the jobs of the trace in random order, and more
of them drawn again until they ask for 1.3 times the existing GPUs. A job that does not fit is turned away, and no
job ends. All placements get the same jobs in the same order. "fgd" is ours, "fgd as published" the same without our
price for nodes that are still empty. Next to the shares is the wall time of a decision, compared with best fit.

With `--ends`, jobs end instead: on every eighth of those nodes, 12,000 jobs drawn from the trace arrive one after
the other (Poisson) and run for an hour on average (exponential), so that in the long run they ask for this share of
the GPUs. Jobs that fit start, in the order of arrival, in the simulator of `rightsizer simulate`, until the last
one has come.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import numpy
import pandas

from bench.arguments import add_traces, folder_with, parser_of
from bench.figures import goal
from bench.gpu_peers import peers
from models.gpus.fragmentation import GPU, usual_of
from models.gpus.placing import Gradient, with_gpus
from models.scheduling.placement import Place
from models.scheduling.room import MILLI, PLAIN, Ints, Room, amounts_of
from models.simulation.engine import simulate
from models.simulation.nodes import Cluster
from models.simulation.policies import SINGLE_GPUS, policies, way_to_place
from models.simulation.results import figures
from models.simulation.workload import workload
from slurm_plugin.cli.output import note, print_rows

LOADS = ("default", "gpushare100")
# What the paper's simulator reports for its load "default" at 1.3.
PAPER = {
    "fgd as published": 95.39, "best fit": 93.08, "packing": 92.0, "clustering": 91.88, "dot product": 90.85,
    "random": 87.47,
}  # fmt: skip
EVERY, JOBS, RUN_S = 8, 12_000, 3600.0
OURS, PUBLISHED, BEST_FIT = "fgd", "fgd as published", "best fit"
Row = dict[str, object]


class Filled(NamedTuple):
    """The result of a placement: the GPUs handed out (%), jobs turned away, and the time of each decision (ms)."""

    allocated_pct: float
    turned_away: int
    took_ms: list[float]


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--arrivals", type=float, default=1.3, help="GPUs asked for, over those there are")
    parser.add_argument("--load", nargs="+", choices=LOADS, default=LOADS)
    parser.add_argument(
        "--ends", nargs="+", type=float, help="jobs end; GPUs asked for in the long run, of those there are"
    )
    add_traces(parser)
    arguments = parser.parse_args()
    traces = folder_with(arguments.traces, "gpu/openb_*.csv.gz")
    if arguments.ends:
        cases = [
            (load, share, seed) for load in arguments.load for share in arguments.ends for seed in (1, 2, 3)
        ]
        ended = [row for case in cases for row in measure_ending(traces, *case)]
        print_rows(ended, arguments.format, "Where jobs end")
        return
    rows: list[Row] = []
    for load in arguments.load:
        rows += measure(traces, load, arguments.arrivals, range(1, arguments.seeds + 1))
    if arguments.format == "table":
        print_rows(goals(rows), "table", "Goals")
    print_rows(rows, arguments.format, "GPUs handed out until nothing fits")


def measure(traces: Path, load: str, arrivals: float, seeds: range) -> list[Row]:
    """Return a row per placement, over seeds."""
    capacity, asked = read_nodes(traces), read_asked(traces, load)
    usual = usual_of(asked)
    found: dict[str, list[Filled]] = {}
    for seed in seeds:
        note(f"{load}, seed {seed} of {seeds[-1]}")
        jobs = asked[drawn(asked[:, GPU], arrivals * int(capacity[GPU].sum()), seed)]
        ways = {OURS: Gradient(usual).place, PUBLISHED: Gradient(usual, 0.0).place, **peers(capacity, seed)}
        for name, place in ways.items():
            found.setdefault(name, []).append(fill(capacity, jobs, place))
    floor_ms = [took for run in found[BEST_FIT] for took in run.took_ms]
    best = max(_mean_pct(runs) for name, runs in found.items() if name not in (OURS, PUBLISHED))
    return [
        {
            "load": load,
            "placed by": name,
            "allocated %": round(_mean_pct(runs), 2),
            "least": round(min(run.allocated_pct for run in runs), 2),
            "most": round(max(run.allocated_pct for run in runs), 2),
            "paper %": PAPER.get(name) if load == LOADS[0] else None,
            "idle / best peer's": round((100 - _mean_pct(runs)) / (100 - best), 3),
            "turned away": round(float(numpy.mean([run.turned_away for run in runs]))),
            **_times([took for run in runs for took in run.took_ms], floor_ms),
        }
        for name, runs in found.items()
    ]


def _mean_pct(runs: list[Filled]) -> float:
    return float(numpy.mean([run.allocated_pct for run in runs]))


def _times(took_ms: list[float], floor_ms: list[float]) -> Row:
    p50_ms, p99_ms = numpy.percentile(took_ms, (50, 99)).round(3).tolist()
    ratio = float(numpy.mean(took_ms) / numpy.mean(floor_ms))
    return {"p50 (ms)": p50_ms, "p99 (ms)": p99_ms, "mean / best fit's": round(ratio, 2)}


def read_nodes(traces: Path) -> Ints:
    """Return the capacity of the trace's nodes (rows × nodes), with GPUs listed separately."""
    nodes = pandas.read_csv(traces / "gpu" / "openb_node_list_gpu_node.csv.gz")
    plain = [nodes["cpu_milli"], nodes["memory_mib"], nodes["gpu"] * MILLI]
    return with_gpus(numpy.array(plain, dtype=numpy.int64))


def read_asked(traces: Path, load: str) -> Ints:
    """Return what the jobs of a trace requested (jobs × resources)."""
    pods = pandas.read_csv(traces / "gpu" / f"openb_pod_list_{load}.csv.gz")
    plain = [pods["cpu_milli"], pods["memory_mib"], pods["num_gpu"] * pods["gpu_milli"]]
    return numpy.array(plain, dtype=numpy.int64).T


def drawn(gpu_milli: Ints, until_milli: float, seed: int) -> Ints:
    """Return indices of a trace's jobs in the order of arrival: all of them, and more drawn again up to this demand."""
    draw = numpy.random.default_rng(seed)
    order = draw.permutation(len(gpu_milli))
    again = draw.integers(0, len(gpu_milli), len(gpu_milli))
    chosen = numpy.concatenate([order, again])
    found: Ints = chosen[gpu_milli[chosen].cumsum() <= until_milli]
    return draw.permutation(found)


def fill(capacity: Ints, jobs: Ints, place: Place) -> Filled:
    """Place jobs one after the other on an empty cluster."""
    room = Room(capacity.copy(), amounts_of(capacity[:PLAIN].sum(axis=1)))
    turned_away, took_ms = 0, []
    for row in jobs.tolist():
        demand = tuple(row)
        begin_s = time.perf_counter()
        parts = place(room, demand)
        took_ms.append(1000 * (time.perf_counter() - begin_s))
        if parts is None:
            turned_away += 1
        else:
            room.take(parts)
    idle = room.free[GPU].sum() / capacity[GPU].sum()
    return Filled(100 * (1 - float(idle)), turned_away, took_ms)


def measure_ending(traces: Path, load: str, share: float, seed: int) -> list[Row]:
    """Return a row per placement, for jobs that end."""
    note(f"{load}, {share:g} of the GPUs asked for, seed {seed}")
    capacity, draw = read_nodes(traces)[:, ::EVERY], numpy.random.default_rng(seed)
    asked = read_asked(traces, load)
    asked = asked[draw.integers(0, len(asked), JOBS)]
    run_s = draw.exponential(RUN_S, JOBS).clip(min=1)
    gap_s = float((asked[:, GPU] * run_s).mean()) / (share * float(capacity[GPU].sum()))
    submit_s = draw.exponential(gap_s, JOBS).cumsum()
    jobs = workload(submit_s, run_s, asked)
    rows: list[Row] = []
    for name in SINGLE_GPUS:
        cluster = Cluster(capacity=capacity, speeds=(1.0,) * capacity.shape[1])
        policy = policies(["fifo-fit"], way_to_place(name, jobs))["fifo-fit"]
        found = figures(simulate(jobs, cluster, policy, until_s=float(submit_s[-1])))
        rows.append(
            {
                "load": load,
                "asked for": share,
                "seed": seed,
                "placed by": name,
                "allocated %": round(100 * found.gpu_allocated, 2),
                "mean wait (s)": round(found.mean_wait_s, 1),
                "still waiting": found.queued,
            }
        )
    return rows


def goals(rows: list[Row]) -> list[Row]:
    """Return how ours compares with the paper's figure, and with the best peer of the same run."""
    ours = [row for row in rows if row["placed by"] == OURS]
    found = [
        goal(
            "idle GPUs / best peer's",
            str(row["load"]),
            float(str(row["idle / best peer's"])),
            1.0,
            at_most=True,
        )
        for row in ours
    ]
    found += [
        goal(
            "allocated %",
            f"{row['load']}, as the paper",
            float(str(row["allocated %"])),
            PAPER[PUBLISHED],
            at_most=False,
        )
        for row in ours
        if row["load"] == LOADS[0]
    ]
    return found


if __name__ == "__main__":
    main()
