"""What Slurm gives a waiting job beyond what it reports: whole cores or sockets, and what comes with GPUs. Pure.

A job that asks for one CPU of a two-thread core holds both. With CR_Core and CR_Socket Slurm then reports two, with
the memory of two; with CR_CPU it reports one, and nobody gets the other (seen on 22.05 and 24.11). A job whose CPUs
cannot carry its memory (MaxMemPerCPU) is given more CPUs: only the node shows those. The CPUs that come with GPUs
(--cpus-per-gpu, DefCpuPerGPU) are in no sum of a waiting job, and their memory is not always (seen on 22.05).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from accounting.units import round_up
from slurm_plugin.slurm.snapshot import NodeState, QueuedJob, Snapshot

# More than any job gets with its GPUs; a text that a user makes look like Slurm's own line may say more.
_MOST_CPUS, _MOST_MIB = 1 << 24, 1 << 40


class WholeCores(msgspec.Struct, frozen=True, kw_only=True):
    """What is allocated together. `steps`: by partition, the CPUs of which jobs get a multiple on each node.

    For a job with several partitions the smallest applies. `each_task`: so does each of its tasks, except in
    `by_sockets`, the partitions of whole sockets. `with_memory`: memory per CPU is given for each CPU that the job
    holds.
    """

    steps: Mapping[str, int]
    by_sockets: frozenset[str] = frozenset()
    each_task: bool = False
    with_memory: bool = True

    def step_of(self, job: QueuedJob) -> int:
        """Return the number of which a job is given a multiple in CPUs, wherever it may start."""
        return min((self.steps.get(name, 1) for name in job.partitions), default=1)

    def taken(self, job: QueuedJob) -> tuple[int, int]:
        """Return the CPUs and the MiB that a job, or one task of an array, takes in all."""
        step, nodes = self.step_of(job), len(job.nodes) or max(1, job.num_nodes)
        cpus, of_gpus = job.cpus, _cpus_of_gpus(job)
        if job.waits:
            cpus = max(cpus, of_gpus, nodes * job.min_cpus_per_node)
        if job.waits and step > 1 and self.each_task and self.by_sockets.isdisjoint(job.partitions):
            cpus = max(cpus, job.num_tasks * round_up(job.cpus_per_task, step))
        cpus = nodes * round_up(cpus / nodes, step)
        return cpus, _mem_mib(job, cpus if self.with_memory else of_gpus)


def _cpus_of_gpus(job: QueuedJob) -> int:
    return min(_MOST_CPUS, job.gpus * job.cpus_per_gpu)


def _mem_mib(job: QueuedJob, cpus: int) -> int:
    """Return the MiB that a job takes; memory per CPU is given for each of these CPUs."""
    if not job.waits or job.mem_per_node_mib:
        return job.mem_mib
    of_gpus, share_mib = min(_MOST_MIB, job.gpus * job.mem_per_gpu_mib), job.mem_per_cpu_mib or 0
    # It replaces the default memory for each CPU, which cannot be told from what a user asks for.
    if of_gpus and share_mib:
        return of_gpus
    return max(job.mem_mib, of_gpus, cpus * share_mib)


def whole_cores_of(snapshot: Snapshot) -> WholeCores:
    """Return what is allocated together in a cluster; if the nodes of a partition differ, the smallest of any."""
    by_sockets = frozenset(partition.name for partition in snapshot.partitions if partition.whole_sockets)
    steps: dict[str, int] = {}
    for node in snapshot.nodes:
        for name in node.partitions:
            step = _step(node, whole_sockets=name in by_sockets)
            steps[name] = min(step, steps.get(name, step))
    terms = snapshot.terms
    return WholeCores(
        steps=steps,
        by_sockets=by_sockets,
        each_task=terms.one_task_per_core,
        with_memory=not terms.counts_threads,
    )


def _step(node: NodeState, *, whole_sockets: bool) -> int:
    return node.cpus_per_socket if whole_sockets else node.cpus_per_core
