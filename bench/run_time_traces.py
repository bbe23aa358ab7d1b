"""The public traces from which run times are learned: types of jobs, what each job used, requested and how long it ran.

A trace is suitable if it has, for every job, the program, the run time and at least two measured resources: the
four nextflow traces. A type is suitable if at least MIN_JOBS of its jobs completed with all of that known, and
their median run time is at least LEAST_MEDIAN_S: two of the traces have whole seconds, and nobody scales a shorter
job for its run time. Every suitable type is taken, none for its figures.

The other traces are not suitable: Galaxy's has no run times; of nupack only memory was measured; MIT's has requests,
but no use; SURF's has neither types nor memory; Gavel's has one rate per model and GPU, and no amounts that vary.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy
import pandas

from bench.memory_traces import WORKFLOWS
from models.run_time.importance import Floats
from models.run_time.job_types import found_type
from models.run_time.regression import MIN_JOBS, Jobs

RESOURCES = ("cores", "mem_mib", "read_mib", "written_mib")
LEAST_MEDIAN_S = 10.0
MIB, MS = 2.0**20, 1000.0


class TracedType(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of one tool of one workflow, by time: what they used (`jobs`), and the cores and MiB requested."""

    workflow: str
    tool: str
    jobs: Jobs
    asked_cores: Floats
    asked_mem_mib: Floats

    @property
    def name(self) -> str:
        """The name in a table."""
        return f"{self.workflow}: {self.tool}"


def read_types(traces: Path, least_median_s: float = LEAST_MEDIAN_S) -> tuple[list[TracedType], list[str]]:
    """Return the suitable types, and the names of the others, with the reason."""
    fit: list[TracedType] = []
    unfit: list[str] = []
    for workflow in WORKFLOWS:
        table = _read(traces / "memory" / f"nextflow_{workflow}.csv.gz")
        for tool, rows in table.groupby("tool"):
            reason = _unfit(rows, least_median_s)
            if reason:
                unfit.append(f"{workflow}: {tool} ({reason})")
            else:
                fit.append(_traced(workflow, str(tool), rows))
    return fit, unfit


def _read(file: Path) -> pandas.DataFrame:
    columns = [
        "process", "status", "submit", "realtime", "%cpu", "peak_rss", "rchar", "wchar", "cpus", "memory",
    ]  # fmt: skip
    table = pandas.read_csv(file, usecols=columns, low_memory=False)
    table["tool"] = [found_type(str(process)) for process in table["process"]]
    for name in columns[2:]:
        table[name] = pandas.to_numeric(table[name], errors="coerce")
    table = table[(table["status"] == "COMPLETED") & (table["realtime"] > 0)]
    return table.dropna(subset=columns[2:]).sort_values("submit", kind="stable")


def _unfit(rows: pandas.DataFrame, least_median_s: float) -> str:
    if len(rows) < MIN_JOBS:
        return f"{len(rows)} jobs"
    median_s = float(rows["realtime"].median()) / MS
    return "" if median_s >= least_median_s else f"median {median_s:.2g} s"


def _traced(workflow: str, tool: str, rows: pandas.DataFrame) -> TracedType:
    amounts = numpy.column_stack(
        [rows["%cpu"] / 100, rows["peak_rss"] / MIB, rows["rchar"] / MIB, rows["wchar"] / MIB]
    ).astype(numpy.float64)
    return TracedType(
        workflow=workflow,
        tool=tool,
        jobs=Jobs(resources=RESOURCES, amounts=amounts, run_s=rows["realtime"].to_numpy(numpy.float64) / MS),
        asked_cores=rows["cpus"].to_numpy(numpy.float64),
        asked_mem_mib=rows["memory"].to_numpy(numpy.float64) / MIB,
    )
