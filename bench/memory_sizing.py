"""What sizing of memory would have saved on public traces, next to what others do, all decided job by job.

    python -m bench.memory_sizing [--traces DIR] [--only PATTERN] [--decide-at submit|start] [--warm SEEDS]
        [--ask-cpus N] [--plots DIR] [--show sizes|goals|cores] [--format table|json|csv]

Ours is `rightsizer evaluate --online` with the default configuration. All methods see the same: the jobs that had ended
before the decided job was submitted (or started). None grants less than 128 MiB or more than was requested. A job that
uses more than it got holds that for its whole run, and then runs again with its request. `waste %` is what was held and
not used, relative to the same with every job as requested. `failed` are jobs that got less than they used, `caused`
those for which the request would have been enough (`worst`: with any seed). With --warm SEEDS, each seed draws 30 % of
the jobs, which count as ended before all others. If a trace has the size of the input when a job is submitted (Galaxy),
ours is shown with and without it. Two methods know the future, and are the floor once a job of a name has ended:
`oracle` uses each job's own peak, `best figure` the one figure for each name that wastes least. A job is short of CPUs
if it kept more cores busy on average than it was granted. With --ask-cpus every job asks for at least that many CPUs:
most of these workflows ask for hardly more than they use, which is not what people do.
"""

from __future__ import annotations

import fnmatch
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy
import numpy.typing
import pandas

from accounting.errors import install_with
from bench.arguments import add_traces, folder_with, parser_of, print_tables
from bench.measured import Sizing
from bench.memory_peers import ORACLE, PEERS, Highest, Oracle, sized_by
from bench.memory_traces import NEXTFLOW, TRACES, Trace, read_trace
from models.judging.online import DecideAt
from models.run_time.importance import Floats
from slurm_plugin.cli.models.evaluate import evaluate_online
from slurm_plugin.cli.output import note
from slurm_plugin.config.settings import Config

Flags = numpy.typing.NDArray[numpy.bool_]
REQUEST, OURS, COLD = "request", "rightsizer", "nothing"
FORESIGHT = "best figure"
# Ours without knowing how large the input is.
BLIND, INPUT = "rightsizer, no input", "input_mib"
FLOOR_MIB = 128.0
WARM_SHARE = 0.3
MOST_FAILED, LEAST_OF_ORACLE, WARM_PEER = 0.01, 0.8, "Tovar"
SHOWN = ("sizes", "goals", "cores")
# What CSV files round away is not a failure.
ROUNDING = 1e-6
GIB_HOURS = 1 / 1024 / 3600


class Cores(msgspec.Struct, frozen=True, kw_only=True):
    """CPUs of one method on one trace: core hours granted and not used, and the share of jobs with fewer than used."""

    trace: str
    known: str
    method: str
    jobs: int
    granted_h: float
    unused_h: float
    short: float


def main() -> None:
    """Measure and print, and plot where asked."""
    parser = parser_of(__doc__)
    add_traces(parser)
    parser.add_argument("--only", default="*", help="traces whose names fit this pattern")
    parser.add_argument("--decide-at", choices=["submit", "start"], default="submit")
    parser.add_argument("--warm", type=int, default=0, metavar="SEEDS", help="also warm, with so many seeds")
    parser.add_argument(
        "--ask-cpus", type=int, default=0, metavar="N", help="as if each job asked for so many"
    )
    parser.add_argument("--plots", type=Path, help="a folder for a PNG file")
    parser.add_argument("--show", choices=SHOWN, help="one table; else all, of json and csv the sizes")
    arguments = parser.parse_args()
    names = [name for name in TRACES if fnmatch.fnmatch(name, arguments.only)]
    if not names:
        sys.exit(f"no trace fits {arguments.only}; there are {', '.join(TRACES)}")
    if arguments.plots:
        check_plots()
    sizings: list[Sizing] = []
    cores: list[Cores] = []
    for name in names:
        trace = read_trace(folder_with(arguments.traces, NEXTFLOW), name).asking(arguments.ask_cpus)
        for seed in (None, *range(arguments.warm)):
            ours, theirs = measure(trace, arguments.decide_at, seed)
            sizings += ours
            cores += theirs
    tables = {
        "sizes": (f"Memory, sized at {arguments.decide_at}", size_rows(sizings)),
        "goals": ("Goals", goals(sizings)),
        "cores": ("CPUs", [core_row(one) for one in cores if one.jobs and one.known == COLD]),
    }
    print_tables(tables, arguments)
    if arguments.plots:
        from bench.memory_plots import plot_sizings

        arguments.plots.mkdir(parents=True, exist_ok=True)
        note(f"wrote {plot_sizings(sizings, arguments.plots, arguments.decide_at)}")


