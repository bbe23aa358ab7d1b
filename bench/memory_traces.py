"""The public traces on which memory is sized: every job's request, use, arrival and end.

From the nextflow traces, every completed job with a measured peak is taken; its name is its process, its user the
trace, its account the first part of the process. From Galaxy's, every job whose tool requests an amount is taken;
the data lack their ends, so that each counts as one hour. The size of their input is known at submission. For the
nextflow tasks, only what they read is recorded, and only after the run: it is left out.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec
import numpy
import pandas

from models.judging.online import OnlineJob
from models.judging.online_table import read_jobs
from models.run_time.importance import Floats

NEXTFLOW = "memory/nextflow_*.csv.gz"
WORKFLOWS = ("chipseq", "eager", "iwd", "methylseq")
GALAXY = "galaxy"
TRACES = (*WORKFLOWS, GALAXY)
GALAXY_RUN_S = 3600.0
MIB, GIB_IN_MIB, MS = 2.0**20, 1024.0, 1000.0
# For shorter times, a task's own clock shows nothing.
LEAST_RUN_S = 1.0
FIGURES = (
    "submit_time", "start", "end", "elapsed_s", "req_mem_mib", "peak_mem_mib", "used_cores",
)  # fmt: skip
DIGITS = 3


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of one trace in the order of submission, with the columns of models/judging/online_table.py."""

    name: str
    jobs: pandas.DataFrame

    def column(self, name: str) -> Floats:
        """Return one column of figures."""
        return self.jobs[name].to_numpy(numpy.float64)

    def without(self, ids: frozenset[str]) -> Trace:
        """Return the same trace without some of its jobs."""
        return Trace(name=self.name, jobs=self.jobs[~self.jobs["job_id"].isin(ids)].reset_index(drop=True))

    def asking(self, cpus: int) -> Trace:
        """Return the same trace as if each job that requested CPUs had requested at least this many."""
        return Trace(name=self.name, jobs=self.jobs.assign(req_cpus=self.jobs["req_cpus"].clip(lower=cpus)))


def read_trace(traces: Path, name: str) -> Trace:
    """Return one of TRACES from the folder of traces."""
    if name == GALAXY:
        jobs = _galaxy(traces / "memory" / "galaxy_eu_jobs.csv.gz")
    else:
        jobs = _nextflow(traces / "memory" / f"nextflow_{name}.csv.gz", name)
    jobs = jobs.sort_values(["submit_time", "job_id"], kind="stable").reset_index(drop=True)
    return Trace(name=name, jobs=jobs.round(dict.fromkeys(FIGURES, DIGITS)))


def _nextflow(file: Path, name: str) -> pandas.DataFrame:
    columns = [
        "task_id", "process", "status", "submit", "start", "complete", "realtime", "memory", "peak_rss", "cpus", "%cpu",
    ]  # fmt: skip
    table = pandas.read_csv(file, usecols=columns, dtype=str)
    table = table[table["status"] == "COMPLETED"]
    figures = {
        column: pandas.to_numeric(table[column], errors="coerce").astype(float) for column in columns[3:]
    }
    # Some executors round a start to whole seconds, and so to before its own submission.
    start = numpy.maximum(figures["start"], figures["submit"])
    end = numpy.maximum(figures["complete"], start)
    wall = (figures["complete"] - figures["start"]).clip(lower=LEAST_RUN_S * MS)
    jobs = pandas.DataFrame(
        {
            "job_id": name + "." + table["task_id"],
            "user": name,
            "account": table["process"].str.split(":").str[0].where(table["process"].str.contains(":"), name),
            "job_name": table["process"],
            "submit_time": figures["submit"] / MS,
            "start": start / MS,
            "end": end / MS,
            "elapsed_s": figures["realtime"].where(figures["realtime"] > 0, wall) / MS,
            "req_mem_mib": figures["memory"] / MIB,
            "peak_mem_mib": figures["peak_rss"] / MIB,
            "req_cpus": figures["cpus"],
            "used_cores": figures["%cpu"] / 100,
        }
    )
    return jobs[jobs["peak_mem_mib"] > 0]


def _galaxy(file: Path) -> pandas.DataFrame:
    table = pandas.read_csv(file)
    table = table[table["req_mem_gb"].notna() & (table["peak_mem_bytes"] > 0)]
    came = pandas.to_datetime(table["create_time"], utc=True, format="ISO8601")
    submit_s = (came - pandas.Timestamp(0, tz="UTC")).dt.total_seconds()
    return pandas.DataFrame(
        {
            "job_id": "galaxy." + table.index.astype(str),
            "user": GALAXY,
            "account": GALAXY,
            "job_name": table["tool"],
            "submit_time": submit_s,
            "start": submit_s,
            "end": submit_s + GALAXY_RUN_S,
            "elapsed_s": GALAXY_RUN_S,
            "req_mem_mib": table["req_mem_gb"] * GIB_IN_MIB,
            "peak_mem_mib": table["peak_mem_bytes"] / MIB,
            "req_cpus": table["req_cores"],
            "used_cores": numpy.nan,
            "input_mib": table["filesize_bytes"] / MIB,
        }
    )


def online_jobs(trace: Trace) -> list[OnlineJob]:
    """Return a trace's jobs, by row, as `rightsizer evaluate --online` reads them."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "jobs.csv"
        trace.jobs.to_csv(file, index=False)
        return read_jobs(file)
