"""With how many CPUs, or how little memory, jobs run longer than what they were seen to use foretells. Pure.

A mean says nothing of turns: a job that keeps one core busy, and eight in a tenth of its work's time, keeps 1.7 busy,
and with two CPUs runs 1.3 times as long. It does not fail, and shows less than it needs: 1.3 cores, of which none is
short. But that tells: the same work in more time is fewer cores busy. So where jobs with c CPUs a task keep fewer busy
than those that had at least twice as many, or all, they are slowed by as much, whatever their inputs: a larger one is
more work and more time. Whether it is chance is told by ranks (Mann and Whitney, 1947).

With nobody to compare with nothing is told, and of the last jobs of a family all may be cut: now and then one is given
twice as many. So a wrong alarm mends itself too: who is given more is soon one of those that are compared.

So it is with memory: who has too little for his cache of files waits for the disk, fails at nothing, and keeps fewer
cores busy than who had all he asked for. How much would be enough nobody knows: he gets all.
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

# Of less than this share of its time hardly anybody takes note, and jobs that share a node differ by as much.
NOTED = 0.1
# Standard deviations by which the sum of ranks may differ by chance: 2 % to the wrong side, which costs some CPUs
# for as long as those that seem slowed are remembered (`python -m bench.slowed`).
BY_CHANCE = 2.0
# From so many jobs with fewer CPUs on something is said.
LEAST_JOBS = 5
# Of so many jobs that were cut one is to have had twice as many CPUs.
A_CONTROL = 20
# Where one is missing it is drawn, anew as each job ends: else all of an array would be it, and every second array.
DRAWN = 20
# Who waits for the disk waits for long, and memory is what is saved most: only what runs half as long again is taken
# note of, and of so many jobs whose memory was cut one is to have had all.
NOTED_OF_MEMORY, A_CONTROL_OF_MEMORY = 0.5, 50

# Why nothing is said of memory: with less of it jobs run longer, or one is given all to learn whether they do.
Doubt = Literal["", "slowed", "compared"]


class Shown(NamedTuple):
    """What a past job had and kept busy, in CPUs a task, and whether it had asked for more, or for more memory."""

    had: float
    busy: float
    cut: bool
    less_memory: bool = False


def shown_by(jobs: Iterable[PastJob]) -> list[Shown]:
    """Return what the jobs show that ran to their end."""
    return [
        # By place: a submission waits for it.
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
    """Return what jobs show that may be compared: none where nobody had less. CPUs and memory share it."""
    return evidence.once(
        shown_in, lambda: shown_by(evidence.compared) if any(map(had_less, evidence.compared)) else []
    )


def slowing_in(evidence: Evidence, most_slowdown: float) -> float:
    """Return `slowing_cpus` of what jobs show; CPUs and memory share it too."""
    return evidence.once((slowing_in, most_slowdown), lambda: slowing_cpus(shown_in(evidence), most_slowdown))


def slowing_cpus(shown: Sequence[Shown], most_slowdown: float = 0.0) -> float:
    """Return the most CPUs a task to which jobs were cut that slowed them by more than a share; 0 where none did.

    Who had less memory too, and with twice as many CPUs is no faster, is slowed by that.
    """
    slowing = most_slowing(shown, most_slowdown)
    if slowing:
        less, whole = by_memory(shown)
        if are_slowed_by_memory(less, whole, most_slowdown) and is_no_faster(less):
            return most_slowing(whole, most_slowdown)
    return slowing


def most_slowing(shown: Sequence[Shown], most_slowdown: float) -> float:
    """Return the most CPUs a task with which those that were cut to them keep fewer busy than those that had more.

    Who asked for fewer himself may well keep fewer busy: so his program is made.
    """
    for cpus in sorted({job.had for job in shown if job.cut}, reverse=True):
        fewer, more = fewer_and_more(shown, cpus)
        if len(fewer) >= LEAST_JOBS and are_slowed(fewer, more, max(NOTED, most_slowdown)):
            return cpus
    return 0.0


def fewer_and_more(shown: Sequence[Shown], cpus: float) -> tuple[list[float], list[float]]:
    """Return what those keep busy that were cut to so many CPUs a task, or up to half as many, and those with more."""
    fewer = [job.busy for job in shown if job.cut and cpus / 2 < job.had <= cpus]
    return fewer, [job.busy for job in shown if had_more(job, cpus)]


def is_no_faster(shown: Sequence[Shown]) -> bool:
    """Whether it is known of jobs that were cut that twice as many CPUs make none faster."""
    pairs = [fewer_and_more(shown, cpus) for cpus in {job.had for job in shown if job.cut}]
    told = [pair for pair in pairs if min(map(len, pair)) >= LEAST_JOBS]
    return bool(told) and not any(are_slowed(fewer, more, NOTED) for fewer, more in told)


def by_memory(shown: Sequence[Shown]) -> tuple[list[Shown], list[Shown]]:
    """Return those that had less memory than they asked for, and the others."""
    less, whole = ([job for job in shown if job.less_memory is is_less] for is_less in (True, False))
    return less, whole


def are_slowed_by_memory(less: Sequence[Shown], whole: Sequence[Shown], most_slowdown: float) -> bool:
    """Whether jobs with less memory keep far fewer cores busy than those with all of it."""
    share = max(NOTED_OF_MEMORY, most_slowdown)
    return len(less) >= LEAST_JOBS and are_slowed(
        [job.busy for job in less], [job.busy for job in whole], share
    )


def had_more(job: Shown, cpus: float) -> bool:
    """Whether a job had at least twice as many CPUs a task, or all that it asked for, if that is more."""
    return job.had >= 2 * cpus or (job.had > cpus and not job.cut)


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
        more += had_more(job, cpus)
    return fewer >= A_CONTROL * max(more, 1)


def is_drawn(jobs: Sequence[PastJob]) -> bool:
    """Whether the next job of a family is one to compare others with: by lot, which its last job casts."""
    return bool(jobs) and zlib.crc32(f"{jobs[-1].end_s} {jobs[-1].job_id}".encode()) % DRAWN == 0


def unslowed_cpus(evidence: Evidence, upper: float, most_slowdown: float = 0.0) -> float:
    """Return the fewest CPUs a task with which jobs are not slowed, or it is told; 0 where `upper` will do."""
    shown, granted = shown_in(evidence), math.ceil(upper)
    if not shown:
        return 0.0
    compared = granted if is_drawn(evidence.jobs) and lacks_control(shown, granted) else 0
    return 2 * max(slowing_in(evidence, most_slowdown), compared)


def doubt_of_memory(evidence: Evidence, most_slowdown: float = 0.0) -> Doubt:
    """Return why a family's memory is not to be cut though it is known how much they use; '' where it may be.

    Jobs that are slowed for want of CPUs tell nothing of memory, and who keeps all his CPUs busy waits for nothing.
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
