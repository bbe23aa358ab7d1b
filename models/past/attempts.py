"""A finished attempt from accounting, as a past job and as the request that it was. Pure.

`columns.py` does the same for millions at once; tests keep the two alike.
"""

from __future__ import annotations

import math

from accounting.records import Attempt
from accounting.request import JobRequest
from models.past.jobs import PastJob

# The outcomes that show a job's whole need.
COMPLETE = ("completed", "timeout")
# Slurm's word for a job that ended by itself, with an exit code other than 0.
FAILED = "FAILED"


def request_of(attempt: Attempt) -> JobRequest:
    """Return what the user of a past attempt asked for, memory per node."""
    row = attempt.row
    return JobRequest(
        user=row.user,
        account=row.account,
        partition=row.partition,
        qos=row.qos,
        job_name=row.job_name,
        script_signature=attempt.script_signature,
        num_tasks=attempt.num_tasks,
        cpus_per_task=None if attempt.asked_cpus is None else max(1, attempt.asked_cpus // attempt.num_tasks),
        mem_per_node_mib=attempt.asked_mem_mib,
        gpus_per_node=attempt.asked_gpus,
        wall_s=row.limit_s,
        input_mib=attempt.input_mib,
    )


def is_counted_in_part(memory_quality: str, outcome: str, nodes: int) -> bool:
    """Return whether memory is a lower bound because Slurm saw only one of several nodes, and not because of a kill.

    Such a bound may be any part of the need (`loses_tasks` in accounting/labels/quality.py). The bound that a kill
    shows is near the need.
    """
    return memory_quality == "censored" and outcome in COMPLETE and nodes > 1


def past_job(attempt: Attempt) -> PastJob:
    """Return an attempt as a past job. An attempt that was stopped early shows a lower bound, not its need."""
    use = attempt.use
    in_part = is_counted_in_part(use.memory_quality, use.outcome, attempt.row.nodes)
    return PastJob(
        end_s=attempt.row.end_s,
        num_tasks=attempt.num_tasks,
        asked_cpus=attempt.asked_cpus,
        asked_mem_mib=attempt.asked_mem_mib,
        asked_gpus=attempt.asked_gpus,
        complete=use.outcome in COMPLETE,
        mem_mib=_finite(use.peak_mem_mib),
        # Memory that was sampled once may have been sampled before it had grown.
        mem_short=use.memory_quality == "short" or in_part,
        mem_at_least=use.memory_quality == "censored" and not in_part,
        cores_per_task=_finite(use.cores_per_task),
        wall_s=use.wall_s,
        wall_at_least=use.outcome == "timeout",
        gpus=use.gpus,
        gpu_source=use.gpu_source,
        script=attempt.script_signature,
        job_id=attempt.row.job_id,
        given_cpus=attempt.row.alloc_cpus,
        given_gpus=attempt.row.alloc_gpus,
        gpu_mem_mib=_finite(use.gpu_mem_mib),
        gpu_short=use.gpu_quality in ("short", "censored"),
        input_mib=attempt.input_mib,
        given_mem_mib=attempt.row.alloc_mem_mib,
        step_cpus=use.step_cpus,
        step_mem_mib=use.step_mem_mib,
        failed=attempt.row.state == FAILED,
    )


def _finite(amount: float | None) -> float | None:
    """Return a figure; None if it is not a number, or infinite."""
    return amount if amount is not None and math.isfinite(amount) else None
