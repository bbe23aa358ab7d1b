"""What a run that has ended says for or against cutting requests. Pure.

It is judged by our token in the job's admin comment (what was asked, what was granted), by what Slurm allocated, and
by how the run ended. A run that was cancelled, or lost with its node, says nothing. Neither does a run with its own
request after it had failed with less, since it is there only because of that.
"""

from __future__ import annotations

import msgspec

from accounting.decisions.token import asked_request, find_token, granted_by
from accounting.records import Attempt
from accounting.request import Grant, JobRequest, granted
from accounting.wants import Cause, wants

_FAILED: tuple[Cause, ...] = ("out_of_memory", "timeout")


class Trial(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run: whether we gave it less than was asked, whether it failed, and what it lacked of what we cut (`wanted`).

    A run that had all it asked for has no `wanted`. `timeout` means that it ran out of time with fewer CPUs.
    `killed_with_fewer_cpus`: it asked for no memory and was killed for it; only Slurm's configuration tells whether
    its memory came with its CPUs. `memory_whole`: it was cut, but had all the memory that was asked, so it says
    nothing of kills for want of memory.
    """

    shrunk: bool = False
    failed: bool = False
    wanted: Cause | None = None
    killed_with_fewer_cpus: bool = False
    memory_whole: bool = False


def trial_of(attempt: Attempt) -> Trial | None:
    """Return what a run says; None if it says nothing."""
    failed = has_failed(attempt)
    token = find_token(attempt.row.admin_comment)
    if failed is None or not attempt.ran:
        return None
    if token is None or not (token.granted or token.via):
        return Trial(failed=failed)
    had_all = _had_all(attempt)
    had_less = False in had_all.values()
    if token.recovered_at is not None and not had_less:
        return None
    cause, asked = _cause(attempt), asked_request(token, attempt.row.user)
    if token.via:
        shrunk, fewer_cpus = had_less, had_all.get("timeout") is False
        wanted = cause if cause and had_all.get(cause) is False else None
    else:
        grant = granted_by(token)
        fewer_cpus = grant.cpus_per_task is not None and not had_all.get("timeout")
        took = cause is not None and asked is not None and wants(cause, asked, grant)
        if cause == "out_of_memory" and asked is not None and _is_lowered(attempt, granted(asked, grant)):
            took = False  # its user lowered what we had left, too far
        wanted = cause if took and cause and not had_all.get(cause) else None
        # A job whose user set memory and CPUs back to what was asked was no longer cut when it started. If a token
        # does not say what was asked, only what Slurm knows is left, which is what was granted.
        shrunk = asked is None or not all(had_all.get(one) for one in _FAILED) or _cut_of_gpus(grant)
    asked_no_memory = asked is not None and asked.mem_mib is None
    asked_memory = asked is not None and asked.mem_mib is not None
    return Trial(
        shrunk=shrunk,
        failed=failed,
        wanted=wanted,
        killed_with_fewer_cpus=cause == "out_of_memory" and fewer_cpus and asked_no_memory,
        memory_whole=shrunk and asked_memory and had_all.get("out_of_memory") is True,
    )


def _is_lowered(attempt: Attempt, left: JobRequest) -> bool:
    """Return whether a run had less memory than we left it; if its job names no number of nodes, on the fewest."""
    return 0 < (attempt.row.alloc_mem_mib or 0) < (left.mem_mib or 0)


def has_failed(attempt: Attempt) -> bool | None:
    """Return whether a run failed by itself or by its limits; None if it was ended for another reason."""
    if attempt.use.outcome == "completed":
        return False
    is_failure = attempt.use.outcome in _FAILED or attempt.row.state.startswith("FAILED")
    return True if is_failure else None


def _cause(attempt: Attempt) -> Cause | None:
    """Return what a run may have failed for want of, by accounting's labels."""
    outcome = attempt.use.outcome
    return outcome if outcome == "out_of_memory" or outcome == "timeout" else None


def _had_all(attempt: Attempt) -> dict[Cause, bool]:
    """Return by cause whether a run was allocated all that was first asked of what it could fail for want of.

    What Slurm does not count, such as memory on some sites, is left out.
    """
    row = attempt.row
    memory: Cause = "out_of_memory"
    pairs: tuple[tuple[Cause, int | None, int | None], ...] = (
        (memory, row.alloc_mem_mib, attempt.asked_mem_mib),
        ("timeout", row.alloc_cpus, attempt.asked_cpus),
    )
    return {cause: given >= asked for cause, given, asked in pairs if given and asked}


def _cut_of_gpus(grant: Grant) -> bool:
    amounts = (grant.gpus_per_node, grant.gpus_per_job, grant.gpus_per_task, grant.mem_per_gpu_mib)
    return any(amount is not None for amount in amounts)
