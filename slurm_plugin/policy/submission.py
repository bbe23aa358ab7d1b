"""A submission as the hook describes it, and which parts of it may be changed at all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

import msgspec

from accounting.request import Dimension, JobRequest
from models.past.families import runs_unseen, signature_of
from slurm_plugin.policy.forms import kept_by_form

REASON_CHARS = 160  # a reason travels in the token, for which the hook accepts up to 512 bytes
NOT_BATCH = "not-a-batch-job"
# Why the CPUs of a direct srun or salloc stay, as slurmctld and as its client describes it.
DIRECT = frozenset({NOT_BATCH, "max_mem_per_cpu"})
OPTED_OUT = "opted-out"
NOT_SAID = -1  # stands for an unknown uid
# Names in `other` for GRES that are not one count of GPUs.
_OTHER_GRES = frozenset({"gres", "tres_per_job", "tres_per_task", "tres_per_socket"})

# The range of any request: Slurm's own fields hold less, and a float holds each of these values exactly.
Amount = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
Minutes = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Uid = Annotated[int, msgspec.Meta(ge=NOT_SAID, lt=2**32)]

_OPT_OUT = re.compile(r"(?:^|[\s,;])rightsize=off(?:$|[\s,;])", re.IGNORECASE)


class Submission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the hook reads from the job description (docs/wire.md); None or '' where the user gave nothing.

    `other` names the ways of asking for CPUs, memory, GPUs or placement that the fields here do not express.
    """

    user: str
    uid: Uid
    batch: bool
    other: tuple[str, ...]
    account: str = ""
    partition: str = ""
    qos: str = ""
    name: str = ""
    comment: str = ""
    script: str = ""
    work_dir: str = ""
    array: bool = False
    num_tasks: Amount | None = None
    ntasks_per_node: Amount | None = None
    nodes_min: Amount | None = None
    nodes_max: Amount | None = None
    cpus_per_task: Amount | None = None
    min_cpus: Amount | None = None
    mem_per_node_mib: Amount | None = None
    mem_per_cpu_mib: Amount | None = None
    mem_per_gpu_mib: Amount | None = None
    gpus_per_node: Amount | None = None
    gpus_per_job: Amount | None = None
    gpus_per_task: Amount | None = None
    time_limit_min: Minutes | None = None

    @property
    def is_resizable(self) -> bool:
        """Whether CPUs and GPUs can be changed in every place that repeats them.

        A direct srun or salloc also has them in its client, which breaks if slurmctld grants other numbers.
        """
        return self.batch

    @property
    def signature(self) -> str:
        """The signature of what the job runs; '' if nothing shows it."""
        return signature_of(self.name, self.script)

    @property
    def asks_for_gres(self) -> bool:
        """Whether the job asks for GPUs or any other GRES."""
        gpus = (self.gpus_per_node, self.gpus_per_job, self.gpus_per_task)
        return any(amount is not None for amount in gpus) or not _OTHER_GRES.isdisjoint(self.other)

    @property
    def nodes(self) -> int | None:
        """The number of nodes if the job asks for a fixed one, else None."""
        return self.nodes_min if self.nodes_min == self.nodes_max else None

    @property
    def most_nodes(self) -> int:
        """On how many nodes the job may be: no more than it has tasks, if it says how many.

        Which it will be depends on what is free when it starts, also if all its tasks would fit on one.
        """
        bounds = [bound for bound in (self.nodes_max, self.num_tasks) if bound is not None]
        return max(self.nodes_min or 1, min(bounds, default=1))

    @property
    def tasks_stay(self) -> bool:
        """Whether the job fixes the number of tasks on each node: otherwise Slurm fills one node after the other."""
        if self.ntasks_per_node is None or (self.nodes_min or self.nodes_max) != self.nodes:
            return False
        # Without either number Slurm uses one node.
        return self.num_tasks in (None, (self.nodes or 0) * self.ntasks_per_node)


