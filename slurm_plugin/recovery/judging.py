"""Whether a job failed for want of what we took from it, and what it is to get instead. Pure.

It decides by what slurmctld says of the job (state, exit codes, what it was given) and by our token in its admin
comment (what was asked, what we granted). What we did not cut, or what somebody has changed since, is none of ours: a
user who raised a job's CPUs has not seen to its memory by that.

A program that ends by itself for want of memory or CPUs, with a code of its own, fails like any other, and one that
waits for CPUs until its time is over is as idle as a server. The end of its output may distinguish them, if it has
been read (output.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from accounting.decisions.decision import Decision
from accounting.decisions.token import asked_request, find_token, granted_by, mark_recovery, tells_of
from accounting.request import Grant, JobRequest, granted
from accounting.wants import OF_CPUS, OF_GPUS, Cause, Said, wants
from slurm_plugin.advisor.standing import CHANGED, KINDS, has_more_of_node, stands_at
from slurm_plugin.slurm import gpu_fields
from slurm_plugin.slurm.job_lines import HELD_AGAIN
from slurm_plugin.slurm.queue import Failed, GiveBack, Requeue
from slurm_plugin.slurm.requeuing import KILLED_FOR_MEMORY, is_killed
from slurm_plugin.slurm.resizing import is_raised
from slurm_plugin.slurm.snapshot import QueuedJob

# A job that needed more CPUs kept those that it had busy. Servers, and sessions that a person works in, run until
# their limit on purpose, and another such run helps nobody.
LEAST_BUSY = 0.25

# What a job needed whose time ran out while it was idle, or that had all its CPUs, by what its output says.
_SAID_LATE: Mapping[Said, Cause] = {
    "said_no_cpus": "said_no_cpus",
    "said_no_gpus": "said_no_gpus",
    "said_no_step": "said_no_step",
    "said_waits": "said_no_step",
}

# Why a job is left alone.
NOT_OURS = "no-token"
NOT_CUT = "not-cut"
NOT_FOR_WANT = "failed for another reason"
NOT_WHAT_WE_CUT = "the resource that it lacked had not been cut"
WAS_IDLE = "it ran out of time while it was idle"
HAD_FEWER_GPUS = "it ran out of time, and only its GPUs had been cut, not its CPUs"
BEFORE = "recovered before"
# Why a job that failed by us cannot come back by itself.
NO_REQUEUE = "its user forbids requeueing it"
NOT_BATCH = "srun and salloc have no script that could run again"
HET_JOB = "a component of a het job cannot run again on its own"
HELD = "its user or an administrator held it while it ran"
CPUS_STAY = "this Slurm release cannot change the CPUs of a waiting batch job"
STEP_BY_GPU = "its srun asks for the memory per GPU that sbatch exported, which cannot be restored"

# What the journal of decisions says of a token: that it is true, that it is not, or nothing.
Witness = Literal["for", "against", "none"]
# scontrol's word for a user whose name is not known.
NO_NAME = "nobody"
# The decisions in the journal, by id; None if it is not asked.
Decided = Mapping[str, Decision] | None


class SiteTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What applies to all jobs of a site: whether a waiting job's CPUs must stay, and what age is worth in priorities.

    `age_points` are those of a job that waited for `most_age_s` or longer.
    """

    cpus_stay: bool = False
    age_points: int = 0
    most_age_s: float = 0.0


PLAIN = SiteTerms()


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """A job that failed by us. `requeue` is what brings it back; None if it cannot come back, and `lost` says why.

    `asked` is its user's request, `given` what we left of it, and `ours` the part of that which nobody changed since.
    """

    cause: Cause
    decision_id: str
    asked: JobRequest
    given: JobRequest
    ours: Grant
    requeue: Requeue | None = None
    lost: str = ""


