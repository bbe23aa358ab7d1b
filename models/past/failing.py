"""Which jobs failed one after the other, with a code of their own, since they had less than they asked for. Pure.

A program that fits its memory or threads to what its job has can end by itself when that is too little: Java, started
by some tool, with a quarter of the job's memory as its heap, says OutOfMemoryError and exits with 1. To Slurm this is
a failure like any other, so it shows no need, and the next job would be given as little.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from models.past.jobs import PastJob, ended_well, had_fewer_gpus, had_less
from models.past.kills import SPARED_A_KILL

# After this many in a row the next job gets all that it asks for. Scripts fail for other reasons far more often than
# Slurm kills for memory, so it takes one more than of kills (KILLS_IN_A_ROW).
FAILS_IN_A_ROW = 3


def failing(jobs: Sequence[PastJob]) -> list[PastJob]:
    """Return the cut jobs that failed in a row, the oldest first, if the next ones are to get all that they ask for.

    In a row means that meanwhile no cut job ended well, and no job failed that had all. From the third on the next job
    gets all. If that fails too, the cut was not the reason, and these no longer count. If it ends well, they count for
    as long as they are remembered, unless SPARED_A_KILL cut jobs ended well with no more than these had: then failures
    come in bursts for another reason, such as a file system that was away.
    """
    if sum(map(_failed_with_less, jobs)) < FAILS_IN_A_ROW:
        return []
    in_a_row, shown = list[PastJob](), list[PastJob]()
    for job in jobs:
        if _failed_with_less(job):
            in_a_row.append(job)
        elif (job.failed and not _had_less(job)) or (ended_well(job) and _had_less(job)):
            in_a_row = []
        elif ended_well(job) and len(in_a_row) >= FAILS_IN_A_ROW and _began_after(job, in_a_row[-1]):
            shown.extend(in_a_row)
            in_a_row = []
    if _are_spared(shown, jobs):
        shown = []
    return shown + in_a_row if len(in_a_row) >= FAILS_IN_A_ROW else shown


def _are_spared(shown: Sequence[PastJob], jobs: Iterable[PastJob]) -> bool:
    """Return whether SPARED_A_KILL jobs that were cut ended well with no more than those in `shown` had."""
    if not shown:
        return False
    most = [max(amounts) for amounts in zip(*map(_given, shown), strict=True)]
    spared = sum(
        ended_well(job)
        and _had_less(job)
        and all(amount <= limit for amount, limit in zip(_given(job), most, strict=True))
        for job in jobs
    )
    return spared >= SPARED_A_KILL


def _given(job: PastJob) -> tuple[int, int, int]:
    return job.given_mem_mib or 0, job.given_cpus or 0, job.given_gpus or 0


def _had_less(job: PastJob) -> bool:
    return had_less(job) or had_fewer_gpus(job)


def _failed_with_less(job: PastJob) -> bool:
    # A kill for memory is told by the rules for kills.
    return job.failed and not job.mem_at_least and _had_less(job)


def _began_after(job: PastJob, other: PastJob) -> bool:
    """Return whether a job began once another had ended, in whole seconds: it may have been given more for that."""
    return job.end_s - job.wall_s >= other.end_s
