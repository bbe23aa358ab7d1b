"""What jobs that were killed for memory show: how much more they needed, or that nothing can be said. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

from models.past.jobs import PastJob, shows_need, was_cut

# A job killed for memory needed more than it had: the next one like it gets this many times as much. The figure is
# the Vertical Pod Autoscaler's OOM bump.
KILLED_BUMP = 1.2
# After this many in a row the next job gets all that it asks for: a user who tries again may give up at the third.
KILLS_IN_A_ROW = 2
# Jobs count as killed for what Slurm does not see only if fewer than this many cut jobs end well for each of them: a
# program that leaks now and then, or needs more by chance, is killed less often.
SPARED_A_KILL = 10
# Why jobs that were killed for memory let nothing be said of it: none since has shown what is enough
# (`are_unanswered`), or Slurm does not see what they are killed for (`are_unseen`).
Kills = Literal["", "unanswered", "unseen"]


def told_by_kills(jobs: Sequence[PastJob], asked_mib: float | None) -> Kills:
    """Return why jobs that were killed for memory let nothing be said of it; '' if there is no such reason."""
    if not any(job.mem_at_least for job in jobs):
        return ""
    if are_unanswered(jobs, asked_mib):
        return "unanswered"
    return "unseen" if are_unseen(jobs) else ""


def are_unanswered(jobs: Iterable[PastJob], asked_mib: float | None) -> bool:
    """Return whether jobs were killed for memory and none since has shown what is enough for such a request.

    Either two in a row were killed, and no job has run to its end since; or a job that asked for less was killed, and
    none that asked for as much has run to its end since.
    """
    in_a_row, asked_less = 0, False
    for job in jobs:
        less = job.asked_mem_mib is not None and asked_mib is not None and job.asked_mem_mib < asked_mib
        if job.complete:
            in_a_row, asked_less = 0, asked_less and less
        elif job.mem_at_least:
            in_a_row, asked_less = in_a_row + 1, asked_less or less
    return in_a_row >= KILLS_IN_A_ROW or asked_less


def are_unseen(jobs: Sequence[PastJob]) -> bool:
    """Return whether cut jobs were killed for what Slurm does not see: files in /dev/shm, or a peak between samples.

    Each of them had more than any job that ran to its end was seen to use, by more than what the next one gets anyway
    (KILLED_BUMP). One such kill is enough if that very job ran again and was seen to use less; else two are needed.
    Neither is enough if SPARED_A_KILL times as many others ended well with no more memory; but two in a row are
    enough in any case.
    """
    seen = [
        job for job in jobs if shows_need(job, "memory") and not job.mem_at_least and job.mem_mib is not None
    ]
    most_mib = max((job.mem_mib or 0.0 for job in seen), default=math.inf)
    killed: list[PastJob] = []
    spared: list[float] = []
    in_a_row = 0
    for job in filter(was_cut, jobs):
        given_mib = job.given_mem_mib or 0
        if job.complete:
            in_a_row = 0
            spared.append(given_mib)
        elif job.mem_at_least and given_mib > KILLED_BUMP * most_mib:
            in_a_row += 1
            killed.append(job)
    ran_again = {job.job_id for job in killed if job.job_id} & {job.job_id for job in seen}
    if not ran_again and len(killed) < KILLS_IN_A_ROW:
        return False
    failed_mib = max(job.given_mem_mib or 0 for job in killed)
    with_no_more = sum(given_mib <= failed_mib for given_mib in spared)
    return in_a_row >= KILLS_IN_A_ROW or with_no_more < SPARED_A_KILL * len(killed)
