"""With how many CPUs jobs run longer than the means of their busy cores foretell. Pure.

A mean says nothing of turns: a job that keeps one core busy, and eight in a tenth of its work's time, keeps 1.7 busy,
and with two CPUs runs 1.3 times as long. It does not fail, and shows less than it needs: 1.3 cores, of which none is
short. But that tells: the same work in more time is fewer cores busy. So where jobs with c CPUs a task keep fewer busy
than those that had at least twice as many, they are slowed by as much, whatever their inputs: a larger one is more work
and more time. Whether it is chance is told by ranks (Mann and Whitney, 1947).

With nobody to compare with nothing is told, and of the last jobs of a family all may be cut: now and then one is given
twice as many. So a wrong alarm mends itself too: who is given more is soon one of those that are compared.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from models.past.jobs import PastJob, use_of

# Of less than this share of its time hardly anybody takes note, and jobs that share a node differ by as much.
NOTED = 0.1
# Standard deviations by which the sum of ranks may differ by chance: 2 % to the wrong side, which costs some CPUs
# for as long as those that seem slowed are remembered (`python -m bench.busy_by_turns`).
BY_CHANCE = 2.0
# From so many jobs with fewer CPUs on something is said.
LEAST_JOBS = 5
# Of so many jobs that were cut one is to have had twice as many CPUs.
A_CONTROL = 20


class Shown(NamedTuple):
    """What a past job had and kept busy, in CPUs a task, and whether that was less than it had asked for."""

    had: float
    busy: float
    cut: bool


def shown_by(jobs: Iterable[PastJob]) -> list[Shown]:
    """Return what the jobs show that ran to their end."""
    return [
        Shown(
            job.given_cpus / job.num_tasks,
            use_of(job, "cores") or 0.0,
            job.given_cpus < (job.asked_cpus or 0),
        )
        for job in jobs
        if job.complete and job.cores_per_task is not None and job.given_cpus
    ]


def slowing_cpus(shown: Sequence[Shown], most_slowdown: float = 0.0) -> float:
    """Return the most CPUs a task to which jobs were cut that slowed them by more than a share; 0 where none did.

    Who asked for fewer himself may well keep fewer busy: so his program is made.
    """
    for cpus in sorted({job.had for job in shown if job.cut}, reverse=True):
        fewer = [job.busy for job in shown if job.cut and cpus / 2 < job.had <= cpus]
        more = [job.busy for job in shown if job.had >= 2 * cpus]
        if len(fewer) >= LEAST_JOBS and are_slowed(fewer, more, max(NOTED, most_slowdown)):
            return cpus
    return 0.0


def are_slowed(fewer: Sequence[float], more: Sequence[float], share: float) -> bool:
    """Whether jobs with fewer CPUs keep fewer cores busy than those with more, by more than a share and chance."""
    if not more or statistics.median(more) <= (1 + share) * statistics.median(fewer):
        return False
    ordered, pairs = sorted(more), len(fewer) * len(more)
    below = sum(len(more) - (bisect_left(ordered, busy) + bisect_right(ordered, busy)) / 2 for busy in fewer)
    return below - pairs / 2 > BY_CHANCE * math.sqrt(pairs * (len(fewer) + len(more) + 1) / 12)


def lacks_control(shown: Iterable[Shown], cpus: int) -> bool:
    """Whether too few jobs had twice as many CPUs a task to tell whether those that were cut to `cpus` are slowed."""
    fewer = more = 0
    for job in shown:
        fewer += job.cut and job.had <= cpus
        more += job.had >= 2 * cpus
    return fewer >= A_CONTROL * (more + 1)


def unslowed_cpus(jobs: Iterable[PastJob], upper: float, most_slowdown: float = 0.0) -> float:
    """Return the fewest CPUs a task with which jobs are not slowed, or it is told; 0 where `upper` will do."""
    shown, granted = shown_by(jobs), math.ceil(upper)
    compared = granted if lacks_control(shown, granted) else 0
    return 2 * max(slowing_cpus(shown, most_slowdown), compared)
