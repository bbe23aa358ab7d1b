"""The resource-demand paper's experiments 1 to 3, on a load made up from its published averages.

    python -m bench.paper_experiments [--seeds 5] [--plots DIR] [--format table|json|csv]

Algorithm 2 on 384 cores, 2 TB and 32 GPUs for 12 h (bench/paper_load.py says what of the load is published and what
is assumed): jobs in order, each scaled when it comes, on the servers with the least left, over several if
necessary. There are five ways of sizing, all on the same arrivals; the last is the fourth with
`policy.most_slowdown` at 0.2: each job may be expected to run a fifth longer. "as the paper": a scaled job runs as
long as before, and none dies. "work stays": a job with fewer cores or less of a GPU than it keeps busy runs longer,
and one with less memory than its peak dies half-way and comes back with its request. Figures are means over seeds;
learning is from 8,000 earlier jobs of the first mix.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec
import numpy

from bench.arguments import parser_of
from bench.paper_cases import BORNE_SLOWDOWN, LOADS, MAIN_MIX, MOST_LOAD, PREMISES, WAYS, Case, Measured
from bench.paper_load import (
    ALIKE,
    DIFFERENT,
    HABITS,
    HOUR_S,
    HOURS,
    KINDS,
    MIXES,
    paper_cluster,
    paper_load,
    past_jobs,
)
from bench.paper_sizing import own_sizing
from models.run_time.adaptive_scaling import Scaling
from models.run_time.strategy import TypeModel, type_model
from models.scheduling.ordering import ORDERINGS
from models.scheduling.placement import SPREAD
from models.simulation.adaptive import AdaptiveScaling
from models.simulation.engine import Hooks, Policy, simulate
from models.simulation.hooks import Sizing, slowed_by_cpus
from models.simulation.results import Figures, Outcome, Results, figures
from models.simulation.workload import Workload, poisson_arrivals
from slurm_plugin.cli.output import note, print_rows

PAST_JOBS, PAST_SEED = 8000, 20200701
# For each type; more makes the models slower, not better.
LEARNED_FROM = 400
# What the paper reports at 70 jobs an hour; it does not say whether shares are points or per cent.
PAPER = {"deployed %": 25.3, "completion": 15.2, "GPU": 7.2, "memory": 8.0, "CPU": -2.0, "CPU asked %": -28.5}
Row = dict[str, object]


class Past(msgspec.Struct, frozen=True):
    """Earlier jobs by their users' habits, and what Algorithm 1's models learned of use and run times."""

    jobs: dict[str, Workload]
    kinds: dict[int, TypeModel]


def main() -> None:
    """Run the three experiments and print them."""
    parser = parser_of(__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--plots", type=Path, help="draw into this folder (it is made if need be)")
    arguments = parser.parse_args()
    past = learn_past()
    run = partial(measure, past=past, seeds=arguments.seeds)
    note("experiment 1: FIFO, growing load")
    first = {case: run(case) for case in experiment_1()}
    print_rows(
        against_paper(first),
        arguments.format,
        f"Experiment 1 at {MOST_LOAD} jobs/h, changes against «as asked» (made-up load)",
    )
    print_rows([row_of(*item) for item in first.items()], arguments.format, "Experiment 1 (made-up load)")
    note("experiment 2: mixes of types")
    second = {case: run(case) for case in experiment_2()}
    print_rows([row_of(*item) for item in second.items()], arguments.format, "Experiment 2 (made-up load)")
    note("experiment 3: orders")
    third = {case: run(case) for case in experiment_3()}
    print_rows([row_of(*item) for item in third.items()], arguments.format, "Experiment 3 (made-up load)")
    if arguments.plots:
        from bench.paper_plots import draw, draw_over_time

        over_time = {
            way: run_case(Case(load=MOST_LOAD, way=way, premise=PREMISES[1]), past, 0) for way in WAYS
        }
        for file in (
            *draw(first, second, third, arguments.plots),
            draw_over_time(over_time, arguments.plots),
        ):
            note(f"drawn: {file}")


def experiment_1() -> list[Case]:
    """FIFO at growing load, in all ways and under both premises; at the highest load also with dissimilar users."""
    loads = [(load, ALIKE) for load in LOADS] + [(MOST_LOAD, DIFFERENT)]
    return [
        Case(load=load, way=way, premise=premise, habits=habits)
        for load, habits in loads
        for premise in PREMISES
        for way in WAYS
    ]


def experiment_2() -> list[Case]:
    """Two mixes of types at growing load."""
    return [
        Case(load=load, way=way, mix=mix, premise=PREMISES[1])
        for mix in MIXES
        for load in LOADS[1::2] + LOADS[-1:]
        for way in WAYS
    ]


def experiment_3() -> list[Case]:
    """FIFO, SRTF and DRF at the highest load."""
    return [
        Case(load=MOST_LOAD, way=way, ordering=ordering, premise=PREMISES[1])
        for ordering in ("fifo", "srtf", "drf")
        for way in WAYS
    ]


def learn_past() -> Past:
    """Make the earlier jobs, and train Algorithm 1's models on them."""
    jobs = {habits: earlier_jobs(habits) for habits in HABITS}
    kinds: dict[int, TypeModel] = {}
    for number, kind in enumerate(KINDS):
        note(f"learning {kind.name}")
        model = type_model(past_jobs(jobs[ALIKE], number).latest(LEARNED_FROM))
        if isinstance(model, TypeModel):
            note(f"  run time depends on {', '.join(sorted(model.important))}")
            kinds[number] = model
        else:
            note(f"  not learned: {model.reason}")
    return Past(jobs, kinds)


