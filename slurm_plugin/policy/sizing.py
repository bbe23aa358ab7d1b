"""How far a request may be cut: `size(request, prediction, limits, kept) -> Sized`. Pure.

There is one function per dimension. A grant is never above the request and never below one of anything, and is of the
kind that the user used. Memory that comes with CPUs or GPUs is sized together with them: fewer of them must still
carry what the job needs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from accounting.decisions.decision import DimensionReason
from accounting.request import Dimension, Grant, JobRequest, granted
from accounting.units import round_up
from models.demand.chain import Untold
from models.demand.prediction import Prediction
from slurm_plugin.policy.brought_cpus import bringing_mib, keeps_brought_cpus
from slurm_plugin.policy.limits import Limits, busy_cpus, fewest_busy_cpus
from slurm_plugin.policy.memory_limits import carrying_cpus, lowest_share_mib

NOT_ASKED = "not asked for"
NO_EVIDENCE = "not enough evidence"
HISTORY = "history"
MORE_CPUS = "it gets more CPUs than recent jobs had, and earlier ones with more used this much"
UNTOLD: dict[Untold, str] = {
    "unanswered": "jobs like it were killed for memory, and no later job has shown how much is enough",
    "unseen": "jobs like it were killed with more memory than Slurm saw them use",
    "failing": "jobs like it failed one after the other with less",
    "slowed": "jobs like it ran longer with less memory",
    "compared": "now and then one gets all its memory, to learn whether jobs like it run longer with less",
}
CARRIES = "its memory per CPU needs that many CPUs"
FITS = "it has no more than it needs"
BRINGS = "Slurm gives it CPUs for its memory, and it needs that many"
GATHERS = "with fewer CPUs, more of its tasks may run on one node and need more memory than the job has there"
OUTNUMBERS = "with fewer CPUs, more of its tasks may run on one node than the job has GPUs there"
UNEVEN = "with fewer GPUs, Slurm may give one of its nodes fewer than it needs there"
CPU_KINDS = ("cpus_per_task",)
MEMORY_KINDS = ("mem_per_node_mib", "mem_per_cpu_mib", "mem_per_gpu_mib")
GPU_KINDS = ("gpus_per_node", "gpus_per_job", "gpus_per_task")

Choice = tuple[int | None, str]


class Sized(msgspec.Struct, frozen=True, kw_only=True):
    """What a job gets, and why in each dimension."""

    grant: Grant
    reasons: tuple[DimensionReason, ...]


def size(
    request: JobRequest, prediction: Prediction, limits: Limits, kept: Mapping[Dimension, str] | None = None
) -> Sized:
    """Cut a request down to its prediction, as far as the site allows; `kept` dimensions stay, with their reason."""
    sized = _size(request, prediction, limits, kept or {})
    more, memory = prediction.more_cpus, prediction.memory
    if more is None or memory is None or more.mem_mib <= memory.upper:
        return sized
    if granted(request, sized.grant).cpus <= more.above * request.num_tasks:
        return sized
    raised = msgspec.structs.replace(memory, upper=more.mem_mib)
    again = _size(request, msgspec.structs.replace(prediction, memory=raised), limits, kept or {})
    reasons = [
        msgspec.structs.replace(one, reason=MORE_CPUS) if one.reason == HISTORY else one
        for one in again.reasons
    ]
    return msgspec.structs.replace(again, reasons=tuple(reasons))


def _size(
    request: JobRequest, prediction: Prediction, limits: Limits, kept: Mapping[Dimension, str]
) -> Sized:
    need_mib = None if "memory" in kept else memory_need_mib(request, prediction, limits)
    cores = _kept_or(kept, "cores", size_cores(request, prediction, need_mib, limits))
    gpus = _kept_or(kept, "gpus", size_gpus(request, prediction, need_mib, limits))
    fewer = _in_kind(request, CPU_KINDS, cores[0]) | _in_kind(request, GPU_KINDS, gpus[0])
    carriers = msgspec.structs.replace(request, **fewer)
    brought_stay = keeps_brought_cpus(request, kept)
    brings_mib = bringing_mib(request, carriers, prediction, limits, all_stay=brought_stay)
    memory = _kept_or(
        kept,
        "memory",
        size_memory(request, carriers, need_mib, limits, gpus_stay="gpus" in kept, brings_mib=brings_mib),
    )
    if memory[1] == NO_EVIDENCE:
        memory = None, UNTOLD.get(prediction.untold, NO_EVIDENCE)
    less = _in_kind(request, MEMORY_KINDS, memory[0])
    after = msgspec.structs.replace(carriers, **less)
    busy_cores = prediction.cores.upper * request.num_tasks if prediction.cores else None
    busy_gpus = prediction.gpus.upper if prediction.gpus else None
    asked_cpus = request.cpus if request.cpus_per_task else None
    return Sized(
        grant=Grant(**fewer, **less),
        reasons=(
            _reason("memory", request.mem_mib, need_mib, after.mem_mib, memory[1]),
            _reason("cores", asked_cpus, busy_cores, after.cpus, cores[1]),
            _reason("gpus", request.gpus, busy_gpus, after.gpus, gpus[1]),
        ),
    )


def _asked(request: JobRequest, kinds: tuple[str, ...]) -> tuple[str, int] | None:
    """Return the kind of request that the user used, and the amount; None if the user used none."""
    for kind in kinds:
        amount: int | None = getattr(request, kind)
        if amount is not None:
            return kind, amount
    return None


def _in_kind(request: JobRequest, kinds: tuple[str, ...], value: int | None) -> dict[str, int]:
    """Return the grant's field for the kind that the user used; empty if there is nothing to grant."""
    asked = None if value is None else _asked(request, kinds)
    return {} if value is None or asked is None else {asked[0]: value}


