"""How much memory a job needs that gets more CPUs than any recent job of its family had. Pure.

A program that starts a worker for each CPU that its job has needs memory for each worker. If all recent jobs were cut
to few CPUs, as those of an array are, what they used is too little for the next one if it gets more: because they were
slowed, or kept all of theirs busy, or to compare, or since a rule keeps its CPUs from now on.
"""

from __future__ import annotations

import msgspec

from models.past.evidence import Evidence
from models.past.jobs import cpus_a_task, shows_need


class MoreCpus(msgspec.Struct, frozen=True):
    """No recent job had more CPUs per task than `above`; `mem_mib` is the most that an earlier one with more used."""

    above: float
    mem_mib: float


def more_cpus(evidence: Evidence) -> MoreCpus | None:
    """Return what jobs with more CPUs than all recent ones used; None if there are none."""
    recent = max((cpus_a_task(job) for job in evidence.jobs if shows_need(job, "memory")), default=0.0)
    used_mib = max((job.mem_mib or 0.0 for job in evidence.beside if cpus_a_task(job) > recent), default=0.0)
    return MoreCpus(recent, used_mib) if recent and used_mib else None
