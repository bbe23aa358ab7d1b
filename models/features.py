"""What a quantile model is told about a submission: one function, for training and for serving alike.

Only what is known at submit time: what is asked, and the past of jobs like it up to that moment. Amounts enter as
logarithms, because a job of 2 GB differs from one of 1 GB as 200 GB do from 100.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from accounting.request import JobRequest
from models.history import Evidence, PastJob

Learned = Literal["memory", "cores", "wall"]
LEARNED: tuple[Learned, ...] = ("memory", "cores", "wall")

FEATURES = (
    "jobs_seen", "log_max", "log_mean", "log_last", "log_spread", "last_over_max", "asked_over_max", "log_asked",
    "num_tasks", "log_asked_cpus", "asked_gpus", "log_limit", "user_use_of_asked", "account_use_of_asked",
    "partition_use_of_asked",
)  # fmt: skip

_SMALLEST = {
    "memory": 1.0,
    "cores": 0.01,
    "wall": 1.0,
}  # MiB, cores, seconds: below, a logarithm says nothing


def use_of(job: PastJob, dimension: Learned) -> float | None:
    """Return what a past job used (MiB, cores per task, seconds), at least the smallest; None = unknown."""
    values = {"memory": job.mem_mib, "cores": job.cores_per_task, "wall": float(job.wall_s)}
    value = values[dimension]
    return None if value is None else max(value, _SMALLEST[dimension])


def asked_of(request: JobRequest, dimension: Learned) -> float | None:
    """Return what a request asks of a dimension, in the unit of `use_of`; None where it does not ask."""
    values = {"memory": request.mem_mib, "cores": request.cpus_per_task, "wall": request.wall_s}
    value = values[dimension]
    return None if value is None else float(max(value, 1))


def features(
    request: JobRequest, evidence: Evidence, cohorts: Sequence[Sequence[PastJob]], dimension: Learned
) -> list[float]:
    """Return the values of FEATURES; NaN where something is not known. The evidence must hold at least one use."""
    logs = [math.log(use) for job in evidence.jobs if (use := use_of(job, dimension)) is not None]
    highest, mean, asked = max(logs), sum(logs) / len(logs), _log(asked_of(request, dimension))
    spread = math.sqrt(sum((value - mean) ** 2 for value in logs) / len(logs))
    return [
        float(len(logs)),
        highest,
        mean,
        logs[-1],
        spread,
        logs[-1] - highest,
        asked - highest,
        asked,
        float(request.num_tasks),
        _log(float(request.cpus)),
        float(request.gpus or 0),
        _log(None if request.wall_s is None else float(max(request.wall_s, 1))),
        *(_use_of_asked(jobs, dimension) for jobs in cohorts),
    ]


def _log(value: float | None) -> float:
    return math.nan if value is None else math.log(value)


def _use_of_asked(jobs: Sequence[PastJob], dimension: Learned) -> float:
    """Return the mean logarithm of used over asked in a cohort; NaN where nobody asked or nothing is known."""
    if dimension == "wall":
        return math.nan
    ratios = []
    for job in jobs:
        asked = job.asked_mem_mib if dimension == "memory" else job.asked_cpus
        used = use_of(job, dimension)
        if asked and used is not None:
            whole = used if dimension == "memory" else used * job.num_tasks
            ratios.append(math.log(whole / asked))
    return sum(ratios) / len(ratios) if ratios else math.nan
