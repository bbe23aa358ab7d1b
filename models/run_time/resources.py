"""From attempts to jobs of a type, with what each used of every resource. Pure.

Only figures that were really measured count (`exact`, `sampled`), and only attempts that ended by themselves: a bound
would teach a regression something that never was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy

from accounting.records import Attempt, Quality
from models.run_time.regression import Jobs

# The paper's five, with input and output apart. Cores and GPUs are those that were busy.
CORES, GPU_PCT, MEM_MIB = "cores", "gpu_pct", "mem_mib"
RESOURCES = (CORES, GPU_PCT, MEM_MIB, "gpu_mem_mib", "read_mib", "written_mib")
PCT_A_GPU = 100.0
MEASURED: tuple[Quality, ...] = ("exact", "sampled")

TypeOf = Callable[[Attempt], str | None]


def used(attempt: Attempt) -> tuple[float, ...]:
    """Return what an attempt used, in the order of RESOURCES; NaN if it was not measured."""
    use = attempt.use
    gpu_pct = None if use.gpus is None else PCT_A_GPU * use.gpus
    return (
        _measured(use.cores, use.cores_quality),
        _measured(gpu_pct, use.gpu_quality),
        _measured(use.peak_mem_mib, use.memory_quality),
        _measured(use.gpu_mem_mib, use.gpu_quality),
        _measured(use.read_mib, use.io_quality),
        _measured(use.written_mib, use.io_quality),
    )


def _measured(value: float | None, quality: Quality) -> float:
    return math.nan if value is None or quality not in MEASURED else float(value)


class _Ran(NamedTuple):
    """When a job was submitted (unix seconds), its id, what it used, and how long it ran."""

    submit_s: int
    job_id: int
    used: tuple[float, ...]
    run_s: int


def jobs_by_type(attempts: Iterable[Attempt], type_of: TypeOf) -> dict[str, Jobs]:
    """Return the completed jobs of each type in the order of their submission; jobs without a type are left out."""
    by_type: dict[str, list[_Ran]] = {}
    for attempt in attempts:
        name = type_of(attempt) if _ran_to_its_end(attempt) else None
        if name is not None:
            ran = _Ran(attempt.row.submit_s, attempt.row.job_id, used(attempt), attempt.use.wall_s)
            by_type.setdefault(name, []).append(ran)
    return {name: _jobs(by_type[name]) for name in sorted(by_type)}


def _ran_to_its_end(attempt: Attempt) -> bool:
    return attempt.use.outcome == "completed" and attempt.use.wall_s > 0


def _jobs(unordered: Sequence[_Ran]) -> Jobs:
    jobs = sorted(unordered, key=lambda one: (one.submit_s, one.job_id))
    return Jobs(
        resources=RESOURCES,
        amounts=numpy.array([one.used for one in jobs], dtype=numpy.float64),
        run_s=numpy.array([one.run_s for one in jobs], dtype=numpy.float64),
    )