def earlier_jobs(habits: str) -> Workload:
    """Return earlier jobs of the first mix."""
    draw = numpy.random.default_rng(PAST_SEED)
    arrivals_s = numpy.sort(draw.uniform(0, PAST_JOBS * HOUR_S, PAST_JOBS))
    return paper_load(arrivals_s, MIXES[MAIN_MIX], draw, habits)


def measure(case: Case, *, past: Past, seeds: int) -> Measured:
    """Return the means over seeds of one case; a seed's arrivals are the same for every way."""
    each = [msgspec.structs.astuple(once(case, past, seed)) for seed in range(seeds)]
    return Measured(**dict(zip(Measured.__struct_fields__, numpy.mean(each, axis=0).tolist(), strict=True)))


def once(case: Case, past: Past, seed: int) -> Measured:
    """Run one case once."""
    results = run_case(case, past, seed)
    load, found = results.jobs, figures(results)
    return Measured(
        deployed=found.finished + found.running,
        completion=found.completion,
        finished_of_all=found.finished_of_all,
        cpu=found.cpu_allocated,
        mem=found.mem_allocated,
        gpu=found.gpu_allocated,
        gpu_used=found.gpu_used,
        cpu_asked=first_cpu_share(results),
        stretch=stretch(results, found),
        failures=float(results.failures.sum()) / max(1, len(load)),
    )


def run_case(case: Case, past: Past, seed: int) -> Results:
    """Simulate one case."""
    draw = numpy.random.default_rng((seed, case.load))
    load = paper_load(poisson_arrivals(case.load, HOURS, draw), MIXES[case.mix], draw, case.habits)
    hooks = Hooks(sizing=sizing_of(case, load, past))
    if case.premise == "work stays":
        hooks = msgspec.structs.replace(hooks, run_time=slowed_by_cpus(load))
    else:
        hooks = msgspec.structs.replace(hooks, kills=False)
    policy = Policy(ordering=ORDERINGS[case.ordering], start="greedy", placement=SPREAD)
    return simulate(load, paper_cluster(), policy, hooks, until_s=HOURS * HOUR_S)