def _kept_or(kept: Mapping[Dimension, str], dimension: Dimension, choice: Choice) -> Choice:
    return (None, f"kept as asked: {kept[dimension]}") if dimension in kept else choice


def _reason(
    dimension: Dimension, asked: int | None, predicted: float | None, given: int | None, reason: str
) -> DimensionReason:
    return DimensionReason(
        dimension=dimension,
        asked=asked,
        predicted=None if predicted is None else round(predicted, 2),
        granted=None if asked is None else given,
        reason=reason if asked is not None else NOT_ASKED,
    )


def memory_need_mib(request: JobRequest, prediction: Prediction, limits: Limits) -> int | None:
    """Return the MiB that the job must have in all, floor and rounding included; None if not known.

    If memory comes with CPUs or GPUs, each task carries its own share, and Slurm may place tasks on different nodes:
    any task may be the one that holds the peak, so each is given room for it.
    """
    if prediction.memory is None:
        return None
    wanted_mib = max(prediction.memory.upper * (1 + limits.headroom), limits.memory_floor_mib)
    need_mib = round_up(wanted_mib / limits.mem_limit_share, limits.memory_step_mib)
    spread = request.mem_per_gpu_mib is not None or per_cpu_mib(request, limits)
    return need_mib * max(request.num_tasks, request.nodes or 1) if spread else need_mib


def per_cpu_mib(request: JobRequest, limits: Limits) -> int | None:
    """Return the MiB that come with each CPU, asked for or by the partition's default; None: not known, 0: none do."""
    if request.mem_per_node_mib is not None or request.mem_per_gpu_mib is not None:
        return 0
    share_mib = request.mem_per_cpu_mib or limits.def_mem_per_cpu_mib
    return lowest_share_mib(share_mib, limits.max_mem_per_cpu_mib)


def left_per_node_mib(request: JobRequest, need_mib: int | None, limits: Limits) -> int:
    """Return the MiB per node that the job ends up with; 0 if its memory comes with its CPUs."""
    if request.mem_per_node_mib is not None:
        return size_memory(request, request, need_mib, limits)[0] or request.mem_per_node_mib
    return 0 if request.mem_per_cpu_mib is not None else limits.def_mem_per_node_mib


