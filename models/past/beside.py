"""Which jobs are remembered in addition to a family's recent ones, to compare jobs that were cut with. Pure.

All jobs of an array are given the same, and a large array displaces all recent jobs that were given something else:
those that had all they asked for, which show that a cut slows; and, once more is given, those that were slowed. So
the last few of each kind are kept, by what they had. No job is sized by them, and many recent ones outweigh them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from models.past.jobs import PastJob, was_cut

# This many of each kind are remembered.
BESIDE = 10
# A program may change: a job that had less is compared with later ones for only this long. Then the cut is tried
# again.
TELLS_S = 30 * 86_400
HAD_ALL = 0


def kind_of(job: PastJob) -> int | None:
    """Return the kind of a job, by what it had; None if it is not known what it kept busy to its end.

    The kind is twice the bit length of the CPUs per task (rounded up) that the job was cut to, 0 if it was not cut;
    plus 1 if its memory was cut.
    """
    if not job.complete or job.cores_per_task is None or not job.given_cpus:
        return None
    is_cut = job.given_cpus < (job.asked_cpus or 0)
    return 2 * is_cut * (-(-job.given_cpus // job.num_tasks)).bit_length() + was_cut(job)


def by_end(job: PastJob) -> tuple[int, int, int]:
    """Return a key that orders jobs by their ends, and tells each run from all others.

    Slurm can show that a requeued job ran to its end in the same second in which its previous run ended.
    """
    return job.end_s, job.job_id, job.end_s - job.wall_s


class Beside:
    """The last jobs of each kind that newer jobs have displaced from a family's recent ones."""

    def __init__(self) -> None:
        self._kinds: dict[int, deque[PastJob]] = {}

    def add(self, job: PastJob) -> None:
        """Remember a job, if others can be compared with it."""
        kind = kind_of(job)
        if kind is not None:
            self._kinds.setdefault(kind, deque(maxlen=BESIDE)).append(job)

    def correct(self, job: PastJob) -> bool:
        """Replace what was remembered of the same run; return False if nothing was, or if it is the same."""
        known = next((one for one in self if by_end(one) == by_end(job)), None)
        if known is None or known == job:
            return False
        jobs = [job if one is known else one for one in self]
        self._kinds.clear()
        for one in jobs:
            self.add(one)
        return True

    def __iter__(self) -> Iterator[PastJob]:
        """Yield the jobs, the oldest first."""
        return iter(sorted((job for jobs in self._kinds.values() for job in jobs), key=by_end))


def still_told(beside: Iterable[PastJob], now_s: int) -> tuple[PastJob, ...]:
    """Return the jobs that may still be compared with jobs that end now (unix seconds)."""
    return tuple(job for job in beside if job.end_s > now_s - TELLS_S or kind_of(job) == HAD_ALL)