def sizing_of(case: Case, load: Workload, past: Past) -> Sizing | None:
    """Return what decides grants in a case."""
    if case.way in BORNE_SLOWDOWN:
        return own_sizing(load, past.jobs[case.habits], BORNE_SLOWDOWN[case.way])
    if case.way == "as asked":
        return None
    return AdaptiveScaling(load, past.kinds, Scaling(), bounded=case.way == "Algorithm 1, bounded")


def first_cpu_share(results: Results) -> float:
    """Return the CPUs granted over those requested, for all jobs that came."""
    came = results.outcome != Outcome.ABSENT
    return float(results.granted[came, 0].sum() / max(1, results.jobs.asked[came, 0].sum()))


def stretch(results: Results, found: Figures) -> float:
    """Return the run time of started jobs over that with their requests, including lost runs."""
    if not found.deployed:
        return 1.0
    last_s = numpy.zeros(len(results.jobs))
    lost_s = numpy.zeros(len(results.jobs))
    for run in results.runs:
        lost_s[run.number] += last_s[run.number]
        last_s[run.number] = run.end_s - run.start_s
    # Jobs that wait for a second run have no run time yet.
    lives = numpy.isin(results.outcome, (Outcome.RUNNING, Outcome.COMPLETED))
    lives &= (results.jobs.used[:, 1] <= results.granted[:, 1]) | (results.failures.sum() == 0)
    return float(((last_s + lost_s)[lives] / results.jobs.run_s[lives]).mean())


def against_paper(measured: dict[Case, Measured]) -> list[Row]:
    """Return the changes against "as asked" at the highest load, next to the paper's.

    Changes of jobs, requests and run time are in per cent; those of completion and utilisation, which are per cent
    already, in points.
    """
    rows: list[Row] = [
        {
            "way": "the paper's figures",
            "premise": "-",
            "users over-ask": "-",
            **PAPER,
            "run time %": None,
            "failed %": None,
        }
    ]
    for habits, premise in ((habits, premise) for habits in HABITS for premise in PREMISES):
        base = measured[Case(load=MOST_LOAD, way="as asked", premise=premise, habits=habits)]
        for way in WAYS[1:]:
            found = measured[Case(load=MOST_LOAD, way=way, premise=premise, habits=habits)]
            rows.append(
                {
                    "way": way,
                    "premise": premise,
                    "users over-ask": habits,
                    "deployed %": percent(found.deployed, base.deployed),
                    "completion": points(found.completion, base.completion),
                    "GPU": points(found.gpu, base.gpu),
                    "memory": points(found.mem, base.mem),
                    "CPU": points(found.cpu, base.cpu),
                    "CPU asked %": percent(found.cpu_asked, base.cpu_asked),
                    "run time %": percent(found.stretch, base.stretch),
                    "failed %": round(100 * found.failures, 2),
                }
            )
    return rows


def percent(found: float, base: float) -> float:
    """Return a relative change in per cent."""
    return round(100 * (found / base - 1), 1) if base else 0.0


def points(found: float, base: float) -> float:
    """Return the difference of two shares in points."""
    return round(100 * (found - base), 1)


def row_of(case: Case, found: Measured) -> Row:
    """Return a case and its figures as a row."""
    return {
        "mix": case.mix,
        "order": case.ordering.upper(),
        "premise": case.premise,
        "users over-ask": case.habits,
        "jobs/h": case.load,
        "way": case.way,
        "deployed": round(found.deployed, 1),
        "completion %": round(100 * found.completion, 1),
        "finished of all %": round(100 * found.finished_of_all, 1),
        "CPU %": round(100 * found.cpu, 1),
        "GPU %": round(100 * found.gpu, 1),
        "memory %": round(100 * found.mem, 1),
        "GPU busy %": round(100 * found.gpu_used, 1),
        "run time": round(found.stretch, 3),
        "failed %": round(100 * found.failures, 2),
    }


if __name__ == "__main__":
    main()
