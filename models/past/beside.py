"""Which jobs are remembered beside a family's recent ones, for those that were cut to be compared with. Pure.

All of an array are given alike, and of a large one they push out whoever was given otherwise: those that had all, by
which one sees that a cut slows, and once more is given, those that it slowed. So the last few of each kind are kept, by
what they had. Nothing is sized by them, and many recent ones outweigh them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from models.past.jobs import PastJob, was_cut

# Of each kind so many are remembered.
BESIDE = 10
# A program may change: who had less tells for so long of those that came after him. It is tried again then.
TELLS_S = 30 * 86_400
HAD_ALL = 0


def kind_of(job: PastJob) -> int | None:
    """Return with whom a job is alike in what it had; None where it is not known what it kept busy to its end.

    Twice up to which power of two of CPUs a task it was cut, 0 where it was not; and 1 more where its memory was.
    """
    if not job.complete or job.cores_per_task is None or not job.given_cpus:
        return None
    is_cut = job.given_cpus < (job.asked_cpus or 0)
    return 2 * is_cut * (-(-job.given_cpus // job.num_tasks)).bit_length() + was_cut(job)


def by_end(job: PastJob) -> tuple[int, int, int]:
    """Return what puts jobs in the order of their ends, and tells each run from all others.

    Slurm can show that a job which was queued again ran to its end in the second in which its run before ended.
    """
    return job.end_s, job.job_id, job.end_s - job.wall_s


class Beside:
    """The last jobs of each kind that a family's recent ones have pushed out."""

    def __init__(self) -> None:
        self._kinds: dict[int, deque[PastJob]] = {}

    def add(self, job: PastJob) -> None:
        """Remember a job, if others can be compared with it."""
        kind = kind_of(job)
        if kind is not None:
            self._kinds.setdefault(kind, deque(maxlen=BESIDE)).append(job)

    def correct(self, job: PastJob) -> bool:
        """Put a job in the place of what was remembered of the same run; False where that is nothing else."""
        known = next((one for one in self if by_end(one) == by_end(job)), None)
        if known is None or known == job:
            return False
        jobs = [job if one is known else one for one in self]
        self._kinds.clear()
        for one in jobs:
            self.add(one)
        return True

    def __iter__(self) -> Iterator[PastJob]:
        """Yield them, the oldest first."""
        return iter(sorted((job for jobs in self._kinds.values() for job in jobs), key=by_end))


def still_told(beside: Iterable[PastJob], now_s: int) -> tuple[PastJob, ...]:
    """Return those that still tell of jobs that end now (unix seconds)."""
    return tuple(job for job in beside if job.end_s > now_s - TELLS_S or kind_of(job) == HAD_ALL)
