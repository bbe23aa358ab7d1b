"""CPUs that Slurm gives a job for its memory under MaxMemPerCPU: with less memory it would lose them. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

from accounting.request import Dimension, JobRequest
from accounting.units import round_up
from models.demand.prediction import Prediction
from slurm_plugin.policy.limits import Limits, fewest_busy_cpus
from slurm_plugin.policy.submission import DIRECT


def keeps_brought_cpus(request: JobRequest, kept: Mapping[Dimension, str]) -> bool:
    """Whether a job keeps all CPUs that its memory brings, as it keeps those that it asks for.

    A script that keeps them may start a rank on each. So does a direct srun with `-c` and without `-n`: for `-c 1
    --mem=8000` at 2000 MiB per CPU it starts four tasks (22.05 to 26.05). Without `-c` it starts one on each node.
    """
    reason = kept.get("cores")
    if reason in DIRECT:
        return request.cpus_per_task is not None and request.num_tasks <= (request.nodes or 1)
    # Whole sockets have CPUs beyond those that memory brings. Other forms may hide what the script does.
    return reason not in (None, "whole_sockets")


def bringing_mib(
    request: JobRequest, fewer: JobRequest, prediction: Prediction, limits: Limits, *, all_stay: bool
) -> int:
    """Return the memory, in the kind it was asked for, that brings the CPUs which the job needs; 0: none does.

    Under MaxMemPerCPU, Slurm gives a task more CPUs than it asks for if its memory needs them: `--mem=8000` at 2000
    MiB per CPU gets four. With less memory it would lose them, however many it keeps busy, or must have by its script
    or by its QOS. Which of its partitions the job will run in is not known: where a CPU may carry more, the same CPUs
    take more memory. `all_stay`: it needs all that its memory brings.
    """
    if not limits.max_mem_per_cpu_mib:
        return 0
    several = (limits.max_mem_per_cpu_mib, *limits.looser_mem_per_cpu_mib)
    busy = math.inf if all_stay else fewest_busy_cpus(prediction, limits)
    return max(_bringing_mib(request, fewer, busy, limits, limit_mib) for limit_mib in several)


def _bringing_mib(request: JobRequest, fewer: JobRequest, busy: float, limits: Limits, limit_mib: int) -> int:
    cpus, by_node = fewer.cpus_per_task or 1, request.mem_per_node_mib is not None
    tasks = math.ceil(request.num_tasks / (request.nodes or 1)) if by_node else 1
    asked_mib = request.mem_per_node_mib or (request.mem_per_cpu_mib or 0) * cpus
    brought = math.ceil(math.ceil(asked_mib / limit_mib) / tasks)
    # A task that is alone has a whole core anyway, but its QOS looks at what is asked.
    has = round_up(cpus, limits.cpus_step) if request.num_tasks == 1 else cpus
    wanted = int(min(max(busy if busy > has else 0, limits.min_cpus_per_task), brought))
    if wanted <= cpus:
        return 0
    return limit_mib * (wanted * tasks if by_node else math.ceil(wanted / cpus))
