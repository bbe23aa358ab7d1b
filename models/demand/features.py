"""What a quantile model sees of a submission: one function, for training and for serving.

It sees only what is known at submission: the request, and the past of similar jobs up to that moment. Amounts enter
as logarithms, because a job of 2 GB differs from one of 1 GB as 200 GB do from 100.
"""

from __future__ import annotations

import math

from accounting.request import JobRequest
from models.past.evidence import Evidence
from models.past.history import Habit
from models.past.jobs import Learned

FEATURES = (
    "jobs_seen", "streak", "log_max", "log_mean", "log_last", "log_spread", "log_rise", "last_over_max",
    "asked_over_max", "log_asked",
    "num_tasks", "log_asked_cpus", "asked_gpus", "log_limit", "user_use_of_asked",
)  # fmt: skip

# Counted over a family's past: these move as families grow older, even if nothing else changes.
OF_AGE = frozenset(
    {"jobs_seen", "streak", "log_max", "log_mean", "log_spread", "log_rise", "last_over_max", "asked_over_max",
     "user_use_of_asked"}
)  # fmt: skip


def asked_of(request: JobRequest, dimension: Learned) -> float | None:
    """Return what a request asks of a dimension, in the unit of `use_of`; None if it does not ask."""
    value: int | None = None
    if dimension == "memory":
        value = request.mem_mib
    elif dimension != "gpu_mem":  # Slurm has no request for gpu_mem
        value = request.cpus_per_task if dimension == "cores" else request.wall_s
    return None if value is None else float(max(value, 1))


def features(request: JobRequest, evidence: Evidence, habit: Habit, dimension: Learned) -> list[float]:
    """Return the values of FEATURES; NaN if not known. The evidence must show at least one use of the dimension."""
    past = evidence.use(dimension)
    assert past is not None  # noqa: S101 - tells mypy
    asked = _log(asked_of(request, dimension))
    return [
        float(past.count),
        float(past.streak),
        past.highest_log,
        past.mean_log,
        past.last_log,
        past.spread_log,
        math.sqrt(past.above_median / past.count),
        past.last_log - past.highest_log,
        asked - past.highest_log,
        asked,
        float(request.num_tasks),
        _log(float(request.cpus)),
        float(request.gpus or 0),
        _log(None if request.wall_s is None else float(max(request.wall_s, 1))),
        getattr(habit, dimension, math.nan),
    ]


def _log(value: float | None) -> float:
    return math.nan if value is None else math.log(value)
