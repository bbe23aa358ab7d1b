"""Which steps of srun asked for a part of their job, by their AllocTRES next to that of the job. Pure, on columns.

An srun without such options gets everything that its job has on the step's nodes. From 24.11 on, and if its user sets
SRUN_CPUS_PER_TASK, it gets as many CPUs per task as the job asked for; these follow a cut, so they are no request of
the step's own. docs/decisions/0076-what-steps-asked-for.md shows what each way of starting a step looks like.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accounting.frames import Flags, Floats, Ints

# Memory is whole MiB: an equal share may be off by the rounding.
ROUNDING_MIB = 1


@dataclass(frozen=True)
class Shares:
    """What each of some steps has, or the job of each: totals over its nodes; NaN = not known."""

    tasks: Ints
    nodes: Ints
    cpus: Floats
    mem_mib: Floats
    gpus: Floats | None = None


def asked_for_cpus(step: Shares, job: Shares, requested_cpus: Floats) -> Flags:
    """Flag the steps that asked for CPUs; `requested_cpus` is ReqTRES of each one's job, after any cut.

    They have fewer CPUs per task than the job, or more but not all, or more tasks than the job. How many CPUs the job
    has on one of several nodes is unknown: on some of the nodes, more CPUs per task than the job's count as all.
    """
    # Whole cores may give a job, and a step, more CPUs than it asked for.
    fewer = step.cpus * job.tasks < step.tasks * np.fmin(requested_cpus, job.cpus)
    more = step.cpus * job.tasks > step.tasks * job.cpus
    more_but_not_all = more & (step.cpus < job.cpus) & (step.nodes >= job.nodes)
    flags: Flags = fewer | more_but_not_all | (step.tasks > job.tasks)
    return flags


def asked_for_memory(step: Shares, job: Shares, per_node: Flags) -> Flags:
    """Flag the steps that asked for memory: they have less per node than the job.

    If the job did not ask for memory `per_node`, an equal share per CPU or GPU just comes with these.
    """
    with_cpus_mib = job.mem_mib * step.cpus / np.maximum(job.cpus, 1.0)
    gpu_mib = job.mem_mib / np.fmax(1.0 if job.gpus is None else job.gpus, 1.0)
    with_gpus_mib = np.rint(step.mem_mib / np.fmax(gpu_mib, 1.0)) * gpu_mib
    nearest_mib = np.minimum(np.abs(step.mem_mib - with_cpus_mib), np.abs(step.mem_mib - with_gpus_mib))
    less = step.mem_mib < job.mem_mib * step.nodes / job.nodes
    flags: Flags = less & (per_node | ~(nearest_mib <= ROUNDING_MIB))
    return flags
