"""How far a request may be cut: `size(request, prediction, limits) -> Sized`. Pure; the site's rules in one list.

Each rule sizes one dimension and gives its reason. Never above the request, never below one of anything, in the
kind of request the user used.
"""

from __future__ import annotations

import math

import msgspec

from accounting.decisions import DimensionReason
from accounting.request import Dimension, Grant, JobRequest, granted
from accounting.units import round_up
from models.demand.prediction import Prediction

NOT_ASKED = "not asked for"
NO_EVIDENCE = "not enough evidence"
FITS = "it fits already"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The site's bounds. Memory is MiB; `min_saving` is the share of a request below which a cut is not worth it.

    `def_mem_per_cpu_mib` is the partition's DefMemPerCPU: memory that shrinks with the CPUs of a job that asked
    for CPUs only. None = not known, and such a job keeps its CPUs; 0 = memory does not follow CPUs here.
    """

    memory_floor_mib: int
    memory_step_mib: int
    min_saving: float
    def_mem_per_cpu_mib: int | None


class Sized(msgspec.Struct, frozen=True, kw_only=True):
    """What a job gets, and why in each dimension."""

    grant: Grant
    reasons: tuple[DimensionReason, ...]


def size(request: JobRequest, prediction: Prediction, limits: Limits) -> Sized:
    """Cut a request down to its prediction, as far as the site allows."""
    need_mib = memory_need_mib(request, prediction, limits)
    cpus_per_task, cores_reason = size_cores(request, prediction, need_mib, limits)
    memory, memory_reason = size_memory(request, need_mib, cpus_per_task, limits)
    gpus, gpus_reason = size_gpus(request, prediction)
    grant = Grant(
        cpus_per_task=cpus_per_task,
        mem_per_node_mib=memory if request.mem_per_cpu_mib is None else None,
        mem_per_cpu_mib=memory if request.mem_per_cpu_mib is not None else None,
        gpus_per_node=gpus,
    )
    after = granted(request, grant)
    likely_cores = prediction.cores.upper * request.num_tasks if prediction.cores else None
    busy_gpus = prediction.gpus.upper if prediction.gpus else None
    return Sized(
        grant=grant,
        reasons=(
            _reason("memory", request.mem_mib, need_mib, after.mem_mib, memory_reason),
            _reason(
                "cores",
                request.cpus if request.cpus_per_task else None,
                likely_cores,
                after.cpus,
                cores_reason,
            ),
            _reason("gpus", request.gpus_per_node, busy_gpus, after.gpus_per_node, gpus_reason),
        ),
    )


def _reason(
    dimension: Dimension, asked: int | None, predicted: float | None, given: int | None, reason: str
) -> DimensionReason:
    return DimensionReason(
        dimension=dimension,
        asked=asked,
        predicted=None if predicted is None else round(predicted, 2),
        granted=None if asked is None else given,
        reason=reason,
    )


def memory_need_mib(request: JobRequest, prediction: Prediction, limits: Limits) -> int | None:
    """Return the MiB that the job must have in all, floor and rounding included; None where it is not known.

    Under `--mem-per-cpu` each task's CPUs carry their own share, and Slurm may place tasks on different nodes:
    any one task may be the one that holds the peak, so each is given room for it.
    """
    if prediction.memory is None:
        return None
    need_mib = round_up(max(prediction.memory.upper, limits.memory_floor_mib), limits.memory_step_mib)
    return need_mib * request.num_tasks if per_cpu_mib(request, limits) else need_mib


def per_cpu_mib(request: JobRequest, limits: Limits) -> int | None:
    """Return the MiB that come with each CPU, asked for or by the partition's default; None or 0 where none do."""
    if request.mem_per_node_mib is not None:
        return 0
    return request.mem_per_cpu_mib or limits.def_mem_per_cpu_mib


def size_cores(
    request: JobRequest, prediction: Prediction, need_mib: int | None, limits: Limits
) -> tuple[int | None, str]:
    """Return CPUs per task, or None with the reason to keep what was asked."""
    asked = request.cpus_per_task
    if asked is None:
        return None, NOT_ASKED
    if prediction.cores is None:
        return None, NO_EVIDENCE
    share_mib = per_cpu_mib(request, limits)
    if share_mib is None:
        return None, "memory may follow CPUs here: set policy.def_mem_per_cpu_mib"
    if share_mib and need_mib is None:
        return None, "memory follows CPUs, and how much it needs is not known"
    carried = math.ceil((need_mib or 0) / share_mib / request.num_tasks) if share_mib else 1
    wanted = max(1, carried, math.ceil(prediction.cores.upper - 1e-6))
    if not _worth_it(asked, wanted, limits):
        return None, FITS
    return wanted, "memory per CPU needs that many" if wanted == carried > 1 else prediction.basis


def size_memory(
    request: JobRequest, need_mib: int | None, cpus_per_task: int | None, limits: Limits
) -> tuple[int | None, str]:
    """Return memory in MiB, per node or per CPU as it was asked, or None with the reason to keep what was asked."""
    asked_mib = request.mem_mib
    if asked_mib is None:
        return None, NOT_ASKED
    if need_mib is None:
        return None, NO_EVIDENCE
    if not _worth_it(asked_mib, need_mib, limits):
        return None, FITS
    if request.mem_per_cpu_mib is None:
        return need_mib, "history"
    cpus = request.num_tasks * (cpus_per_task or request.cpus_per_task or 1)
    share_mib = math.ceil(need_mib / cpus)
    return (share_mib, "history") if share_mib < request.mem_per_cpu_mib else (None, FITS)


def size_gpus(request: JobRequest, prediction: Prediction) -> tuple[int | None, str]:
    """Return GPUs per node, or None with the reason to keep what was asked."""
    asked = request.gpus_per_node
    if asked is None:
        return None, NOT_ASKED
    if prediction.gpus is None:
        return None, "no metered job like it" if not prediction.gpu_source else NO_EVIDENCE
    wanted = max(1, math.ceil(prediction.gpus.upper))
    return (wanted, f"{prediction.gpu_source} meter") if wanted < asked else (None, FITS)


def _worth_it(asked: int, wanted: int, limits: Limits) -> bool:
    return wanted < asked and asked - wanted >= asked * limits.min_saving
