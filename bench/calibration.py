"""Whether as many jobs exceed a bound as it says: nominal against observed shares, on later jobs of public traces.

    python -m bench.calibration [--traces DIR] [--only PATTERN] [--plots DIR] [--format table|json|csv]

Each job is compared with what had ended before it was submitted. `spread` is the spread bound of models/demand/tail.py
with its risk at the nominal share, `tail` is the lower of it and the streak bound, `mapped` is the spread bound with
the risk that the nominal share of earlier jobs exceeded, by size of family; `growth` are the trained models of settled
families with their offsets, fitted on what came before each tenth of the trace. `granted` is the result of all of them:
of the jobs that `rightsizer evaluate --online` cuts with `policy.most_failures` at the nominal share, those that needed
more than they got. That share is of all jobs, and a cut that costs more than it saves is not granted: it may be far
below. `generated` are families of jobs with normal logarithms, independent of time: for them, `expected` is the share
that their true tails give. `shuffled` is each trace with the peaks of jobs of the same name and request permuted: what
holds there and not in the trace itself is due to the order in which jobs end. A need counts up to the request, because
more than that is not a question of sizing.
"""

from __future__ import annotations

import fnmatch
import math
from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import NormalDist

import msgspec
import numpy
import pandas

from bench.arguments import add_traces, folder_with, parser_of
from bench.measured import Point
from bench.memory_peers import moments
from bench.memory_sizing import check_plots
from bench.memory_traces import NEXTFLOW, TRACES, Trace, online_jobs, read_trace
from models.demand.chain import is_settled
from models.demand.features import asked_of, features
from models.demand.tail import LEAST_RISK, PRIOR_JOBS, PRIOR_SPREAD, Stakes, haste_of, rise_log, spread_bound
from models.judging.online import Learner, size_online
from models.past.evidence import PastUse
from models.past.history import History
from models.training.matrix import Matrix, Row, matrix_of
from models.training.quantile import predict
from models.training.training import fit_growth
from slurm_plugin.cli.models.sizing import online_grant
from slurm_plugin.cli.output import note, print_rows
from slurm_plugin.config.settings import Config
from slurm_plugin.service.decide import chain_settings_of

