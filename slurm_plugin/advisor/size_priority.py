"""What a job's size is worth in its priority: Slurm's factors JobSize and TRES. Pure.

A job that asks for less loses points by them, or gains some (PriorityFavorSmall). Computed like
`set_priority_factors` and `_get_tres_factors` of priority/multifactor (22.05 to 26.05).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from models.planning.problem import Pending
from models.scheduling.room import MILLI
from slurm_plugin.advisor.waiting import Variant
from slurm_plugin.slurm.snapshot import NodeState, QueuedJob, SchedulerTerms, Snapshot

JOB_SIZE = "JobSize"


def at_their_size(job: QueuedJob, found: Sequence[Variant], snapshot: Snapshot) -> list[Variant]:
    """Return the variants of a job, each with the priority that Slurm would give it for its size.

    The first one is the job as it is. A job whose priority was set directly keeps it.
    """
    if job.fixed:
        return list(found)
    asked = found[0].job
    worth = size_points(asked, job.partitions, snapshot)
    return [
        msgspec.structs.replace(
            one,
            job=msgspec.structs.replace(
                one.job,
                priority=max(
                    0, asked.priority + round(size_points(one.job, job.partitions, snapshot) - worth)
                ),
            ),
        )
        for one in found
    ]


def size_points(job: Pending, partitions: Sequence[str], snapshot: Snapshot) -> float:
    """Return how many points of its priority a job has for CPUs, memory, nodes and time limit.

    TRES count as shares of the first of its `partitions`; Slurm also uses the first if there are several.
    """
    terms = snapshot.terms
    cpus, mem_mib = job.demand[0] / MILLI, job.demand[1]
    points = 0.0
    if weight := terms.weights.get(JOB_SIZE, 0):
        points += weight * _size_factor(job.nodes, cpus, job.limit_s, snapshot.nodes, terms)
    there = [node for node in snapshot.nodes if partitions and partitions[0] in node.partitions]
    for name, asked, has in (
        ("cpu", cpus, sum(node.cpus for node in there)),
        ("mem", mem_mib, sum(node.mem_mib for node in there)),
    ):
        whole = 1.0 if terms.tres_by_amount else has
        points += terms.tres_weights.get(name, 0.0) * asked / whole if whole else 0.0
    return points


def _size_factor(
    nodes: int, cpus: float, limit_s: float, cluster: Sequence[NodeState], terms: SchedulerTerms
) -> float:
    all_nodes, all_cpus = len(cluster), sum(node.cpus for node in cluster)
    if not all_nodes or not all_cpus:
        return 0.0
    if terms.size_by_time:
        factor = max(nodes * all_cpus / all_nodes, cpus) / max(1.0, limit_s / 60) / all_cpus
    else:
        factor = (nodes / all_nodes + cpus / all_cpus) / 2
    factor = min(1.0, factor)
    return 1.0 - factor if terms.favors_small else factor
