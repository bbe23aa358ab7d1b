"""With how many CPUs, or how little memory, jobs run longer than their measured use suggests. Pure.

Mean use does not show that cores are busy by turns: a job that keeps one core busy, and eight in a tenth of its
work's time, keeps 1.7 busy on average. With two CPUs it runs 1.3 times as long. It does not fail, and it shows less
than it needs: 1.3 cores, so that two seem enough. But the same work in more time keeps fewer cores busy. So if jobs
with c CPUs per task keep fewer busy than jobs that had at least twice as many, or all they asked for, they are slowed
by that factor, whatever their inputs: a larger input is more work and more time. A rank test shows whether it is
chance (Mann and Whitney, 1947).

Without jobs to compare with, nothing can be said, and all recent jobs of a family may have been cut. So now and then
a job is given twice as many CPUs. That also corrects a false alarm: jobs that are given more are soon among those
that are compared.

It is the same with memory: a job with too little for its file cache waits for the disk, does not fail, and keeps
fewer cores busy than jobs that had all they asked for. Nobody knows how much would be enough, so the next job gets
all.
"""

from __future__ import annotations

import math
import statistics
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from models.demand.too_few import BUSY_SHARE
from models.past.evidence import Evidence
from models.past.jobs import LEAST_CORES, PastJob, had_less, was_cut

# A run that is longer by less than this share is hardly noticed, and jobs that share a node differ by as much.
NOTED = 0.1
# Standard deviations by which the sum of ranks may differ by chance. Chance exceeds this in 2 % of the cases, which
# costs some CPUs for as long as the jobs that seem slowed are remembered (`python -m bench.slowed`).
BY_CHANCE = 2.0
# This many jobs with fewer CPUs are needed to say anything.
LEAST_JOBS = 5
# One of this many jobs that were cut should have had twice as many CPUs.
A_CONTROL = 20
# If that one is missing, one in this many jobs is drawn to be it, anew as each job ends. Otherwise all jobs of an
# array would be drawn, and again all of every second array.
DRAWN = 20
# A job that waits for the disk waits long, and memory is what is saved most. So only a run that is half as long again
# is noted, and only one of this many jobs whose memory was cut should have had all of it.
NOTED_OF_MEMORY, A_CONTROL_OF_MEMORY = 0.5, 50

# Why memory is not cut: jobs run longer with less of it, or one gets all of it to learn whether they do.
Doubt = Literal["", "slowed", "compared"]


class Shown(NamedTuple):
    """What a past job had and kept busy, in CPUs per task, and whether it had asked for more CPUs or more memory."""

    had: float
    busy: float
    cut: bool
    less_memory: bool = False


def shown_by(jobs: Iterable[PastJob]) -> list[Shown]:
    """Return what the jobs that ran to their end show."""
    return [
        # Positional arguments are faster, and a submission waits for this.
        Shown(
            job.given_cpus / job.num_tasks,
            max(job.cores_per_task, LEAST_CORES),
            job.given_cpus < (job.asked_cpus or 0),
            was_cut(job),
        )
        for job in jobs
        if job.complete and job.cores_per_task is not None and job.given_cpus
    ]


def shown_in(evidence: Evidence) -> list[Shown]:
    """Return what comparable jobs show, nothing if none had less than it asked for; cached for CPUs and memory."""
    return evidence.once(
        shown_in, lambda: shown_by(evidence.compared) if any(map(had_less, evidence.compared)) else []
    )


def slowing_in(evidence: Evidence, most_slowdown: float) -> float:
    """Return `slowing_cpus` of what jobs show; cached for CPUs and memory."""
    return evidence.once((slowing_in, most_slowdown), lambda: slowing_cpus(shown_in(evidence), most_slowdown))


def slowing_cpus(shown: Sequence[Shown], most_slowdown: float = 0.0) -> float:
    """Return the most CPUs per task that, as a cut, slowed jobs by more than a share; 0 if none did.

    If jobs with less memory are slowed, and are no faster with twice as many CPUs, it is their memory that slows
    them: only jobs with all their memory count then.
    """
    slowing = most_slowing(shown, most_slowdown)
    if slowing:
        less, whole = by_memory(shown)
        if are_slowed_by_memory(less, whole, most_slowdown) and is_no_faster(less):
            return most_slowing(whole, most_slowdown)
    return slowing


def most_slowing(shown: Sequence[Shown], most_slowdown: float) -> float:
    """Return the most CPUs per task at which jobs that were cut to it keep fewer busy than those that had more.

    It is 0 if there are none. Jobs whose users asked for fewer do not count: their programs may be made to keep fewer
    busy.
    """
    for cpus in sorted({job.had for job in shown if job.cut}, reverse=True):
        fewer, more = fewer_and_more(shown, cpus)
        if len(fewer) >= LEAST_JOBS and are_slowed(fewer, more, max(NOTED, most_slowdown)):
            return cpus
    return 0.0


