"""A past job as models see it: what it asked for, what it had, and what it was seen to need. Pure."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

# `gpu_mem` is the memory of any one GPU: no job can ask for it, and no grant rests on it.
Learned = Literal["memory", "cores", "wall", "gpu_mem"]
LEARNED: tuple[Learned, ...] = ("memory", "cores", "wall", "gpu_mem")

# Below these amounts a logarithm or a ratio says nothing. A core that is busy for less than a tenth of the time does
# little but start the program, which takes twice as long on a busy node. Even if all of that comes at once, on one
# CPU, it makes a run no more than a tenth longer.
LEAST_MIB, LEAST_CORES, LEAST_WALL_S = 1.0, 0.1, 1.0

# The bounds of values in a line of the feed, so that a damaged line is skipped: logarithms are taken of them.
Tasks = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
Whole = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Amount = Annotated[float, msgspec.Meta(ge=0.0)]


class PastJob(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """One finished attempt. Memory is MiB of the whole job, cores are means over its run; None = not known.

    - `complete`: it ran to an end that shows its whole need.
    - `mem_at_least`: it was killed for memory and needed more than it shows.
    - `mem_short`: its memory was sampled too early, or on one of several nodes only, to show more than a bound.
    - `wall_at_least`: it was ended at its time limit.
    - `job_id`: Slurm's number of the job, 0 if not known.
    - `given_*`: what it ran with, after any cut of ours.
    - `gpu_mem_mib`: the most it used of any one GPU.
    - `gpu_short`: its GPUs were sampled too seldom, too briefly or on too few nodes to show more than bounds.
    - `input_mib`: the size of the files that its script named as input.
    - `step_*`: what those of its steps that asked for a part of the job held at one time.
    - `failed`: it ended by itself, with an exit code other than 0.
    """

    end_s: int
    num_tasks: Tasks
    asked_cpus: Whole | None
    asked_mem_mib: Whole | None
    asked_gpus: Whole | None
    complete: bool
    mem_mib: Amount | None
    mem_at_least: bool
    cores_per_task: Amount | None
    wall_s: int
    gpus: Whole | None
    gpu_source: str
    script: str
    job_id: int = 0
    mem_short: bool = False
    wall_at_least: bool = False
    given_cpus: Whole | None = None
    given_gpus: Whole | None = None
    gpu_mem_mib: Amount | None = None
    gpu_short: bool = False
    input_mib: Amount | None = None
    given_mem_mib: Whole | None = None
    step_cpus: Whole | None = None
    step_mem_mib: Whole | None = None
    failed: bool = False


def use_of(job: PastJob, dimension: Learned) -> float | None:
    """Return what a past job used (MiB, cores per task, seconds), at least the smallest amount; None = unknown."""
    value: float | None
    if dimension == "memory":
        value, smallest = job.mem_mib, LEAST_MIB
    elif dimension == "cores":
        value, smallest = job.cores_per_task, LEAST_CORES
    elif dimension == "wall":
        value, smallest = job.wall_s, LEAST_WALL_S
    else:
        value, smallest = job.gpu_mem_mib, LEAST_MIB
    return None if value is None else max(value, smallest)


def shows_need(job: PastJob, dimension: Learned) -> bool:
    """Return whether a past job's use is all that it needed: it ran to its end, and was sampled for long enough."""
    if dimension == "memory":
        return job.complete and not job.mem_short
    return job.complete and not (dimension == "gpu_mem" and job.gpu_short)


def was_cut(job: PastJob) -> bool:
    """Return whether a past job ran with less memory than it asked for.

    If it asked for none, its memory came with its CPUs, and the answer is whether it ran with fewer of these.
    """
    asked, given = (
        (job.asked_cpus, job.given_cpus)
        if job.asked_mem_mib is None
        else (job.asked_mem_mib, job.given_mem_mib)
    )
    return asked is not None and given is not None and given < asked


def had_fewer_cpus(job: PastJob) -> bool:
    """Return whether a past job ran with fewer CPUs than it asked for."""
    return job.given_cpus is not None and job.asked_cpus is not None and job.given_cpus < job.asked_cpus


def had_fewer_gpus(job: PastJob) -> bool:
    """Return whether a past job is known to have run with fewer GPUs than it asked for."""
    return job.given_gpus is not None and job.given_gpus < (job.asked_gpus or 0)


def had_less(job: PastJob) -> bool:
    """Return whether a past job ran with fewer CPUs, or less memory, than it asked for."""
    return was_cut(job) or had_fewer_cpus(job)


def cpus_a_task(job: PastJob) -> float:
    """Return how many CPUs per task a past job had; 0 if that is not known."""
    return (job.given_cpus or 0) / job.num_tasks


def ended_well(job: PastJob) -> bool:
    """Return whether a past job ended successfully, and in time."""
    return job.complete and not job.wall_at_least


def held_by(job: PastJob, dimension: Learned) -> float:
    """Return what a past job asked for of a dimension, or else used, times its seconds."""
    asked: float | None = None
    if dimension == "memory":
        asked = job.asked_mem_mib
    elif dimension != "gpu_mem":  # no job can ask for it
        asked = job.asked_cpus if dimension == "cores" else 1
    return (use_of(job, dimension) or 0.0 if asked is None else asked) * max(job.wall_s, LEAST_WALL_S)
