"""What a quantile model is told about a submission: one function, for training and for serving alike.

Only what is known at submit time: what is asked, and the past of jobs like it up to that moment. Amounts enter as
logarithms, because a job of 2 GB differs from one of 1 GB as 200 GB do from 100.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from accounting.request import JobRequest
from models.history import LEAST_CORES, LEAST_MIB, LEAST_WALL_S, Evidence, Habit, PastJob

Learned = Literal["memory", "cores", "wall"]
LEARNED: tuple[Learned, ...] = ("memory", "cores", "wall")

FEATURES = (
    "jobs_seen", "log_max", "log_mean", "log_last", "log_spread", "last_over_max", "asked_over_max", "log_asked",
    "num_tasks", "log_asked_cpus", "asked_gpus", "log_limit", "user_use_of_asked", "account_use_of_asked",
    "partition_use_of_asked",
)  # fmt: skip


def use_of(job: PastJob, dimension: Learned) -> float | None:
    """Return what a past job used (MiB, cores per task, seconds), at least the smallest; None = unknown."""
    if dimension == "memory":
        value, smallest = job.mem_mib, LEAST_MIB
    elif dimension == "cores":
        value, smallest = job.cores_per_task, LEAST_CORES
    else:
        value, smallest = job.wall_s, LEAST_WALL_S
    return None if value is None else max(value, smallest)


def asked_of(request: JobRequest, dimension: Learned) -> float | None:
    """Return what a request asks of a dimension, in the unit of `use_of`; None where it does not ask."""
    if dimension == "memory":
        value = request.mem_mib
    else:
        value = request.cpus_per_task if dimension == "cores" else request.wall_s
    return None if value is None else float(max(value, 1))


def features(
    request: JobRequest, evidence: Evidence, habits: Sequence[Habit], dimension: Learned
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
        *(math.nan if dimension == "wall" else getattr(habit, dimension) for habit in habits),
    ]


def _log(value: float | None) -> float:
    return math.nan if value is None else math.log(value)
