"""A job that pyslurm (25.11) has loaded, as a record of the queue. Pure, and without pyslurm, which need not be there.

Its mistakes are corrected here: the id 0 of an array's task reads as None, and so does a memory limit of 0.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from accounting.unnamed import user_name
from slurm_plugin.slurm.array_tasks import count_tasks
from slurm_plugin.slurm.asked_besides import other_gres, types_in
from slurm_plugin.slurm.hostlist import expand_nodes
from slurm_plugin.slurm.job_lines import HELD
from slurm_plugin.slurm.snapshot import QueuedJob

# Nodes of such a job are shared only with jobs of the same user, or of the same MCS label.
_SHARED_WITH_FEW = ("USER", "MCS", "TOPO")
# What pyslurm returns has no types.
Loaded: TypeAlias = Any


def job_of(job: Loaded) -> QueuedJob:
    """Return pyslurm's job as a record of the queue; raises UnicodeDecodeError if a text in it is not UTF-8."""
    pending = job.state == "PENDING" or job.state in HELD
    tasks = _array_tasks(job)
    nodes = _nodes(job, pending=pending)
    tres = (job.requested_tres if pending else job.allocated_tres) or job.requested_tres
    per_cpu_mib, per_node_mib = job.memory_per_cpu, job.memory_per_node
    return QueuedJob(
        job_id=job.id, user=user_name(job.user_id), uid=job.user_id, account=job.account or "",
        partitions=tuple((job.partition or "").split(",")), qos=job.qos or "", name=job.name or "",
        state="PENDING" if pending else job.state, reason="_".join((job.state_reason or "").split()),
        submit_s=float(job.submit_time or 0), eligible_s=float(job.eligible_time or 0),
        start_s=float(job.start_time or 0), end_s=float(job.end_time or 0),
        limit_s=_minutes_s(job.time_limit), priority=job.priority or 0, site_factor=0,
        nice=job.nice or 0,
        deadline_s=float(job.deadline or 0), least_limit_s=_minutes_s(job.time_limit_min),
        cpus=_count(tres, "cpu") or job.cpus, mem_mib=_count(tres, "mem"), gpus=_gpus(tres),
        billing=_count(tres, "billing"),
        gpu_types=_gpu_types(job, tres, nodes, pending=pending),
        array_job_id=job.array_id or 0, array_tasks=tasks, tasks=count_tasks(tasks),
        het_job_id=job.heterogeneous_id or 0, held=pending and (not job.priority or job.state in HELD),
        dependency=_dependency(job.dependencies), reservation=job.reservation or "", num_tasks=job.ntasks,
        cpus_per_task=job.cpus_per_task or 1,
        mem_per_node_mib=per_node_mib or 0 if per_cpu_mib is None else None, mem_per_cpu_mib=per_cpu_mib,
        num_nodes=nodes, min_cpus_per_node=job.min_cpus_per_node or 1,
        min_cpus=job.cpus if pending else 0,
        nodes=() if pending else expand_nodes(job.allocated_nodes or ""),
        exclusive=job.resource_sharing == "NO", batch=job.is_batch_job, requeues=bool(job.is_requeueable),
        other=_constraints(job),
        comment=(job.comment or "").rstrip(" "), admin_comment=(job.admin_comment or "").rstrip(" "),
        restarts=job.requeue_count, stopped_s=float(job.suspend_time or 0),
        ran_before_s=float(job.pre_suspension_time or 0),
        has_siblings=len(job.federation_siblings_viable or ()) > 1,
    )  # fmt: skip


def _minutes_s(minutes: int | None) -> int | None:
    return None if minutes is None else minutes * 60


def _array_tasks(job: Loaded) -> str:
    if not job.array_id:
        return ""
    waiting = job.array_tasks_waiting
    if not waiting:
        return str(job.array_task_id or 0)
    return f"{waiting}%{job.array_tasks_parallel}" if job.array_tasks_parallel else waiting


