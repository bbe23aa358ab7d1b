"""The bounds for one job, and what they make of the CPUs that it keeps busy. Pure."""

from __future__ import annotations

import math

import msgspec

from models.demand.prediction import Prediction


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds for one job. Memory is MiB; `least_share` and `min_saving` are shares of the request.

    `headroom` is added to every prediction, as a fraction. No grant is below its floor or below `least_share` of what
    was asked, and a cut that saves less than `min_saving` is not made. CPUs per task are rounded up to `cpus_step`.

    `def_mem_per_cpu_mib` is the partition's DefMemPerCPU: memory that shrinks with the CPUs of a job that asked for
    CPUs only. None: not known, and such a job keeps its CPUs. 0: memory does not follow CPUs here.
    `def_mem_per_node_mib` is what such a job gets per node instead (0: nothing is set), and `max_mem_per_cpu_mib` the
    most that Slurm lets one CPU carry (0: any amount); in some of the job's partitions that may be one of
    `looser_mem_per_cpu_mib`. Slurm limits jobs to `mem_limit_share` of the memory that they have. `tasks_stay`: the
    number of tasks on each node is fixed. `cut_sessions`: sessions that a person works in are sized like any other job.
    """

    memory_floor_mib: int
    memory_step_mib: int
    min_saving: float
    def_mem_per_cpu_mib: int | None
    headroom: float = 0.0
    least_share: float = 0.0
    min_cpus_per_task: int = 1
    min_gpus: int = 1
    cpus_step: int = 1
    def_mem_per_node_mib: int = 0
    max_mem_per_cpu_mib: int = 0
    looser_mem_per_cpu_mib: tuple[int, ...] = ()
    mem_limit_share: float = 1.0
    tasks_stay: bool = False
    cut_sessions: bool = False


def busy_cpus(cores: float, limits: Limits) -> int:
    """Return the CPUs for so many busy cores, with the site's headroom."""
    return math.ceil(cores * (1 + limits.headroom) - 1e-6)


def fewest_busy_cpus(prediction: Prediction, limits: Limits) -> int:
    """Return the CPUs that a task must keep, slowed as far as the site allows; 1 if not known."""
    if prediction.cores is None:
        return 1
    fewest = prediction.cores.upper if prediction.fewest_cpus is None else prediction.fewest_cpus
    return busy_cpus(fewest, limits)