def fewer_and_more(shown: Sequence[Shown], cpus: float) -> tuple[list[float], list[float]]:
    """Return the cores kept busy by jobs cut to `cpus` per task or fewer, but more than half; and by jobs with more."""
    fewer = [job.busy for job in shown if job.cut and cpus / 2 < job.had <= cpus]
    return fewer, [job.busy for job in shown if had_more(job, cpus)]


def is_no_faster(shown: Sequence[Shown]) -> bool:
    """Return whether jobs that were cut are known to be no faster with twice as many CPUs."""
    pairs = [fewer_and_more(shown, cpus) for cpus in {job.had for job in shown if job.cut}]
    told = [pair for pair in pairs if min(map(len, pair)) >= LEAST_JOBS]
    return bool(told) and not any(are_slowed(fewer, more, NOTED) for fewer, more in told)


def by_memory(shown: Sequence[Shown]) -> tuple[list[Shown], list[Shown]]:
    """Return the jobs that had less memory than they asked for, and the others."""
    less, whole = ([job for job in shown if job.less_memory is is_less] for is_less in (True, False))
    return less, whole


def are_slowed_by_memory(less: Sequence[Shown], whole: Sequence[Shown], most_slowdown: float) -> bool:
    """Return whether jobs with less memory keep far fewer cores busy than those with all of it."""
    share = max(NOTED_OF_MEMORY, most_slowdown)
    return len(less) >= LEAST_JOBS and are_slowed(
        [job.busy for job in less], [job.busy for job in whole], share
    )


def had_more(job: Shown, cpus: float) -> bool:
    """Return whether a job had at least twice as many CPUs per task, or more than `cpus` and all that it asked for."""
    return job.had >= 2 * cpus or (job.had > cpus and not job.cut)


def are_slowed(fewer: Sequence[float], more: Sequence[float], share: float) -> bool:
    """Return whether jobs with fewer CPUs keep fewer cores busy than others, by more than a share and chance."""
    if not more or statistics.median(more) <= (1 + share) * statistics.median(fewer):
        return False
    ordered, pairs = sorted(more), len(fewer) * len(more)
    below = sum(len(more) - (bisect_left(ordered, busy) + bisect_right(ordered, busy)) / 2 for busy in fewer)
    return below - pairs / 2 > BY_CHANCE * math.sqrt(pairs * (len(fewer) + len(more) + 1) / 12)


def lacks_control(shown: Iterable[Shown], cpus: int) -> bool:
    """Return whether too few jobs had twice as many CPUs per task to tell whether a cut to `cpus` slows."""
    fewer = more = 0
    for job in shown:
        fewer += job.cut and job.had <= cpus
        more += had_more(job, cpus)
    return fewer >= A_CONTROL * max(more, 1)


def is_drawn(jobs: Sequence[PastJob]) -> bool:
    """Return whether the next job of a family is drawn to compare others with; its last job determines the lot."""
    return bool(jobs) and zlib.crc32(f"{jobs[-1].end_s} {jobs[-1].job_id}".encode()) % DRAWN == 0


def unslowed_cpus(evidence: Evidence, upper: float, most_slowdown: float = 0.0) -> float:
    """Return the fewest CPUs per task that do not slow jobs, or that show whether they do; 0 if `upper` will do."""
    shown, granted = shown_in(evidence), math.ceil(upper)
    if not shown:
        return 0.0
    compared = granted if is_drawn(evidence.jobs) and lacks_control(shown, granted) else 0
    return 2 * max(slowing_in(evidence, most_slowdown), compared)


def doubt_of_memory(evidence: Evidence, most_slowdown: float = 0.0) -> Doubt:
    """Return why a family's memory is not to be cut although its use is known; '' if it may be cut.

    Jobs that are slowed for want of CPUs show nothing of memory, and a job that keeps all its CPUs busy waits for
    nothing.
    """
    shown = shown_in(evidence)
    if not shown:
        return ""
    enough = slowing_in(evidence, most_slowdown)
    less, whole = by_memory([job for job in shown if job.had > enough])
    if are_slowed_by_memory(less, whole, most_slowdown):
        return "slowed"
    waiting = sum(job.busy < BUSY_SHARE * job.had for job in less)
    return (
        "compared" if is_drawn(evidence.jobs) and waiting >= A_CONTROL_OF_MEMORY * max(len(whole), 1) else ""
    )