def check_plots() -> None:
    """Exit, before anything is measured, if matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        sys.exit(f"--plots needs matplotlib, which is not installed: {install_with('plots')}")


def measure(trace: Trace, decide_at: DecideAt, seed: int | None) -> tuple[list[Sizing], list[Cores]]:
    """Return each method's results on a trace: cold, or with the jobs drawn by a seed known before."""
    warm = frozenset[str]() if seed is None else drawn(trace, seed)
    known = COLD if seed is None else f"warm {seed}"
    since = time.perf_counter()
    mine = sized_by_us(trace, decide_at, warm)
    note(f"{trace.name}, {known} known before: {len(trace.jobs)} jobs in {time.perf_counter() - since:.1f} s")
    jobs = trace.without(warm)
    rows = ~trace.jobs["job_id"].isin(list(warm)).to_numpy()
    silent = numpy.full(len(jobs.jobs), math.nan)
    blind = {BLIND: without_input(trace)} if INPUT in trace.jobs else {}
    given = {REQUEST: silent, OURS: mine.reindex(jobs.jobs["job_id"])["alloc_mem_mib"].to_numpy(float)}
    for method, same in blind.items():
        found = sized_by_us(same, decide_at, warm).reindex(jobs.jobs["job_id"])
        given[method] = found["alloc_mem_mib"].to_numpy(float)
    for method, make in {**PEERS, ORACLE: Oracle}.items():
        given[method] = sized_by(make, trace, decide_at, warm)[rows]
    given[FORESIGHT] = best_figures(jobs, ~numpy.isnan(given[ORACLE]))
    cores = {
        REQUEST: silent,
        OURS: mine.reindex(jobs.jobs["job_id"])["alloc_cpus"].to_numpy(float),
        "family's maximum": sized_by(lambda: Highest(cores=True), trace, decide_at, warm)[rows],
    }
    return (
        [sizing_of(jobs, known, method, amounts) for method, amounts in given.items()],
        [cores_of(jobs, known, method, amounts) for method, amounts in cores.items()],
    )


def without_input(trace: Trace) -> Trace:
    """Return the same jobs without the size of their input."""
    return Trace(name=trace.name, jobs=trace.jobs.drop(columns=INPUT))


def best_figures(trace: Trace, sized: Flags) -> Floats:
    """Return each name's single figure that wastes least over its `sized` jobs (MiB by row), NaN for other rows.

    Anybody who grants a name one figure wastes no less, even knowing the future.
    """
    names, run_s = trace.jobs["job_name"].to_numpy(), trace.column("elapsed_s")
    asked, peak = trace.column("req_mem_mib"), trace.column("peak_mem_mib")
    best = numpy.full(len(peak), math.nan)
    for name in dict.fromkeys(names[sized]):
        rows = sized & (names == name)
        best[rows] = min(
            numpy.unique(numpy.append(peak[rows], asked[rows])),
            key=lambda mib, of=rows: float(  # type: ignore[misc]
                (held_by_all(asked[of], peak[of], granted(asked[of], mib))[0] * run_s[of]).sum()
            ),
        )
    return best


def drawn(trace: Trace, seed: int) -> frozenset[str]:
    """Return the ids of the jobs that a seed makes known before all others."""
    ids = trace.jobs["job_id"].to_numpy()
    chosen = numpy.random.default_rng(seed).permutation(len(ids))[: round(WARM_SHARE * len(ids))]
    return frozenset(ids[chosen])


def sized_by_us(trace: Trace, decide_at: DecideAt, warm: frozenset[str]) -> pandas.DataFrame:
    """Return alloc_mem_mib and alloc_cpus by job id, as `rightsizer evaluate --online` writes them."""
    with tempfile.TemporaryDirectory() as folder:
        table, grants, ids = (Path(folder) / name for name in ("jobs.csv", "grants.csv", "warm.txt"))
        trace.jobs.to_csv(table, index=False)
        ids.write_text("\n".join(sorted(warm)), encoding="utf-8")
        evaluate_online(Config(), table, grants, decide_at, ids if warm else None)
        return pandas.read_csv(grants, dtype={"job_id": str, "reason": str}).set_index("job_id")


def sizing_of(trace: Trace, known: str, method: str, given_mib: Floats) -> Sizing:
    """Score what a method gave the jobs of a trace, NaN where it made no statement."""
    asked, peak = trace.column("req_mem_mib"), trace.column("peak_mem_mib")
    first = granted(asked, numpy.where(numpy.isnan(given_mib), asked, given_mib))
    held, failed = held_by_all(asked, peak, first)
    run_s = trace.column("elapsed_s")
    wasted = float(((held - peak) * run_s).sum())
    as_asked = float(((held_by_all(asked, peak, asked)[0] - peak) * run_s).sum())
    return Sizing(
        trace=trace.name,
        known=known,
        method=method,
        jobs=len(peak),
        sized=float((first < asked).mean()),
        waste=wasted / as_asked,
        failed=float(failed.mean()),
        caused=float((failed & (peak <= asked * (1 + ROUNDING))).mean()),
        failed_gib_h=float((first * run_s)[failed].sum()) * GIB_HOURS,
    )


def granted(asked: Floats, mib: Floats | float) -> Floats:
    """Return what a job is given for a method's figure: no less than the floor, no more than requested."""
    return numpy.minimum(numpy.maximum(mib, FLOOR_MIB), asked)


