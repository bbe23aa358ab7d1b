"""What the comparable past jobs of a family say. Pure: no clock, no database.

It is worked out once for all requests that the same jobs stand for: a submission waits for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from accounting.request import JobRequest
from models.families import Family, family_keys

Learned = Literal["memory", "cores", "wall"]
LEARNED: tuple[Learned, ...] = ("memory", "cores", "wall")

# A past job tells about one that asks for up to this many times as much: who suddenly asks for ten times the
# memory knows something about the input that no history does.
COMPARABLE_REQUEST = 2.0
# Below these amounts a logarithm says nothing.
LEAST_MIB, LEAST_CORES, LEAST_WALL_S = 1.0, 0.01, 1.0
# A name stands for a new script too once this many different ones ran under it. Below, a changed script is new work.
VARIED_SCRIPTS = 3
# A job killed for memory needed more than it had; the next one like it gets this much more than that. The figure is
# the Vertical Pod Autoscaler's OOM bump.
KILLED_BUMP = 1.2


class PastJob(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """One finished attempt. Memory is MiB of the whole job, cores are means over its run; None = not known.

    `complete` says that it ran to an end that shows its whole need; `mem_at_least` that it was killed for memory
    and needed more than it shows.
    """

    end_s: int
    num_tasks: int
    asked_cpus: int | None
    asked_mem_mib: int | None
    asked_gpus: int | None
    complete: bool
    mem_mib: float | None
    mem_at_least: bool
    cores_per_task: float | None
    wall_s: int
    gpus: int | None
    gpu_source: str
    script: str


def use_of(job: PastJob, dimension: Learned) -> float | None:
    """Return what a past job used (MiB, cores per task, seconds), at least the smallest; None = unknown."""
    if dimension == "memory":
        value, smallest = job.mem_mib, LEAST_MIB
    elif dimension == "cores":
        value, smallest = job.cores_per_task, LEAST_CORES
    else:
        value, smallest = job.wall_s, LEAST_WALL_S
    return None if value is None else max(value, smallest)


class PastUse(msgspec.Struct, frozen=True, kw_only=True):
    """What past jobs used of one dimension, in its unit and as logarithms, the oldest first.

    `needed` is what each needed at least: its use, or more where it was killed for memory. `complete` counts the jobs
    that show their whole need, or that they needed more.
    """

    needed: tuple[float, ...]
    complete: int
    highest_log: float
    mean_log: float
    last_log: float
    spread_log: float

    @property
    def count(self) -> int:
        """How many jobs it is known of."""
        return len(self.needed)


def past_use(jobs: Iterable[PastJob], dimension: Learned) -> PastUse | None:
    """Return what jobs used of a dimension; None where it is known of none."""
    needed: list[float] = []
    logs: list[float] = []
    complete = 0
    for job in jobs:
        use = use_of(job, dimension)
        if use is None:
            continue
        killed = dimension == "memory" and job.mem_at_least
        needed.append(use * KILLED_BUMP if killed else use)
        logs.append(math.log(use))
        complete += job.complete or killed
    if not logs:
        return None
    mean = sum(logs) / len(logs)
    return PastUse(
        needed=tuple(needed),
        complete=complete,
        highest_log=max(logs),
        mean_log=mean,
        last_log=logs[-1],
        spread_log=math.sqrt(sum((value - mean) ** 2 for value in logs) / len(logs)),
    )


class Evidence:
    """The comparable past jobs of the family that was found for a request, the oldest first."""

    def __init__(self, family: Family, jobs: Sequence[PastJob]) -> None:
        self.family = family
        self.jobs = tuple(jobs)
        self._uses: dict[Learned, PastUse | None] = {}

    def use(self, dimension: Learned) -> PastUse | None:
        """Return what they used of a dimension; None where it is known of none."""
        if dimension not in self._uses:
            self._uses[dimension] = past_use(self.jobs, dimension)
        return self._uses[dimension]


class Likeness(msgspec.Struct, frozen=True):
    """All of a request that decides which past jobs tell about it; amounts are those of the whole job."""

    families: tuple[Family, ...]
    script_signature: str
    num_tasks: int
    cpus: int
    mem_mib: int | None
    gpus: int | None


def likeness_of(request: JobRequest) -> Likeness:
    """Return a request's likeness."""
    return Likeness(
        family_keys(request),
        request.script_signature,
        request.num_tasks,
        request.cpus,
        request.mem_mib,
        request.gpus,
    )


def comparable(jobs: Iterable[PastJob], like: Likeness) -> tuple[PastJob, ...]:
    """Return the past jobs that tell about a request: as many tasks, and not asking for far less."""
    mem_mib, cpus, gpus = (
        0.0 if asked is None else asked / COMPARABLE_REQUEST for asked in (like.mem_mib, like.cpus, like.gpus)
    )
    return tuple(
        job
        for job in jobs
        if job.num_tasks == like.num_tasks
        and (job.asked_mem_mib is None or job.asked_mem_mib >= mem_mib)
        and (job.asked_cpus is None or job.asked_cpus >= cpus)
        and (job.asked_gpus is None or job.asked_gpus >= gpus)
    )


def stands_for(evidence: Evidence, script_signature: str) -> bool:
    """Whether a family's past tells about a script: it ran the same, one of many, or none that is known."""
    scripts = {job.script for job in evidence.jobs if job.script}
    same = not script_signature or not scripts or scripts == {script_signature}
    return same or len(scripts) >= VARIED_SCRIPTS
