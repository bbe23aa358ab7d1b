"""Which decision a direct job's client carried out before slurmctld saw the job. Pure.

The id travels through the job's comment, which its user may write as he likes: what it points to counts only where it
is the same user's, was made just before the job was submitted, and left exactly what slurmctld was then asked for.
"""

from __future__ import annotations

from accounting.decisions import Decision
from accounting.records import JobRow
from accounting.request import Grant, granted
from accounting.token import asked_request, carried_id, find_token

# A client submits right after it was answered; hosts' clocks may differ, and a busy slurmctld makes it try again.
LEAD_S = 600
CLOCKS_DIFFER_S = 60
AMOUNTS = Grant.__struct_fields__


def client_decision_id(row: JobRow) -> str:
    """Return the id that a job names, in its token or (where the hook did not answer) in its comment; '' for none."""
    token = find_token(row.admin_comment)
    return token.via if token else carried_id(row.comment)


def is_of(decision: Decision, row: JobRow) -> bool:
    """Whether a decision that a job names is the one that made it what it was when it was submitted."""
    lead_s = row.submit_s - decision.time_s
    if decision.request.user != row.user or not -CLOCKS_DIFFER_S <= lead_s <= LEAD_S:
        return False
    left = granted(decision.request, decision.grant) if decision.applied else decision.request
    token = find_token(row.admin_comment)
    if token is None:
        return (left.cpus, left.mem_mib, left.gpus) == (
            row.req_cpus,
            row.req_mem_mib if left.mem_mib is not None else None,
            row.req_gpus,
        )
    seen = asked_request(token, row.user)
    return all(getattr(seen, name, None) == getattr(left, name) for name in AMOUNTS)