def may_move(request: JobRequest, *, tasks_stay: bool) -> bool:
    """Whether a job's tasks may land on other nodes, or share nodes differently, if each takes less of anything.

    Slurm fills one node after the other: of 16 tasks with 4 CPUs each, four share a node of 16 CPUs; with one CPU
    each, all of them do (seen on 22.05 and 24.11).
    """
    return not (request.num_tasks == 1 or request.nodes in (1, request.num_tasks) or tasks_stay)


def may_outnumber_gpus(request: JobRequest, limits: Limits) -> bool:
    """Whether a node may get more tasks than GPUs if each takes fewer CPUs.

    A task uses the GPU of its number on the node. On fewer nodes such a job also has fewer GPUs: `-n 8 -c 4
    --gres=gpu:4` has eight on nodes of 16 CPUs, and four with two CPUs per task (22.05). GPUs that come with tasks
    stay with them.
    """
    if not may_move(request, tasks_stay=limits.tasks_stay):
        return False
    return request.gpus_per_job is not None or request.num_tasks > (
        request.gpus_per_node or request.num_tasks
    )


def may_gather(request: JobRequest, need_mib: int | None, limits: Limits) -> bool:
    """Whether a node may get more tasks than its memory holds if each of them takes less of anything else.

    If memory comes with CPUs or GPUs, each task brings its own.
    """
    if not may_move(request, tasks_stay=limits.tasks_stay):
        return False
    if request.mem_per_gpu_mib is not None or per_cpu_mib(request, limits):
        return False
    return need_mib is None or left_per_node_mib(request, need_mib, limits) < need_mib


def may_be_uneven(request: JobRequest) -> bool:
    """Whether some of a job's nodes may get more of its GPUs than others, which have one at least.

    Slurm fills one node after the other: on nodes of four GPUs, `-N 2 --gpus=8` has four on each, and with `--gpus=4`
    three and one (22.05).
    """
    return request.gpus_per_job is not None and (request.nodes or 1) > 1


def size_cores(request: JobRequest, prediction: Prediction, need_mib: int | None, limits: Limits) -> Choice:
    """Return CPUs per task, or None with the reason to keep what was asked."""
    asked = request.cpus_per_task
    if asked is None:
        return None, NOT_ASKED
    if prediction.cores is None:
        return None, NO_EVIDENCE
    share_mib = per_cpu_mib(request, limits)
    if share_mib is None:
        return None, "memory may depend on CPUs here; set policy.def_mem_per_cpu_mib"
    if share_mib and need_mib is None:
        return None, "its memory depends on its CPUs, and how much memory it needs is not known"
    if may_gather(request, need_mib, limits):
        return None, GATHERS
    if may_outnumber_gpus(request, limits):
        return None, OUTNUMBERS
    carried = math.ceil((need_mib or 0) / share_mib / request.num_tasks) if share_mib else 1
    left_mib = left_per_node_mib(request, need_mib, limits)
    carried = max(carried, carrying_cpus(left_mib, limits.max_mem_per_cpu_mib))
    needed, busy = busy_cpus(prediction.cores.upper, limits), fewest_busy_cpus(prediction, limits)
    least = max(carried, busy, limits.min_cpus_per_task, _least(asked, limits))
    wanted = round_up(least, limits.cpus_step)
    slowed = ", slowed as far as the site allows" if wanted < needed else ""
    if not _worth_it(asked, wanted, limits):
        return None, CARRIES if least == carried > max(1, busy) else FITS
    return wanted, CARRIES if wanted == carried > 1 else prediction.basis + slowed


