"""Whether a job failed for lack of what a grant took from it: the one definition, for recovery and brakes. Pure."""

from __future__ import annotations

from typing import Literal

from accounting.request import Grant, JobRequest, granted

# What the end of a job's own output says that it lacked, or that it waits for CPUs or GPUs. A refused or
# waiting step may lack either: srun has the same words for both.
Said = Literal[
    "said_no_memory", "said_no_gpu_memory", "said_no_gpus", "said_no_cpus", "said_no_step", "said_waits"
]  # fmt: skip
Cause = Literal[
    "out_of_memory", "killed", "timeout",
    "said_no_memory", "said_no_gpu_memory", "said_no_gpus", "said_no_cpus", "said_no_step",
]  # fmt: skip
# Causes for which a job needed CPUs, or may have; and those for which it needed GPUs only.
OF_CPUS: tuple[Cause, ...] = ("timeout", "said_no_cpus", "said_no_step")
OF_GPUS: tuple[Cause, ...] = ("said_no_gpu_memory", "said_no_gpus")


def wants(cause: Cause, asked: JobRequest, grant: Grant, *, comes_with_cpus: bool = False) -> bool:
    """Whether a grant cut what the job lacked: CPUs (OF_CPUS), GPUs (OF_GPUS), either for a step, else memory.

    `comes_with_cpus` says that a job which requests no memory gets a fixed amount per CPU (DefMemPerCPU).
    """
    given = granted(asked, grant)
    fewer_gpus = (given.gpus or 0) < (asked.gpus or 0)
    if cause in OF_CPUS:
        return grant.cpus_per_task is not None or (cause == "said_no_step" and fewer_gpus)
    if cause in OF_GPUS:
        return fewer_gpus
    if asked.mem_mib is None:
        return comes_with_cpus and given.cpus < asked.cpus
    return (given.mem_mib or 0) < asked.mem_mib
