"""Entries of recovery's journal next to what slurmctld holds: makes one, and checks that its job is the same."""

from __future__ import annotations

from accounting.decisions.token import find_token
from slurm_plugin.recovery.journal import Entry
from slurm_plugin.recovery.judging import Recovery, what_stays
from slurm_plugin.slurm.job_lines import is_held_again
from slurm_plugin.slurm.queue import Failed

S_PER_H, MIB_PER_GIB = 3600.0, 1024.0


def is_forgotten(run: Failed | None, entry: Entry) -> bool:
    """Whether a requeued run is held halfway: a slurmctld that was killed has forgotten the rest.

    Nothing else has held it: anything that does gives another reason, or makes another run of it.
    """
    if run is None or entry.what != "requeued" or is_another(run, entry):
        return False
    return is_held_again(run.job) and run.restarts == entry.restarts + 1


def is_another(run: Failed | None, entry: Entry) -> bool:
    """Whether the number of an entry's job is another job's now: slurmctld was started cold, and numbers afresh."""
    token = find_token(run.job.admin_comment) if run else None
    return token is not None and entry.decision_id not in (token.decision_id, token.was)


def entry_of(run: Failed, recovery: Recovery, now_s: float) -> Entry:
    """Return the journal's line of a job that failed by us, with the hours that it held in vain."""
    job = run.job
    # For a job that its user, or the site, requeued, slurmctld no longer knows when its last run began.
    hours = 0.0 if job.waits else job.ran_s(job.end_s) / S_PER_H
    return Entry(
        job_id=job.job_id,
        restarts=run.failed_at,
        what="begun",
        time_s=now_s,
        cause=recovery.cause,
        user=job.user,
        account=job.account,
        decision_id=recovery.decision_id,
        cpu_hours=round(job.cpus * hours, 4),
        mem_gib_hours=round(job.mem_mib / MIB_PER_GIB * hours, 4),
        requeue=recovery.requeue,
        why=what_stays(recovery),
        array_job_id=job.array_job_id,
    )
