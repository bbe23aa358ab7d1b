"""Finds the decision that a direct job's client carried out before slurmctld saw the job. Pure.

The id travels in the job's comment, which the user may write freely. The decision that it names counts only if it
is of the same user, was made just before the job was submitted, and left exactly what slurmctld was then asked for.
"""

from __future__ import annotations

import msgspec

from accounting.decisions.decision import Decision
from accounting.decisions.token import asked_request, find_token, fits_slurm
from accounting.records import JobRow
from accounting.request import Grant, JobRequest, granted

# A client submits right after it gets its answer; hosts' clocks may differ, and a busy slurmctld makes it retry.
LEAD_S = 600
CLOCKS_DIFFER_S = 60


class ClientDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The decision that a job's client carried out, and what was first requested."""

    id: str
    request: JobRequest


def carried_out(decision: Decision | None, row: JobRow) -> ClientDecision | None:
    """Return the decision that a job names if it was carried out on this job, else None."""
    request = first_request(decision, row) if decision else None
    # A client may ask for any number: Slurm was never asked for more than it can hold, and the store cannot hold it.
    if decision is None or request is None or not fits_slurm(request):
        return None
    return ClientDecision(id=decision.id, request=request)


def first_request(decision: Decision, row: JobRow) -> JobRequest | None:
    """Return what was first requested, if the decision that a job names was carried out on this job; else None.

    What the client did not request, and the number of tasks if it could not know it, was filled in by slurmctld or
    by a script of the site: that is taken from the token.
    """
    lead_s = row.submit_s - decision.time_s
    if decision.request.user != row.user or not -CLOCKS_DIFFER_S <= lead_s <= LEAD_S:
        return None
    left = granted(decision.request, decision.grant) if decision.applied else decision.request
    token = find_token(row.admin_comment)
    if token is None:
        return decision.request if _allocates(left, row) else None
    seen = asked_request(token, row.user)
    if any(amount != getattr(seen, name, None) for name, amount in _amounts(left)):
        return None
    if seen is None:
        return decision.request
    added = {name: amount for name, amount in _amounts(seen) if getattr(left, name) is None}
    return msgspec.structs.replace(decision.request, num_tasks=seen.num_tasks, nodes=seen.nodes, **added)


def _amounts(request: JobRequest) -> list[tuple[str, int]]:
    asked = ((name, getattr(request, name)) for name in Grant.__struct_fields__)
    return [(name, amount) for name, amount in asked if amount is not None]


def _allocates(request: JobRequest, row: JobRow) -> bool:
    """Whether a request amounts to what Slurm recorded as requested; without memory, the partition's default counts."""
    mem_mib = row.req_mem_mib if request.mem_mib is None else request.mem_mib
    return (request.cpus, mem_mib, request.gpus) == (row.req_cpus, row.req_mem_mib, row.req_gpus)
