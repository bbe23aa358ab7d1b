"""How much memory a job needs that gets more CPUs than any recent job of its family had. Pure.

A program that starts a worker for each CPU that its job has needs memory for each worker. If all recent jobs were cut
to few CPUs, as those of an array are, what they used is too little for the next one if it gets more: because they were
slowed, or kept all of theirs busy, or to compare.
"""

from __future__ import annotations

from models.past.evidence import Evidence
from models.past.jobs import PastJob


def most_recent_cpus(evidence: Evidence) -> float:
    """Return the most CPUs per task that a recent job had; 0 if that is not known."""
    return max(map(_cpus_a_task, evidence.jobs), default=0.0)


def memory_with_more(evidence: Evidence) -> float:
    """Return the most MiB that a remembered job used which had more CPUs per task than any recent one; 0 if none."""
    recent = most_recent_cpus(evidence)
    return max((job.mem_mib or 0.0 for job in evidence.beside if _cpus_a_task(job) > recent), default=0.0)


def _cpus_a_task(job: PastJob) -> float:
    return (job.given_cpus or 0) / job.num_tasks