def judge(run: Failed, terms: SiteTerms = PLAIN, said: Said | None = None) -> Recovery | str:
    """Return how a job is recovered, or why it is not to be recovered.

    `said` is what its output says it had too little of. It counts only if nothing else shows why the job
    failed, that it was no server that was idle until its limit, or what it lacked when its time ran out. It is worth
    reading if `may_say` holds of the answer without it.
    """
    token = find_token(run.job.admin_comment)
    cause = cause_of(run) or _cause_said(run, said)
    if token is None:
        return NOT_OURS
    if token.recovered_at is not None:
        return BEFORE
    asked, grant = asked_request(token, run.job.user), granted_by(token)
    if token.mode != "enforce" or asked is None or not grant:
        return NOT_CUT
    if cause is None:
        return NOT_FOR_WANT
    comes_with_cpus = bool(run.job.mem_per_cpu_mib)
    if _waited_for_the_killed(run) and wants("out_of_memory", asked, grant, comes_with_cpus=comes_with_cpus):
        cause = "out_of_memory"
    was_idle = run.busy_share is not None and run.busy_share < LEAST_BUSY
    is_late = cause == "timeout"
    wanted = _SAID_LATE.get(said) if is_late and said else None
    if is_late and was_idle and wanted is None:
        return WAS_IDLE
    if not wants(wanted or cause, asked, grant, comes_with_cpus=comes_with_cpus):
        return HAD_FEWER_GPUS if is_late and wants("said_no_gpus", asked, grant) else NOT_WHAT_WE_CUT
    ours = still_ours(run, asked, grant)
    if not wants(wanted or cause, asked, ours, comes_with_cpus=comes_with_cpus):
        return CHANGED
    found = Recovery(
        cause=cause, decision_id=token.decision_id, asked=asked, given=granted(asked, grant), ours=ours
    )
    lost = why_lost(run, wanted or cause, asked, ours, cpus_stay=terms.cpus_stay)
    if lost:
        return msgspec.structs.replace(found, lost=lost)
    # A share of memory that was changed since stays, with its CPUs.
    as_left = stands_at(run.job, found.given) and not _has_more_of_node(run.job, found.given, grant)
    share = asked.mem_per_cpu_mib if as_left else None
    back = msgspec.structs.replace(asked, mem_per_cpu_mib=share)
    change = _give_back(run.job, back, ours, cpus_stay=terms.cpus_stay)
    comment = mark_recovery(run.job.admin_comment, cause, run.failed_at)
    requeue = Requeue(
        change=msgspec.structs.replace(change, admin_comment=comment),
        before=run.job.admin_comment,
        restarts=run.failed_at,
        site_factor=lost_points(run.job, terms),
        by_others=run.job.waits,
    )
    return msgspec.structs.replace(found, requeue=requeue)


def may_say(run: Failed, left: Recovery | str) -> bool:
    """Whether the output of a job that is left alone for this reason may show why it failed."""
    return left in (WAS_IDLE, HAD_FEWER_GPUS) or (left == NOT_FOR_WANT and run.job.state == "FAILED")


def _cause_said(run: Failed, said: Said | None) -> Cause | None:
    """Return what a job failed for by its own words; a job that only waited for a while did not fail for that."""
    return None if run.job.state != "FAILED" or said == "said_waits" else said


def continued(run: Failed, terms: SiteTerms = PLAIN) -> Requeue | None:
    """Return what is left to do for a job that was requeued and marked, but not released; None for any other.

    This also works if only slurmctld remembers what was begun.
    """
    token = find_token(run.job.admin_comment)
    if token is None or token.recovered_at != run.restarts - 1 or run.job.reason != HELD_AGAIN:
        return None
    asked = asked_request(token, run.job.user)
    if asked is None:
        return None
    # Both values of a share are written until slurmctld has made of them what it does.
    grant = granted_by(token)
    ours = still_ours(run, asked, grant) if asked.mem_per_cpu_mib is None else grant
    change = _give_back(run.job, asked, ours, cpus_stay=terms.cpus_stay)
    return Requeue(
        change=msgspec.structs.replace(change, admin_comment=run.job.admin_comment),
        before=run.job.admin_comment,
        restarts=token.recovered_at,
    )


def what_stays(recovery: Recovery) -> str:
    """Return why a job that comes back does not have all that it asked for; '' if it has."""
    asked = recovery.asked.cpus_per_task
    back = recovery.requeue.change.cpus_per_task if recovery.requeue else asked
    return "" if recovery.ours.cpus_per_task is None or back == asked else CPUS_STAY


def cause_of(run: Failed) -> Cause | None:
    """Return for want of what a job failed, as far as slurmctld shows; None if for want of nothing.

    A job that was requeued by its own script (`srun work || scontrol requeue $SLURM_JOB_ID`) or by RequeueExit still
    has the codes of its last run.
    """
    state = run.job.state
    if run.waits_again:
        return "out_of_memory" if KILLED_FOR_MEMORY in run.exit_codes else None
    if state == "TIMEOUT":
        return "timeout"
    if state == "OUT_OF_MEMORY" or (state == "FAILED" and KILLED_FOR_MEMORY in run.exit_codes):
        return "out_of_memory"
    if is_killed(run) and not run.stopped:
        return "killed"
    return None


def _waited_for_the_killed(run: Failed) -> bool:
    """Return whether something in a job was killed for memory, and the rest waited for it until its time was over.

    Python's multiprocessing.Pool does so if the kernel kills one of its workers.
    """
    # slurmctld keeps the highest code of a job's earlier runs.
    return run.job.state == "TIMEOUT" and KILLED_FOR_MEMORY in run.exit_codes and run.restarts == 0


def lost_points(job: QueuedJob, terms: SiteTerms) -> int:
    """Return the points of priority that a job had for its age when it started: once requeued, it is young."""
    if not terms.most_age_s or not job.accrues_s or job.waits:
        return 0
    age = min(1.0, max(0.0, job.start_s - job.accrues_s) / terms.most_age_s)
    return round(age * terms.age_points)