def _nodes(job: Loaded, *, pending: bool) -> int:
    least, most = job.num_nodes or 1, job.max_nodes
    return min(least, most) if pending and most else least


def _count(tres: Loaded, kind: str) -> int:
    one = getattr(tres, kind, None)
    return int(one.count) if one is not None else 0


def _gpus(tres: Loaded) -> int:
    if tres is None:
        return 0
    plain = [one.count for name, one in tres.gres.items() if name == "gpu"]
    return sum(plain) or sum(one.count for name, one in tres.gres.items() if name.startswith("gpu:"))


def _gpu_types(job: Loaded, tres: Loaded, nodes: int, *, pending: bool) -> tuple[tuple[str, int], ...]:
    """Return what asked_besides.py does, except that pyslurm shows only what is asked for on each node."""
    listed = {} if pending or tres is None else {name: one.count for name, one in tres.gres.items()}
    asked = {name: nodes * count for name, count in (job.gres_per_node or {}).items()}
    return types_in(_typed_gpus(listed), _typed_gpus(asked))


def _typed_gpus(counts: dict[str, int]) -> dict[str, int]:
    bare = {name.removeprefix("gres/"): count for name, count in counts.items()}
    return {name.partition(":")[2]: count for name, count in bare.items() if name.startswith("gpu:")}


def _dependency(parts: dict[str, Any] | None) -> str:
    if not parts:
        return ""
    named = [
        f"{kind}:{':'.join(map(str, jobs))}"
        for kind, jobs in parts.items()
        if isinstance(jobs, list) and jobs
    ]
    between = "?" if parts["satisfy"] == "any" else ","
    # pyslurm knows only `singleton`, not what Slurm says while it waits.
    return between.join(named) or "singleton(unfulfilled)"


def _constraints(job: Loaded) -> tuple[str, ...]:
    """Return what asked_besides.py returns, in its order and words; of switches, not how long it waits for them."""
    shape = [
        job.boards_per_node or 0,
        job.sockets_per_board or 0,
        _any(job.cores_per_socket),
        _any(job.threads_per_core),
    ]
    per = [
        job.ntasks_per_node or 0,
        job.ntasks_per_board or 0,
        _any(job.ntasks_per_socket),
        _any(job.ntasks_per_core),
    ]
    said = {
        "ReqNodeList": job.required_nodes,
        "ExcNodeList": job.excluded_nodes,
        "Features": ",".join(job.constraints),
        "ClusterFeatures": ",".join(job.cluster_constraints),
        "Licenses": ",".join(job.allocated_licenses or job.licenses or ()),
        "Contiguous": 1 if job.requires_contiguous_nodes else None,
        "CoreSpec": job.cores_reserved_for_system,
        "ThreadSpec": job.threads_reserved_for_system,
        "ReqB:S:C:T": _unless(shape, [[0, 0, "*", "*"]]),
        "NtasksPerN:B:S:C": _unless(per, [[0, 0, "*", "*"], [0, 0, "*", 1]]),
        "MinTmpDiskNode": f"{job.temporary_disk_per_node}M" if job.temporary_disk_per_node else None,
        "Socks/Node": job.sockets_per_node,
        "OverSubscribe": job.resource_sharing if job.resource_sharing in _SHARED_WITH_FEW else None,
    }
    asked = [*(job.gres_per_node or ()), *(job.requested_tres.gres if job.requested_tres else ())]
    switches = job.required_switches
    return (
        *(f"{key}={value}" for key, value in said.items() if value),
        *other_gres(asked),
        *([f"Switches={switches}"] if switches else ()),
    )


def _any(value: int | str | None) -> int | str:
    """Return a count; `*` if any will do, for which pyslurm says None or `UNLIMITED`."""
    return value if isinstance(value, int) else "*"


def _unless(parts: list[Any], plain: list[list[Any]]) -> str | None:
    return None if parts in plain else ":".join(map(str, parts))