NOMINAL = (0.005, 0.01, 0.02, 0.05)
SIZES = {"1-4": 4, "5-19": 19, "20+": math.inf}
GENERATED = "generated"
FAMILIES, FAMILY_JOBS, SEED = 400, 60, 20260101
FOLDS = 10
# With fewer earlier jobs than this, no risk is mapped.
LEAST_MAPPED = 100
SPREAD, TAIL, MAPPED, GROWTH, GRANTED = "spread", "tail", "mapped", "growth", "granted"


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it was decided, and by how much (logarithm) it then exceeded the highest of its family.

    `true_tail` is the distribution of that excess, if known.
    """

    job_id: str
    size: str
    past: PastUse
    room: float
    weight: float
    growth: float
    inputs: list[float]
    decided_s: float
    end_s: float
    true_tail: NormalDist | None = None


def main() -> None:
    """Measure and print, and plot if asked to."""
    parser = parser_of(__doc__)
    add_traces(parser)
    parser.add_argument("--only", default="*", help="traces whose names fit this pattern")
    parser.add_argument("--plots", type=Path, help="a folder for PNG files")
    arguments = parser.parse_args()
    if arguments.plots:
        check_plots()
    points: list[Point] = []
    for name in fnmatch.filter((*TRACES, GENERATED), arguments.only):
        trace, truth = (
            generated()
            if name == GENERATED
            else (read_trace(folder_with(arguments.traces, NEXTFLOW), name), {})
        )
        variants = [trace] if truth else [trace, shuffled(trace)]
        for variant in variants:
            seen = list(replayed(variant, truth))
            points += [*tail_points(variant.name, seen), *growth_points(variant.name, seen)]
            if variant is trace:
                points += granted_points(trace, seen)
            note(f"{variant.name}: {len(seen)} of {len(variant.jobs)} jobs had a past")
    print_rows([point_row(point) for point in points if point.jobs], arguments.format, "Exceeded, in %")
    if arguments.plots:
        from bench.calibration_plots import plot_bounds

        arguments.plots.mkdir(parents=True, exist_ok=True)
        note(f"wrote {plot_bounds(points, arguments.plots)}")


def generated(families: int = FAMILIES, jobs: int = FAMILY_JOBS) -> tuple[Trace, dict[str, NormalDist]]:
    """Return jobs of log-normal families with spreads of 2 to 50 %, and the distributions by name."""
    noise = numpy.random.default_rng(SEED)
    truth = {
        # Letters only: numbers do not distinguish names.
        f"family-{''.join(chr(97 + int(digit)) for digit in str(number))}": NormalDist(
            noise.uniform(5, 9), math.exp(noise.uniform(math.log(0.02), math.log(0.5)))
        )
        for number in range(families)
    }
    names = numpy.repeat(list(truth), jobs)
    noise.shuffle(names)
    middles, spreads = (
        numpy.asarray([getattr(truth[name], part) for name in names]) for part in ("mean", "stdev")
    )
    submit_s = numpy.arange(len(names)) * 10.0
    # Far above what any job can need, so that no request bounds a tail.
    table = pandas.DataFrame(
        {
            "job_id": [str(number) for number in range(len(names))],
            "user": GENERATED,
            "job_name": names,
            "submit_time": submit_s,
            "start": submit_s,
            "end": submit_s + 5,
            "elapsed_s": 5.0,
            "req_mem_mib": 2.0**30,
            "peak_mem_mib": numpy.exp(noise.normal(middles, spreads)),
        }
    )
    return Trace(name=GENERATED, jobs=table), truth


def shuffled(trace: Trace) -> Trace:
    """Return a trace in which the use of jobs with the same name and request is permuted."""
    noise = numpy.random.default_rng(SEED)
    peaks = trace.jobs.groupby(["job_name", "req_mem_mib"])["peak_mem_mib"].transform(noise.permutation)
    return Trace(name=f"{trace.name} shuffled", jobs=trace.jobs.assign(peak_mem_mib=peaks))


def replayed(trace: Trace, truth: dict[str, NormalDist]) -> Iterator[Seen]:
    """Yield each job that had a past when it was submitted, and requested more than that ever used."""
    history, jobs = History(Config().models.recent_jobs), online_jobs(trace)
    for row, ended in moments(trace, "submit", ()):
        for other in ended:
            history.add(jobs[other].request, jobs[other].past)
        job = jobs[row]
        evidence, asked = history.evidence(job.request, 1), asked_of(job.request, "memory")
        past = None if evidence is None else evidence.use("memory")
        if evidence is None or past is None or asked is None or job.past.mem_mib is None:
            continue
        room = math.log(asked) - past.highest_log
        if room <= 0:
            continue
        tail = truth.get(job.request.job_name)
        yield Seen(
            job_id=job.job_id,
            size=next(name for name, most in SIZES.items() if past.count <= most),
            past=past,
            room=room,
            weight=evidence.weight("memory"),
            growth=math.log(min(max(job.past.mem_mib, 1.0), asked)) - past.highest_log,
            inputs=features(job.request, evidence, history.user_habit(job.request), "memory"),
            decided_s=job.submit_s,
            end_s=job.end_s,
            true_tail=None if tail is None else NormalDist(tail.mean - past.highest_log, tail.stdev),
        )


def implied_risk(past: PastUse, growth: float) -> float:
    """Return the risk at which the spread bound is exactly what a job needed: the inverse of `spread_bound`."""
    freedom = PRIOR_JOBS + past.count - 1
    total = PRIOR_JOBS * PRIOR_SPREAD**2 + 2 * past.above_median
    return float((1 + max(growth, 0.0) ** 2 / total) ** (-freedom / 2))


def tail_points(trace: str, seen: Sequence[Seen]) -> Iterator[Point]:
    """Yield how many jobs exceeded the bounds from their family's own past, by size of family."""
    risks = {nominal: list(mapped_risks(seen, nominal)) for nominal in NOMINAL}
    for nominal in NOMINAL:
        rises = {
            SPREAD: [spread_bound(one.past, nominal) for one in seen],
            TAIL: [
                rise_log(one.past, Stakes(room=one.room, risk=nominal, haste=haste_of(one.weight)))
                for one in seen
            ],
            MAPPED: [
                math.nan if risk is None else spread_bound(one.past, risk)
                for one, risk in zip(seen, risks[nominal], strict=True)
            ],
        }
        for bound, of_all in rises.items():
            for size in SIZES:
                held = [
                    (one, rise)
                    for one, rise in zip(seen, of_all, strict=True)
                    if one.size == size and not math.isnan(rise)
                ]
                yield counted(trace, bound, size, nominal, held)


