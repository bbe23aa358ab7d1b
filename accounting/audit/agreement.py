"""Compares a job's token, the store's decision and Slurm's own figures. Pure.

The token is the hook's word in Slurm's accounting, the decision is the service's in our store, and what Slurm
requested and allocated is what happened. Slurm rounds, and users and admins change pending jobs: a difference in
Slurm's figures alone is reported, but is no sign that a record was altered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from accounting.decisions.decision import REFUSED, Decision
from accounting.decisions.slurm_figures import unlike_slurm
from accounting.decisions.token import Token, find_token, format_token
from accounting.journal.recoveries import Recovered
from accounting.records import JobRow

State = Literal["problem", "warning"]
RESIZED = "resized"
# Fields of a token that are compared, one by one, with those of the token that the decision would give.
_TOLD = ("mode", "reason", "asked", "granted", "would", "rule", "via", "was", "model", "signature", "refused")


class Disagreement(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a job on which the sources disagree; '-' for a source that says nothing about it."""

    job: str
    field: str
    token: str
    store: str
    slurm: str
    state: State = "problem"


def disagreements(
    row: JobRow,
    stored_comment: str | None,
    decisions: Mapping[str, Decision],
    recoveries: Sequence[Recovered] = (),
    journalled_from_s: float | None = None,
) -> Iterator[Disagreement]:
    """Yield where the token in Slurm's row of an attempt, the store and Slurm's TRES disagree.

    `stored_comment` is the admin comment as ingested, None if the attempt is not ingested yet; `decisions` are the
    store's decisions that the token names, by id. From `journalled_from_s` on (unix seconds), the journal has a
    line for every decision. A job that has no token, and for which the store knows none either, is not ours.
    """
    token = find_token(row.admin_comment)
    was = find_token(stored_comment) if stored_comment else None
    if token is None:
        # Another tool has replaced it, and ingest has found its decision in the journal.
        if was is not None and not was.from_journal:
            yield _said(row, "token", "-", was.decision_id)
        return
    if was is not None and was.decision_id != token.decision_id:
        yield _said(row, "id", token.decision_id, was.decision_id)
    decision = decisions.get(token.decision_id)
    if decision is None:
        if stored_comment is not None:  # else it is not ingested yet
            yield _said(row, "decision", token.decision_id, "-")
    else:
        if decision.from_token and journalled_from_s is not None and row.submit_s > journalled_from_s:
            yield _said(
                row, "decision", token.decision_id, "known from the token only: the journal has no line of it"
            )
        yield from _by_decision(row, token, decision)
    run = (token.recovered_at, token.decision_id)
    recovery = next((one for one in recoveries if (one.restarts, one.decision_id) == run), None)
    if token.recovered_at is not None and recovery is None:
        yield _said(row, "recovery", f"at restart {token.recovered_at}", "-", state="warning")
    yield from _by_slurm(row, token, cpus_stay=recovery is not None and bool(recovery.why))


def _by_decision(row: JobRow, token: Token, decision: Decision) -> Iterator[Disagreement]:
    if decision.request.user != row.user:
        yield _said(row, "user", "-", decision.request.user, row.user)
    expected = token_of(decision)
    for name in _TOLD:
        said, kept = getattr(token, name), getattr(expected, name)
        if said != kept:
            yield _said(row, name, _in_words(said), _in_words(kept))


def token_of(decision: Decision) -> Token:
    """Return the token of a decision's job: as the service wrote it, or as the hook did when it refused."""
    token = find_token(format_token(decision))
    if token is None:  # a decision without an id: no token names it
        raise ValueError("a decision without an id")
    if not decision.reason.startswith(REFUSED):
        return token
    # The store has the hook's reason in place of the service's, which is always this one if there is a grant.
    return msgspec.structs.replace(token, refused=decision.reason.removeprefix(REFUSED), reason=RESIZED)


def _by_slurm(row: JobRow, token: Token, *, cpus_stay: bool) -> Iterator[Disagreement]:
    """Compare what the token says the job runs with to what Slurm requested and allocated; either may match."""
    for unit, said, requested, allocated in unlike_slurm(row, token, cpus_stay=cpus_stay):
        told = f"ReqTRES {requested}, AllocTRES {allocated}"
        yield _said(row, unit, str(said), "-", told, state="warning")


def _in_words(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{word} {amount}" for word, amount in sorted(value.items())) or "-"
    return str(value) or "-"


def _said(
    row: JobRow, field: str, token: str, store: str, slurm: str = "-", state: State = "problem"
) -> Disagreement:
    return Disagreement(job=row.display_id, field=field, token=token, store=store, slurm=slurm, state=state)