def held_by_all(asked: Floats, peak: Floats, first: Floats) -> tuple[Floats, Flags]:
    """Return what each job held over its runs, and which jobs failed: reruns have the request, then twice as much."""
    given = numpy.maximum(first, 1.0)
    held, runs = given.copy(), numpy.ones(len(given))
    while (short := peak > given * (1 + ROUNDING)).any():
        back = (runs == 1) & (asked > given)
        given = numpy.where(short, numpy.where(back, asked, given * 2), given)
        held += numpy.where(short, given, 0.0)
        runs += short
    return held, runs > 1


def cores_of(trace: Trace, known: str, method: str, given: Floats) -> Cores:
    """Sum up the CPUs of jobs whose cores are known; NaN means as requested, and no job gets more."""
    asked, used, run_h = (
        trace.column("req_cpus"),
        trace.column("used_cores"),
        trace.column("elapsed_s") / 3600,
    )
    granted = numpy.fmin(given, asked)
    told = (used > 0) & (asked > 0)
    return Cores(
        trace=trace.name,
        known=known,
        method=method,
        jobs=int(told.sum()),
        granted_h=float((granted * run_h)[told].sum()),
        unused_h=float((numpy.maximum(granted - used, 0) * run_h)[told].sum()),
        # A job that keeps more threads busy than it requested CPUs was never given them.
        short=float((granted < numpy.minimum(used, asked))[told].mean()) if told.any() else math.nan,
    )


def size_rows(sizings: Sequence[Sizing]) -> list[dict[str, object]]:
    """Return a row for each trace and method, as means over the seeds that made some jobs known before."""
    groups: dict[tuple[str, str, str], list[Sizing]] = {}
    for one in sizings:
        groups.setdefault((one.trace, known_of(one), one.method), []).append(one)

    def mean(found: Sequence[Sizing], figure: Callable[[Sizing], float], digits: int) -> float:
        return round(statistics.mean(map(figure, found)), digits)

    return [
        {
            "trace": trace,
            "known": known,
            "method": method,
            "jobs": found[0].jobs,
            "sized %": mean(found, lambda one: 100 * one.sized, 1),
            "waste %": mean(found, lambda one: 100 * one.waste, 1),
            "failed %": mean(found, lambda one: 100 * one.failed, 2),
            "caused %": mean(found, lambda one: 100 * one.caused, 2),
            "worst %": round(100 * max(one.caused for one in found), 2),
            "failed GiB h": mean(found, lambda one: one.failed_gib_h, 2),
        }
        for (trace, known, method), found in groups.items()
    ]


def known_of(one: Sizing) -> str:
    """Return what was known before all others, in words."""
    return one.known if one.known == COLD else f"{WARM_SHARE:.0%}"


def core_row(one: Cores) -> dict[str, object]:
    """Return the row of a method's CPUs."""
    return {
        "trace": one.trace,
        "method": one.method,
        "jobs": one.jobs,
        "granted core h": round(one.granted_h, 1),
        "not used core h": round(one.unused_h, 1),
        "short %": round(100 * one.short, 2) if one.jobs else None,
    }


def goals(sizings: Sequence[Sizing]) -> list[dict[str, object]]:
    """Return a row for each goal and trace: our figure, the figure it is compared with, and whether the goal is met."""
    rows: list[dict[str, object]] = []
    for trace in dict.fromkeys(one.trace for one in sizings):
        cold = {one.method: one for one in sizings if one.trace == trace and one.known == COLD}
        ours, best = cold[OURS], min((cold[peer] for peer in PEERS), key=lambda peer: peer.waste)
        kept = ours.caused <= MOST_FAILED
        rows.append(_goal(trace, "failed % that were caused", 100 * ours.caused, 100 * MOST_FAILED, kept))
        told = f"waste % of the best peer ({best.method}, {best.caused:.1%} failed)"
        rows.append(_goal(trace, told, 100 * ours.waste, 100 * best.waste, kept and ours.waste <= best.waste))
        saved = (1 - ours.waste) / (1 - cold[ORACLE].waste)
        rows.append(
            _goal(
                trace,
                "% of the oracle's saving",
                100 * saved,
                100 * LEAST_OF_ORACLE,
                saved >= LEAST_OF_ORACLE,
            )
        )
        warm = [one for one in sizings if one.trace == trace and one.known != COLD]
        if warm:
            mine, peer = (
                statistics.mean(one.waste for one in warm if one.method == method)
                for method in (OURS, WARM_PEER)
            )
            worst = max(one.caused for one in warm if one.method == OURS)
            told = f"warm: waste % of {WARM_PEER} (ours fail at most {worst:.1%})"
            rows.append(_goal(trace, told, 100 * mine, 100 * peer, mine <= peer and worst <= MOST_FAILED))
    return rows


def _goal(trace: str, told: str, ours: float, against: float, holds: bool) -> dict[str, object]:
    return {
        "trace": trace,
        "goal": told,
        "ours": round(ours, 2),
        "against": round(against, 2),
        "holds": "yes" if holds else "no",
    }


if __name__ == "__main__":
    main()