class ClientSubmission(Submission, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A direct srun or salloc, as its client describes it before asking slurmctld for anything.

    The socket's peer says whose job it is. `user` and `uid` may be omitted; they are accepted only if they agree with
    it.
    """

    user: str = ""
    uid: Uid = NOT_SAID

    @property
    def is_resizable(self) -> bool:
        """Always true: the client has not built its request yet."""
        return True

    @property
    def signature(self) -> str:
        """The signature of its command, unless that runs what it reads: `srun bash < job.sh`."""
        return "" if runs_unseen(self.script) else signature_of(self.name, self.script)


def job_request(submission: Submission, input_mib: float | None = None) -> JobRequest:
    """Return the submission in the vocabulary of models and accounting; `input_mib` is None if not known."""
    return JobRequest(
        user=submission.user,
        # Users may type these in any case. Slurm accepts them and uses lower case itself, also in accounting.
        account=submission.account.lower(),
        partition=submission.partition,
        qos=submission.qos.lower(),
        job_name=submission.name,
        script_signature=submission.signature,
        # At least one task on each node; without a maximum of nodes, Slurm takes no more than it has to.
        num_tasks=submission.num_tasks or (submission.nodes_min or 1) * (submission.ntasks_per_node or 1),
        cpus_per_task=submission.cpus_per_task,
        mem_per_node_mib=submission.mem_per_node_mib,
        mem_per_cpu_mib=submission.mem_per_cpu_mib,
        mem_per_gpu_mib=submission.mem_per_gpu_mib,
        gpus_per_node=submission.gpus_per_node,
        gpus_per_job=submission.gpus_per_job,
        gpus_per_task=submission.gpus_per_task,
        nodes=submission.nodes,
        wall_s=None if submission.time_limit_min is None else submission.time_limit_min * 60,
        input_mib=input_mib,
    )


def asked_dimensions(request: JobRequest) -> dict[Dimension, bool]:
    """Return for each dimension whether the job asks for any of it."""
    return {
        "memory": request.mem_mib is not None,
        "cores": request.cpus_per_task is not None,
        "gpus": request.gpus is not None,
    }


def kept_dimensions(submission: Submission) -> dict[Dimension, str]:
    """Return the dimensions that stay as asked because of the way they were asked for, each with the reason."""
    names = submission.other
    if not submission.asks_for_gres:
        # With ENFORCE_BINDING_GRES (SelectTypeParameters), slurmctld sets this flag of every job, before the hook.
        names = tuple(name for name in names if name != "gres_flags")
    # From 24.11 the client fills in a minimum of nodes by itself, but no maximum.
    if submission.nodes_max is not None and submission.nodes is None:
        names = (*names, "node_range")
    # Those who ask outside slurmctld do not know the reservation's partition; the hook names it instead.
    if "reservation" in names and not submission.partition:
        names = (*names, "reserved_partition")
    kept = kept_by_form(names)
    if submission.gpus_per_job is not None and submission.nodes is None and (submission.nodes_min or 1) > 1:
        # Slurm does not share the GPUs out evenly (may_be_uneven in policy/sizing.py).
        kept.setdefault("gpus", "node_range")
    if not submission.is_resizable:
        kept = {"cores": NOT_BATCH, "gpus": NOT_BATCH, **kept}
        if submission.mem_per_gpu_mib is not None:
            kept.setdefault("memory", NOT_BATCH)
    return kept


def opts_out(comment: str) -> bool:
    """Whether a job's comment says that the job is to be left alone."""
    return bool(_OPT_OUT.search(comment))


def why_left_alone(comment: str, request: JobRequest, kept: Mapping[Dimension, str]) -> str | None:
    """Return the reason code for leaving a job alone altogether; None if some of it may be sized."""
    if opts_out(comment):
        return OPTED_OUT
    asked = [dimension for dimension, is_asked in asked_dimensions(request).items() if is_asked]
    if not asked:
        return "nothing-asked"
    if all(dimension in kept for dimension in asked):
        names = "+".join(dict.fromkeys(kept[dimension] for dimension in asked))
        return (names if NOT_BATCH in names else f"form-not-handled:{names}")[:REASON_CHARS]
    return None
