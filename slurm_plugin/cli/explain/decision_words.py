"""Say in words what was asked and granted for a job in the queue, from the token that it carries. Pure."""

from __future__ import annotations

from accounting.decisions.token import Token, asked_request, find_token, granted_by, would_grant
from accounting.request import Grant
from slurm_plugin.policy.messages import changes_in_words
from slurm_plugin.slurm.job_lines import is_held_again
from slurm_plugin.slurm.snapshot import QueuedJob


def decided_in_words(job: QueuedJob) -> str:
    """Return in one sentence what was decided for a job, at submission or later."""
    token = find_token(job.admin_comment)
    if token is None:
        return "its admin comment holds no decision of rightsizer: it has what it asked for"
    model = f", model {token.model}" if token.model else ""
    by = f"(decision {token.decision_id}, {token.reason}, mode {token.mode}{model})"
    if token.recovered_at is not None and is_held_again(job):
        # Recovery has not released it yet: the site's slurm_job_modify may have accepted the token and nothing else.
        return f"its original request is being restored, because a run with less failed {by}"
    if token.recovered_at is not None:
        cpus = granted_by(token).cpus_per_task
        but = " except its CPUs" if cpus is not None and cpus == job.cpus_per_task else ""
        return f"its original request was restored{but}, because a run with less failed {by}"
    if token.granted:
        return f"it was granted {_changes(token, granted_by(token), job.user)} {by}"
    if token.would:
        return (
            f"it has what it asked for; {_changes(token, would_grant(token), job.user)} would be enough {by}"
        )
    return f"it has what it asked for {by}"


def _changes(token: Token, grant: Grant, user: str) -> str:
    request = asked_request(token, user)
    return ", ".join(changes_in_words(request, grant)) if request else "less"
