"""A submission as the hook describes it, and the test whether it asks in a form that may be rewritten."""

from __future__ import annotations

import re

import msgspec

from accounting.request import JobRequest
from models.families import script_signature

REASON_CHARS = 160  # it travels in the token, which the hook takes up to 512 bytes

_OPT_OUT = re.compile(r"(?:^|[\s,;])rightsize=off(?:$|[\s,;])", re.IGNORECASE)


class Submission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the hook reads from the job description; None or '' where the user gave nothing.

    `other` names the ways of asking for CPUs, memory, GPUs or placement that the fields here do not express.
    """

    user: str
    uid: int
    batch: bool
    other: tuple[str, ...]
    account: str = ""
    partition: str = ""
    qos: str = ""
    name: str = ""
    comment: str = ""
    script: str = ""
    num_tasks: int | None = None
    cpus_per_task: int | None = None
    min_cpus: int | None = None
    mem_per_node_mib: int | None = None
    mem_per_cpu_mib: int | None = None
    gpus_per_node: int | None = None
    time_limit_min: int | None = None


def job_request(submission: Submission) -> JobRequest:
    """Return the submission in the vocabulary of models and accounting."""
    return JobRequest(
        user=submission.user,
        account=submission.account,
        partition=submission.partition,
        qos=submission.qos,
        job_name=submission.name,
        script_signature=script_signature(submission.script),
        num_tasks=submission.num_tasks or 1,
        cpus_per_task=submission.cpus_per_task,
        mem_per_node_mib=submission.mem_per_node_mib,
        mem_per_cpu_mib=submission.mem_per_cpu_mib,
        gpus_per_node=submission.gpus_per_node,
        wall_s=None if submission.time_limit_min is None else submission.time_limit_min * 60,
    )


def why_left_alone(submission: Submission) -> str | None:
    """Return the reason code for not touching a submission at all; None where it may be sized."""
    if _OPT_OUT.search(submission.comment):
        return "opted-out"
    if not submission.batch:
        return "not-a-batch-job"
    if submission.other:
        return f"form-not-handled:{'+'.join(submission.other)}"[:REASON_CHARS]
    asks = (
        submission.cpus_per_task,
        submission.mem_per_node_mib,
        submission.mem_per_cpu_mib,
        submission.gpus_per_node,
    )
    if all(ask is None for ask in asks):
        return "nothing-asked"
    return None
