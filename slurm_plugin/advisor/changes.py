"""What of a plan is written: factors that Slurm counts in full, and none on jobs that keep their place. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from models.planning.problem import Pending, Plan, PlannedJob, Problem
from slurm_plugin.slurm.queue import FactorChange

# Slurm's own priority is never below 1: what a factor would take it below that is lost, and with it the old value.
LEAST_PRIORITY = 1


def writable(plan: Plan, problem: Problem) -> Plan:
    """Return a plan as it can be written."""
    pending = {job.job_id: job for job in problem.pending}
    return replace(plan, jobs=tuple(_writable(job, pending[job.job_id]) for job in plan.jobs))


def _writable(planned: PlannedJob, job: Pending) -> PlannedJob:
    if job.kept and not job.out and planned.before:
        return replace(planned, after=0, reason=f"back to its own place: {job.kept}")
    least = min(0, LEAST_PRIORITY - job.priority)
    return planned if planned.after >= least else replace(planned, after=least)


def changes_of(plan: Plan) -> list[FactorChange]:
    """Return the changes of a plan."""
    return [
        FactorChange(job_id=job.job_id, before=job.before, after=job.after, reason=job.reason)
        for job in plan.changes
    ]
