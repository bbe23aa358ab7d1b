"""What means of busy cores say about the next job and about peaks, on public traces: the basis of docs/decisions/0029.

    python -m bench.core_means [--traces DIR] [--show next|peaks] [--format table|json|csv]

`next`: jobs of the four workflows whose name was known from three jobs or more when they were submitted, of which
the middle one kept between 90 and 100 % of k cores busy and none more than k; and how many of them then used more
than k. `peaks`: jobs of SURF's week (16 CPUs, a sample every 30 s) whose mean is just below k; how many have a
sample above k, and how much longer they would run with k CPUs if the excess work were done afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy
import pandas

from bench.arguments import add_traces, folder_with, parser_of
from bench.memory_traces import NEXTFLOW, WORKFLOWS, Trace, read_trace
from models.demand.threads import LEAST_WITH_MORE
from models.demand.too_few import BUSY_SHARE
from slurm_plugin.cli.output import print_rows

RECENT_JOBS = 50
ONE, SEVERAL = "1", "2 and more"
LEAST_SAMPLES = 4
SHOWN_CORES = (1, 2, 3, 4, 6, 8, 12)


class Spoken(msgspec.Struct, frozen=True):
    """A job whose name's past says that it needs at most `whole` cores, and by how much it used more."""

    trace: str
    name: str
    whole: int
    excess: float


def main() -> None:
    """Print both tables, or one."""
    parser = parser_of(__doc__)
    add_traces(parser)
    parser.add_argument("--show", choices=["next", "peaks"])
    arguments = parser.parse_args()
    traces = folder_with(arguments.traces, NEXTFLOW)
    if arguments.show != "peaks":
        spoken = [one for name in WORKFLOWS for one in spoken_of(read_trace(traces, name))]
        print_rows(next_rows(spoken), arguments.format, "The next job")
    if arguments.show != "next":
        print_rows(peak_rows(read_samples(traces / "slurm")), arguments.format, "Peaks of SURF's jobs")


def spoken_of(trace: Trace) -> Iterator[Spoken]:
    """Yield the jobs of a trace whose past lies just below a whole number of cores."""
    jobs = trace.jobs[trace.jobs["used_cores"] > 0]
    for name, of_name in jobs.groupby("job_name"):
        by_end = of_name.sort_values("end", kind="stable")
        ends, used = by_end["end"].to_numpy(), by_end["used_cores"].to_numpy()
        for submit_s, cores in zip(of_name["submit_time"], of_name["used_cores"], strict=True):
            ended = int(numpy.searchsorted(ends, submit_s, side="left"))
            past = used[max(0, ended - RECENT_JOBS) : ended]
            if ended < LEAST_WITH_MORE:
                continue
            whole = int(numpy.ceil(past.max()))
            if numpy.median(past) >= BUSY_SHARE * whole:
                yield Spoken(trace.name, str(name), whole, float(cores) / whole - 1)


def next_rows(spoken: list[Spoken]) -> list[dict[str, object]]:
    """Return a row for one core and one for several, for each trace and for all."""
    rows: list[dict[str, object]] = []
    for trace in (*WORKFLOWS, "all"):
        for cores in (ONE, SEVERAL):
            found = [s for s in spoken if trace in (s.trace, "all") and (s.whole == 1) == (cores == ONE)]
            more = [one for one in found if one.excess > 0]
            rows.append(
                {
                    "trace": trace,
                    "cores": cores,
                    "jobs": len(found),
                    "used more": len(more),
                    "by at most %": round(100 * max((one.excess for one in more), default=0.0), 1),
                    "names": len({one.name for one in found}),
                    "names that used more": len({one.name for one in more}),
                }
            )
    return rows


def read_samples(folder: Path) -> pandas.DataFrame:
    """Return SURF's samples: `id` of the job, and busy `cores`."""
    jobs = pandas.read_parquet(folder / "surf_week_tasks.parquet").set_index("id")
    samples = pandas.read_parquet(folder / "surf_week_fragments.parquet")
    mhz_a_core = (jobs["cpu_capacity"] / jobs["cpu_count"]).reindex(samples["id"]).to_numpy()
    return pandas.DataFrame({"id": samples["id"], "cores": samples["cpu_usage"] / mhz_a_core})


def peak_rows(samples: pandas.DataFrame) -> list[dict[str, object]]:
    """Return a row for each number of cores: the jobs whose mean is just below it."""
    by_job = samples.groupby("id")["cores"].agg(["mean", "max", "size"])
    by_job = by_job[by_job["size"] >= LEAST_SAMPLES]
    rows: list[dict[str, object]] = []
    for whole in SHOWN_CORES:
        found = by_job[by_job["mean"].between(BUSY_SHARE * whole, whole)]
        beyond = (samples["cores"] - whole).clip(lower=0).groupby(samples["id"]).mean() / whole
        longer = 100 * beyond.reindex(found.index)
        rows.append(
            {
                "cores": whole,
                "jobs": len(found),
                "with a peak above %": round(100 * float((found["max"] > whole).mean()), 1),
                "longer by % (median)": round(float(longer.median()), 1),
                "mean": round(float(longer.mean()), 1),
                "at most": round(float(longer.max()), 1),
            }
        )
    return rows


if __name__ == "__main__":
    main()