def size_gpus(request: JobRequest, prediction: Prediction, need_mib: int | None, limits: Limits) -> Choice:
    """Return GPUs per node, job or task, as they were asked for, or None with the reason to keep them.

    Any node or task may be the one with the busy GPUs, so each is left as many as were busy in all.
    """
    found = _asked(request, GPU_KINDS)
    if found is None:
        return None, NOT_ASKED
    asked = found[1]
    if prediction.gpus is None:
        return None, "no similar job with metered GPUs" if not prediction.gpu_source else NO_EVIDENCE
    if found[0] != "gpus_per_node" and may_gather(request, need_mib, limits):
        return None, GATHERS
    carried = 1
    if request.mem_per_gpu_mib is not None:
        if need_mib is None:
            return None, "its memory depends on its GPUs, and how much memory it needs is not known"
        times = (request.gpus or asked) // asked  # the number of tasks or nodes that get this many each
        carried = math.ceil(need_mib / request.mem_per_gpu_mib / times)
    busy = math.ceil(prediction.gpus.upper * (1 + limits.headroom) - 1e-6)
    # A job must have at least one GPU for each of its nodes.
    each_node = (request.nodes or 1) if request.gpus_per_job is not None else 1
    wanted = max(carried, busy, each_node, limits.min_gpus, _least(asked, limits))
    if wanted >= asked:
        return None, FITS
    if may_be_uneven(request) and (busy > 1 or carried > each_node):
        return None, UNEVEN
    return wanted, f"{prediction.gpu_source} meter"


def carrying_gpus(request: JobRequest, gpus: int, *, gpus_stay: bool) -> int:
    """Return among how many of a job's GPUs the memory that it needs is divided, if its memory comes with them.

    Of GPUs asked for in all, a node may have only one (may_be_uneven), which then carries what that node needs. If
    they stay as asked, that may be because no node has so many: even a single task's GPUs may then be on several.
    """
    if request.gpus_per_job is None or request.nodes == 1:
        return gpus
    if request.nodes is None and request.num_tasks == 1 and not gpus_stay:
        return gpus
    return min(gpus, request.nodes or request.num_tasks)


def size_memory(
    request: JobRequest,
    fewer: JobRequest,
    need_mib: int | None,
    limits: Limits,
    *,
    gpus_stay: bool = False,
    brings_mib: int = 0,
) -> Choice:
    """Return memory in MiB in the kind it was asked for, or None with the reason to keep it.

    `fewer` is the request with its CPUs and GPUs already cut: the remaining ones carry what is needed. `gpus_stay`:
    its GPUs stay because of the way they were asked for, or where. `brings_mib` is the least that brings its CPUs.
    """
    found = _asked(request, MEMORY_KINDS)
    if found is None:
        return None, NOT_ASKED
    asked_mib = found[1]
    if need_mib is None:
        return None, NO_EVIDENCE
    carriers = before = 1
    if request.mem_per_cpu_mib is not None:
        carriers, before = fewer.cpus, request.cpus
    elif request.mem_per_gpu_mib is not None:
        carriers, before = fewer.gpus or 1, request.gpus or 1
    # `least_share` applies to all the memory together: fewer CPUs or GPUs keep more of it each.
    least_mib = math.ceil(_least(asked_mib * before, limits) / carriers)
    if request.mem_per_gpu_mib is not None:
        carriers = carrying_gpus(request, carriers, gpus_stay=gpus_stay)
    wanted_mib = max(math.ceil(need_mib / carriers), least_mib)
    if brings_mib > wanted_mib:
        return (brings_mib, BRINGS) if _worth_it(asked_mib, brings_mib, limits) else (None, BRINGS)
    return (wanted_mib, HISTORY) if _worth_it(asked_mib, wanted_mib, limits) else (None, FITS)


def _least(asked: int, limits: Limits) -> int:
    return math.ceil(asked * limits.least_share - 1e-6)


def _worth_it(asked: int, wanted: int, limits: Limits) -> bool:
    return wanted < asked and asked - wanted >= asked * limits.min_saving
