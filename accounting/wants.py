"""Whether a job failed for want of what a grant took from it: the one definition, for recovery and brakes. Pure."""

from __future__ import annotations

from typing import Literal

from accounting.request import Grant, JobRequest, granted

# What the end of a job's own output says that it had too little of, or that it waits for CPUs.
Said = Literal["said_no_memory", "said_no_gpu_memory", "said_no_cpus", "said_waits_for_cpus"]
Cause = Literal["out_of_memory", "killed", "timeout", "said_no_memory", "said_no_gpu_memory", "said_no_cpus"]
# Of these causes a job wanted CPUs.
OF_CPUS: tuple[Cause, ...] = ("timeout", "said_no_cpus")


def wants(cause: Cause, asked: JobRequest, grant: Grant, *, comes_with_cpus: bool = False) -> bool:
    """Whether a grant took of what a job then wanted: CPUs (OF_CPUS), GPUs for their memory, else memory.

    `comes_with_cpus` says that what a job has that asks for no memory is so much for each CPU (DefMemPerCPU).
    """
    given = granted(asked, grant)
    if cause in OF_CPUS:
        return grant.cpus_per_task is not None
    if cause == "said_no_gpu_memory":
        return (given.gpus or 0) < (asked.gpus or 0)
    if asked.mem_mib is None:
        return comes_with_cpus and given.cpus < asked.cpus
    return (given.mem_mib or 0) < asked.mem_mib