def counted(trace: str, bound: str, size: str, nominal: float, held: Sequence[tuple[Seen, float]]) -> Point:
    """Return how many of the jobs exceeded their bound, and how many should, by their true tails."""
    tails = [one.true_tail.cdf(rise) for one, rise in held if one.true_tail is not None]
    return Point(
        trace=trace,
        bound=bound,
        size=size,
        nominal=nominal,
        jobs=len(held),
        exceeded=sum(one.growth > rise for one, rise in held),
        expected=1 - sum(tails) / len(tails) if tails else None,
    )


def mapped_risks(seen: Sequence[Seen], nominal: float) -> Iterator[float | None]:
    """Yield for each job the risk exceeded by exactly the nominal share of ended jobs in families of its size.

    Of n jobs, the next one is below the k-th lowest implied risk with probability k / (n + 1) (Vovk et al. 2005).
    """
    waiting = sorted(seen, key=lambda one: one.end_s, reverse=True)
    earlier: defaultdict[str, list[float]] = defaultdict(list)
    for one in seen:
        while waiting and waiting[-1].end_s < one.decided_s:
            other = waiting.pop()
            insort(earlier[other.size], implied_risk(other.past, other.growth))
        known = earlier[one.size]
        place = int(nominal * (len(known) + 1))
        enough = place and len(known) >= LEAST_MAPPED
        yield max(known[place - 1], LEAST_RISK) if enough else None


def growth_points(trace: str, seen: Sequence[Seen]) -> Iterator[Point]:
    """Yield how many settled jobs exceeded the calibrated growth models, fitted before each tenth of the trace."""
    held: defaultdict[float, list[tuple[Seen, float]]] = defaultdict(list)
    for fold in range(1, FOLDS):
        first, last = len(seen) * fold // FOLDS, len(seen) * (fold + 1) // FOLDS
        asked = [one for one in seen[first:last] if is_settled(one.past)]
        before = [one for one in seen[:first] if asked and one.end_s < asked[0].decided_s]
        if not asked or not before:
            continue
        fitted = fit_growth(rows_of(before))
        expected = predict(
            fitted.booster, numpy.asarray([one.inputs for one in asked], numpy.float32)
        ).tolist()
        for nominal in NOMINAL:
            offset = fitted.known.offset(nominal)
            if offset is not None:
                rises = (max(0.0, growth + offset) for growth in expected)
                held[nominal] += zip(asked, rises, strict=True)
    for nominal in NOMINAL:
        yield counted(trace, GROWTH, "20+", nominal, held[nominal])


def granted_points(trace: Trace, seen: Sequence[Seen]) -> Iterator[Point]:
    """Yield how many of the cut jobs get less than they need, by size of family."""
    sizes, jobs = {one.job_id: one.size for one in seen}, online_jobs(trace)
    for nominal in NOMINAL:
        config = _config_for(nominal)
        learner = Learner(chain_settings_of(config), config.models.recent_jobs)
        cut, failed = Counter[str](), Counter[str]()
        for job, granted, _ in size_online(jobs, learner, online_grant(config)):
            asked_mib, got_mib = job.request.mem_mib, granted.mem_mib
            if asked_mib and got_mib and got_mib < asked_mib and job.job_id in sizes:
                need_mib = min(job.past.mem_mib or 0.0, asked_mib)
                cut[sizes[job.job_id]] += 1
                failed[sizes[job.job_id]] += need_mib > got_mib
        for size in SIZES:
            yield Point(
                trace=trace.name,
                bound=GRANTED,
                size=size,
                nominal=nominal,
                jobs=cut[size],
                exceeded=failed[size],
            )


def _config_for(most_failures: float) -> Config:
    config = Config()
    return msgspec.structs.replace(
        config, policy=msgspec.structs.replace(config.policy, most_failures=most_failures)
    )


def rows_of(seen: Iterable[Seen]) -> Matrix:
    """Return the training rows of the growth models, in the order in which the jobs ended."""
    ordered = sorted(seen, key=lambda one: one.end_s)
    # Public traces do not say which jobs were killed: every job counts with what it showed.
    return matrix_of(
        [Row(one.inputs, one.growth, is_settled(one.past), bounded=False, user="") for one in ordered]
    )


def point_row(point: Point) -> dict[str, object]:
    """Return the row of a bound."""
    return {
        "trace": point.trace,
        "bound": point.bound,
        "family": point.size,
        "nominal %": 100 * point.nominal,
        "jobs": point.jobs,
        "observed %": round(100 * point.observed, 2),
        "expected %": None if point.expected is None else round(100 * point.expected, 2),
    }


if __name__ == "__main__":
    main()
