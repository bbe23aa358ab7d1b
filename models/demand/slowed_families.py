"""Which families of a history are slowed by less than they ask for: for reports of what jobs could ask for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from accounting.report.usage import Slowed
from models.demand.slowed import doubt_of_memory, slowing_in
from models.past.beside import still_told
from models.past.evidence import Evidence
from models.past.families import Family, family_name
from models.past.jobs import PastJob, had_less

# A family, its recent jobs, and the older ones that are remembered to compare them with.
Known = tuple[Family, Sequence[PastJob], Sequence[PastJob]]


def slowed_families(families: Iterable[Known], most_slowdown: float) -> dict[tuple[str, str], Slowed]:
    """Return what slows jobs by more than `most_slowdown`, by user and by the family's name in reports."""
    found: dict[tuple[str, str], Slowed] = {}
    for family, jobs, beside in families:
        # All jobs of a user, or all with one limit, are no family.
        if len(family) < 3 or not any(map(had_less, (*jobs, *beside))):
            continue
        _, user, name, *script = family
        key, told = (user, family_name(name, *script)), still_told(beside, jobs[-1].end_s)
        for tasks in {job.num_tasks for job in jobs}:
            alike, before = ([job for job in part if job.num_tasks == tasks] for part in (jobs, told))
            one = slowed_jobs(Evidence(family, alike, beside=before), tasks, most_slowdown)
            known = found.get(key, Slowed())
            found[key] = Slowed(cores=max(known.cores, one.cores), memory=known.memory or one.memory)
    return {key: slowed for key, slowed in found.items() if slowed != Slowed()}


def slowed_jobs(evidence: Evidence, tasks: int, most_slowdown: float) -> Slowed:
    """Return what jobs of this many tasks need not to be slowed: twice the CPUs that slow, at most what was asked."""
    asked = max(job.asked_cpus or 0 for job in evidence.compared)
    return Slowed(
        cores=min(round(2 * slowing_in(evidence, most_slowdown) * tasks), asked),
        memory=doubt_of_memory(evidence, most_slowdown) == "slowed",
    )
