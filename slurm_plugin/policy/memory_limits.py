"""MaxMemPerCPU, and what else Slurm's memory settings keep as asked. Pure.

Under MaxMemPerCPU, Slurm raises the CPUs of a job if they cannot carry its memory, after the hook has seen it.
However few CPUs are granted, such a job gets no fewer, and on 26.05 its environment then contradicts itself, so that
an srun inside it aborts. CPUs are therefore cut only as far as the remaining ones carry the remaining memory.
"""

from __future__ import annotations

import math

from accounting.request import Dimension, JobRequest
from slurm_plugin.policy.facts import MemoryTerms


def lowest_share_mib(share_mib: int | None, max_per_cpu_mib: int) -> int | None:
    """Return the MiB that a CPU really brings: Slurm spreads a larger share over several CPUs. None and 0 stay."""
    return min(share_mib, max_per_cpu_mib) if share_mib and max_per_cpu_mib else share_mib


def carrying_cpus(mem_per_node_mib: int, max_per_cpu_mib: int) -> int:
    """Return the CPUs that each task must keep, as if it were alone on its node, so that Slurm does not raise them."""
    return math.ceil(mem_per_node_mib / max_per_cpu_mib) if max_per_cpu_mib else 1


def counts_anew(request: JobRequest, max_per_cpu_mib: int) -> bool:
    """Whether Slurm gives a job fewer CPUs per task than asked, because its memory needs more than a task has.

    From 24.11, slurmctld then divides the CPUs that the memory needs by the tasks: `-n 4 -c 8 --mem=20000` at 2000
    MiB per CPU becomes 12 CPUs, not 32. With less memory the job's CPUs would count as asked, and it would get more
    than before.
    """
    asked_cpus, asked_mib = request.cpus_per_task or 1, request.mem_per_node_mib
    if not max_per_cpu_mib or asked_mib is None:
        return False
    needed = math.ceil(asked_mib / max_per_cpu_mib)
    return needed > asked_cpus and math.ceil(needed * (request.nodes or 1) / request.num_tasks) < asked_cpus


def would_start_more_tasks(request: JobRequest, max_per_cpu_mib: int, cpus_step: int) -> bool:
    """Whether an srun in a job would start more tasks if the job had less memory.

    From 24.11, an srun without -n starts as many tasks as fit. Slurm raises a task's CPUs for its memory: `-c 1
    --mem=8000` at 2000 MiB per CPU gets 4. If they are not raised, the task has one of a core's two threads, and a
    second task fits.
    """
    cpus = request.cpus_per_task
    if cpus is None or 2 * cpus > cpus_step or request.num_tasks > (request.nodes or 1):
        return False
    return raises_cpus(request, max_per_cpu_mib)


def raises_cpus(request: JobRequest, max_per_cpu_mib: int) -> bool:
    """Whether Slurm gives a task more CPUs than it asks for, because these cannot carry its memory."""
    if not max_per_cpu_mib or request.cpus_per_task is None:
        return False
    each_mib = max((request.mem_per_node_mib or 0) / request.cpus_per_task, request.mem_per_cpu_mib or 0)
    return each_mib > max_per_cpu_mib


def kept_by_limits(
    request: JobRequest, memory: MemoryTerms, cpus_step: int, *, overcommits: bool = False
) -> dict[Dimension, str]:
    """Return the dimensions that Slurm's memory settings keep as asked, each with the setting's name.

    Slurm gives the job a multiple of `cpus_step` CPUs. `overcommits`: its tasks share CPUs (--overcommit). Memory and
    CPUs that come with GPUs by JobDefaults would be lost with them, so such a job keeps its GPUs.
    """
    kept: dict[Dimension, str] = {}
    if memory.is_uncounted:
        # Nobody would gain, and the job might start where there is less memory, of which none is reserved for it.
        kept["memory"] = "SelectTypeParameters"
    if memory.limits_virtual:
        # A program that maps more than it uses fails with less (Java, Go, CUDA), and what it maps is not measured.
        kept["memory"] = "VSizeFactor"
    if would_start_more_tasks(request, memory.max_per_cpu_mib, cpus_step):
        kept["memory"] = "MaxMemPerCPU"
    if overcommits and cpus_step > 1 and raises_cpus(request, memory.max_per_cpu_mib):
        # On cores of two threads, 24.11 never starts `-n 4 -c 1 --overcommit`, unless it raises the CPUs.
        kept["memory"] = "MaxMemPerCPU"
    if counts_anew(request, memory.max_per_cpu_mib):
        kept |= {"memory": "MaxMemPerCPU", "cores": "MaxMemPerCPU"}
    if memory.default_per_gpu_mib and request.mem_mib is None:
        kept["gpus"] = "DefMemPerGPU"
    if memory.default_cpus_per_gpu and request.cpus_per_task is None:
        kept["gpus"] = "DefCpuPerGPU"
    return kept
