"""Rebuilds a decision from the token that its job carries, if its journal line is lost. Pure.

A token holds what was asked and granted, mode, reason, rule, model, signature and the previous decisions. The user,
the job's name and where it ran are in Slurm's own record. Lost are the reasons for each dimension, the settings of
the prediction, the time (the job's submit time stands in), and the requested wall time.
"""

from __future__ import annotations

from typing import get_args

from msgspec import structs

from accounting.decisions.decision import Decision, Mode, refused
from accounting.decisions.token import Token, asked_request, granted_by, would_grant
from accounting.records import JobRow
from accounting.request import JobRequest

_MODES: dict[str, Mode] = {mode: mode for mode in get_args(Mode)}


def rebuilt(token: Token, row: JobRow) -> Decision | None:
    """Return the decision recorded in a job's token; None if the token's mode does not exist."""
    mode = _MODES.get(token.mode)
    if mode is None:
        return None
    request = structs.replace(
        asked_request(token, row.user) or JobRequest(user=row.user),
        account=row.account,
        partition=row.partition,
        qos=row.qos,
        job_name=row.job_name,
        script_signature=token.signature,
    )
    decision = Decision(
        id=token.decision_id,
        time_s=float(row.submit_s),
        mode=mode,
        applied=bool(token.granted),
        reason=token.reason,
        request=request,
        grant=granted_by(token) if token.granted else would_grant(token),
        rule=token.rule,
        via=token.via,
        model=token.model,
        replaces=token.was,
        from_token=True,
    )
    return refused(decision, token.refused) if token.refused else decision