def why_lost(run: Failed, cause: Cause, asked: JobRequest, grant: Grant, *, cpus_stay: bool) -> str:
    """Return why a job that failed by us cannot come back by itself; '' if it can."""
    comes_with_cpus = asked.mem_per_cpu_mib is not None or asked.mem_mib is None
    by_cpu = cause in OF_CPUS or (comes_with_cpus and cause not in OF_GPUS)
    reasons = (
        (not run.job.batch, NOT_BATCH),
        (bool(run.job.het_job_id), HET_JOB),
        (not run.requeues, NO_REQUEUE),
        # Whoever holds a job that runs wants no other run of it; to bring it back would release it.
        (run.job.priority == 0 and not run.job.waits, HELD),
        (_exports_too_little(run, asked, grant), STEP_BY_GPU),
        (cpus_stay and by_cpu and grant.cpus_per_task is not None, CPUS_STAY),
    )
    return next((reason for holds, reason in reasons if holds), "")


def witness_of(recovery: Recovery, job: QueuedJob, decided: Decided) -> Witness:
    """Return what the journal of decisions says of the token of a job, which slurmctld has kept for us.

    If the decision is missing, the journal may be lost, and nobody is to lose work by that: the job comes back, but
    nothing that is not on record is owed.
    """
    if decided is None:
        return "for"
    decision = decided.get(recovery.decision_id)
    if decision is None:
        return "none"
    kept = decision.applied and granted(recovery.asked, decision.grant) == recovery.given
    asked = recovery.asked
    if _is_nameless(job, decision):
        asked = msgspec.structs.replace(asked, user=decision.request.user)
    return "for" if kept and tells_of(asked, decision) else "against"


def _is_nameless(job: QueuedJob, decision: Decision) -> bool:
    """Whether the name of a job's user was not known, now or at submission, as when a directory service is away.

    The hook then writes the uid; scontrol prints that, or `nobody` (22.05).
    """
    uid = str(job.uid)
    return decision.request.user == uid or job.user in (uid, NO_NAME)


def still_ours(run: Failed, asked: JobRequest, grant: Grant) -> Grant:
    """Return the part of a grant that a job still has as we left it; nothing if its tasks are others now.

    Memory by CPU, and memory that a job does not ask for, is what it was only with its CPUs.
    """
    left = granted(asked, grant)
    if not _stands(run.job, left, ()):
        return Grant()
    more = _has_more_of_node(run.job, left, grant)
    apart = asked.mem_per_node_mib is not None and (more or not stands_at(run.job, left))
    kinds = ("mem_per_node_mib",) if more else KINDS
    ours = [kind for kind in kinds if _stands(run.job, left, (kind,) if apart else KINDS)]
    ours += gpu_fields.FIELDS if _gpus_stand(run, grant) else ()
    return Grant(**{kind: getattr(grant, kind) for kind in ours})


def _stands(job: QueuedJob, left: JobRequest, kinds: Sequence[str]) -> bool:
    """Whether a job has the tasks that we left it, and as much of these kinds."""
    others = dict.fromkeys(kind for kind in KINDS if kind not in kinds)
    return stands_at(job, msgspec.structs.replace(left, **others))


def _has_more_of_node(job: QueuedJob, left: JobRequest, grant: Grant) -> bool:
    """Whether somebody has raised the CPUs of a job that we cut by MinCPUsNode: CPUs per task are as we left them."""
    if grant.cpus_per_task is None or is_raised(job, left.mem_per_cpu_mib, left.cpus_per_task):
        return False
    return has_more_of_node(job)


def _gpus_stand(run: Failed, grant: Grant) -> bool:
    """Whether the GPUs that we cut, and the memory that comes with them, are as we left them."""
    return all(
        getattr(grant, kind) in (None, gpu_fields.amount(run.gpu_fields, kind)) for kind in gpu_fields.FIELDS
    )


def _exports_too_little(run: Failed, asked: JobRequest, grant: Grant) -> bool:
    """Whether a step was killed that takes its memory from the job's environment, which cannot be changed.

    `--mem-per-gpu`, `--gpus` and `--gpus-per-task` are exported to any srun inside; `--gres` is not.
    """
    exported = (grant.mem_per_gpu_mib, grant.gpus_per_job, grant.gpus_per_task)
    own, *of_steps = run.exit_codes
    return (
        asked.mem_per_gpu_mib is not None
        and any(one is not None for one in exported)
        and own != KILLED_FOR_MEMORY
        and KILLED_FOR_MEMORY in of_steps
    )


def _give_back(job: QueuedJob, asked: JobRequest, grant: Grant, *, cpus_stay: bool) -> GiveBack:
    """Return the change that gives back what was taken, except CPUs if they stay."""
    back = {
        kind: getattr(asked, kind)
        for kind in (*KINDS, *gpu_fields.FIELDS)
        if getattr(grant, kind) is not None and not (cpus_stay and kind == "cpus_per_task")
    }
    if asked.mem_per_cpu_mib is not None:
        # Slurm makes more CPUs of memory per CPU above MaxMemPerCPU: neither can be judged, or set, without the
        # other.
        cpus = (grant.cpus_per_task if cpus_stay else None) or asked.cpus_per_task or 1
        back |= {"mem_per_cpu_mib": asked.mem_per_cpu_mib, "cpus_per_task": cpus}
    return GiveBack(
        job_id=job.job_id,
        uid=job.uid,
        num_tasks=asked.num_tasks,
        reason="restored to its original request",
        **back,
    )
