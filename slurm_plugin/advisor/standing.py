"""What a waiting job first asked for, and what it has now: by its token, its journalled decision, and Slurm. Pure.

It decides whether a job is still as we left it: whatever anybody has changed since is theirs.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from accounting.decisions.decision import Decision
from accounting.decisions.token import Token, asked_request, granted_by, tells_of
from accounting.request import Dimension, Grant, JobRequest, granted
from slurm_plugin.slurm.asked_besides import tasks_on_node
from slurm_plugin.slurm.resizing import is_split
from slurm_plugin.slurm.snapshot import QueuedJob

CHANGED = "changed-since"
NOTHING_ASKED = "nothing-asked"
AT_SUBMIT = "sized when it was submitted"
CPUS_STAY = "this release of Slurm cannot change the CPUs of a batch job that waits"
MORE_OF_NODE = "more CPUs of a node were set than its tasks take"
# What can be changed of a waiting job, by the name used in the job, a request and a grant.
KINDS = ("cpus_per_task", "mem_per_node_mib", "mem_per_cpu_mib")
FIELDS: Mapping[Dimension, tuple[str, ...]] = {
    "gpus": ("gpus_per_node", "gpus_per_job", "gpus_per_task"),
    "cores": ("cpus_per_task",),
    "memory": ("mem_per_node_mib", "mem_per_cpu_mib", "mem_per_gpu_mib"),
}


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What a waiting job first asked for, what it has now, and what is recorded of how that came about.

    `earlier` is the decision behind it, None if it cannot be found: what its script fixes is then not known.
    """

    request: JobRequest
    grant: Grant
    earlier: Decision | None


def standing_of(job: QueuedJob, token: Token, decisions: Mapping[str, Decision]) -> Standing | str:
    """Return what a job asked for and has; CHANGED if that is not what we left it with.

    A token is written before the resources are: a writer that was interrupted in between has left those of the
    decision that was to be replaced. A user who has changed them since, even back to what was asked, wants them so.
    """
    asked = asked_request(token, job.user)
    if asked is None:
        return NOTHING_ASKED
    earlier = next((decisions[name] for name in (token.decision_id, token.was) if name in decisions), None)
    if earlier is not None and not tells_of(asked, earlier):
        earlier = None
    named = msgspec.structs.replace(asked, job_name=job.name, script_signature=token.signature)
    request = earlier.request if earlier else named
    left = [granted_by(token), *([earlier.grant if earlier.applied else Grant()] if earlier else [])]
    grant = next((one for one in left if stands_at(job, granted(request, one))), None)
    if grant is None:
        return CHANGED
    return Standing(request=as_it_waits(request, job), grant=grant, earlier=earlier)


def stands_at(job: QueuedJob, request: JobRequest) -> bool:
    """Whether a waiting job asks for exactly this, in what was first asked for, or for what Slurm makes of it."""
    if request.cpus_per_task is not None and job.min_cpus > job.num_tasks * job.cpus_per_task:
        return False  # `scontrol update NumCPUs=` or MinCPUsNode= leaves CPUsPerTask as it was
    return _has_its_tasks(job, request) and (
        is_split(job, request.mem_per_cpu_mib, request.cpus_per_task)
        or all(getattr(request, kind) in (None, getattr(job, kind)) for kind in KINDS)
    )


def _has_its_tasks(job: QueuedJob, request: JobRequest) -> bool:
    """Whether a job has the tasks that were asked for.

    If their number was left to the nodes (`--nodes=1-4`), the fewest that it may have are asked for. A job that
    started on more nodes has that many more; waiting again, it has the fewest again.
    """
    spread = not job.waits and job.num_nodes > 1 and job.num_tasks % job.num_nodes == 0
    return job.num_tasks == request.num_tasks or (spread and job.num_tasks > request.num_tasks)


def as_it_waits(request: JobRequest, job: QueuedJob) -> JobRequest:
    """Return a request with the present account, partitions, QOS and limit of its job: the rules go by these."""
    return msgspec.structs.replace(
        request,
        account=job.account or request.account,
        partition=",".join(job.partitions),
        qos=job.qos or request.qos,
        wall_s=request.wall_s if job.limit_s is None else job.limit_s,
    )


def has_more_of_node(job: QueuedJob) -> bool:
    """Whether a job must have more CPUs of a node than its tasks there take: `--mincpus`, or MinCPUsNode set since.

    With other CPUs per task, slurmctld would be asked for as many times more or less of a node.
    """
    return job.min_cpus_per_node > tasks_on_node(job.other) * job.cpus_per_task


def cpus_stay_of(job: QueuedJob) -> str:
    """Return why a waiting job's CPUs stay, because of the job itself; '' if they may change.

    If it has one task, NumCPUs follows MinCPUsNode, and stands_at tells; or Slurm set it, for memory that brings CPUs.
    """
    return MORE_OF_NODE if job.num_tasks > 1 and has_more_of_node(job) else ""


def stays(request: JobRequest, *, cpus: str) -> dict[Dimension, str]:
    """Return what stays as granted at submission: GPUs, CPUs if `cpus` says why, and memory that comes with them."""
    kept: dict[Dimension, str] = {"gpus": AT_SUBMIT}
    if request.mem_per_gpu_mib is not None:
        kept["memory"] = AT_SUBMIT
    if cpus:
        kept["cores"] = cpus
        if request.mem_per_cpu_mib is not None:
            kept["memory"] = cpus
    return kept


def cpus_must_stay(release: tuple[int, ...]) -> bool:
    """Whether an srun inside a batch job would abort if its CPUs were changed while it waited.

    From 23.11, sbatch exports SLURM_TRES_PER_TASK, which srun compares with SLURM_CPUS_PER_TASK; only from 24.11.1 do
    both follow the job when it is launched (Slurm's env_array_for_batch_job).
    """
    return (23, 11) <= release < (24, 11, 1)
