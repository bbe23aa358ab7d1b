"""Finds what users first requested; Slurm's own requested TRES show the request after our rewrite. Pure.

The source is our token in the admin comment, or the decision that the job's own client carried out before submitting.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from accounting.decisions.by_clients import ClientDecision
from accounting.decisions.decision import Decision
from accounting.decisions.rebuilding import rebuilt
from accounting.decisions.token import asked_request, carried_id, find_token, tells_of
from accounting.frames import Ints, floats, job_row_of
from accounting.request import JobRequest

TOKEN_WORD, CARRIED_WORD, REFUSED_WORD, VIA_WORD = "rightsizer/1;", "rightsizer-cli=", "refused=", ";via="

Columns = dict[str, Any]


class Original(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt's user first requested, and the decision that records it; `request` is None if none does."""

    decision_id: str
    signature: str
    request: JobRequest | None


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why the hook did not carry out a decision, and what the job whose token says so had requested."""

    decision_id: str
    reason: str
    asked: JobRequest


def client_decision_ids(jobs: pa.Table) -> dict[int, str]:
    """Return, by row, the ids of the decisions that jobs say their clients carried out.

    A job names the decision in its token or, if the hook did not answer, in its comment.
    """
    named: dict[int, str] = {}
    for row, comment in _rows_with(jobs["comment"], CARRIED_WORD):
        named[row] = carried_id(comment)
    for row, comment in _rows_with(jobs["admin_comment"], TOKEN_WORD):
        token = find_token(comment)
        if token is not None:
            named[row] = token.via
    return {row: name for row, name in named.items() if name}


def named_decisions(comment: str, admin_comment: str) -> set[str]:
    """Return the ids of the decisions that a job's comments name: those in its token, else its client's."""
    token = find_token(admin_comment)
    named = {carried_id(comment)} if token is None else {token.decision_id, token.via}
    return named - {""}


def refusals(jobs: pa.Table) -> list[Refusal]:
    """Return the hook's refusals, as recorded in jobs' tokens: the journal counts these decisions as applied."""
    found = []
    for row, comment in _rows_with(jobs["admin_comment"], REFUSED_WORD):
        token = find_token(comment)
        asked = asked_request(token, jobs["user"][row].as_py()) if token and token.refused else None
        if token is not None and asked is not None:
            found.append(Refusal(decision_id=token.decision_id, reason=token.refused, asked=asked))
    return found


def lost_decisions(jobs: pa.Table, wanted: Collection[str]) -> list[Decision]:
    """Return the decisions with these ids, each once, as far as jobs' tokens record them.

    An id that jobs of different users or with different amounts name is left out: one of them copied it.
    """
    found: dict[str, Decision] = {}
    disputed: set[str] = set()
    for row, comment in _rows_with(jobs["admin_comment"], TOKEN_WORD) if wanted else ():
        token = find_token(comment)
        if token is None or token.decision_id not in wanted:
            continue
        known = found.get(token.decision_id)
        if known is not None:
            if not tells_of(asked_request(token, jobs["user"][row].as_py()), known):
                disputed.add(token.decision_id)
            continue
        decision = rebuilt(token, job_row_of(jobs, row))
        if decision is not None:
            found[decision.id] = decision
    return [one for name, one in found.items() if name not in disputed]


def asked_first(jobs: pa.Table, num_tasks: Ints, by_client: Mapping[int, ClientDecision]) -> Columns:
    """Return columns of what was first requested: totals of the job, memory in MiB, and whether it was per node.

    `num_tasks` is the number of tasks according to Slurm; `by_client` are the decisions that clients carried out,
    by row.
    """
    columns: Columns = {
        "num_tasks": num_tasks.copy(),
        "asked_cpus": floats(jobs["req_cpus"]),
        "asked_mem_mib": floats(jobs["req_mem_mib"]),
        "asked_gpus": floats(jobs["req_gpus"]),
        "mem_per_node": np.zeros(len(jobs), dtype=bool),
        "decision_id": np.full(len(jobs), "", dtype=object),
        "script_signature": np.full(len(jobs), "", dtype=object),
    }
    for row, original in _originals(jobs, by_client).items():
        columns["decision_id"][row], columns["script_signature"][row] = (
            original.decision_id,
            original.signature,
        )
        if original.request is not None:
            # A request without a number of nodes asks for its amounts on each node that the job got.
            held = original.request.nodes or jobs["nodes"][row].as_py() or 1
            request = msgspec.structs.replace(original.request, nodes=held)
            columns["num_tasks"][row] = request.num_tasks
            columns["asked_cpus"][row] = request.cpus
            columns["mem_per_node"][row] = request.mem_per_node_mib is not None
            for name, amount in (("asked_mem_mib", request.mem_mib), ("asked_gpus", request.gpus)):
                columns[name][row] = columns[name][row] if amount is None else amount
    return columns


def _originals(jobs: pa.Table, by_client: Mapping[int, ClientDecision]) -> dict[int, Original]:
    found: dict[int, Original] = {}
    for row, comment in _rows_with(jobs["admin_comment"], TOKEN_WORD):
        token = find_token(comment)
        if token is not None:
            request = asked_request(token, jobs["user"][row].as_py())
            found[row] = Original(decision_id=token.decision_id, signature=token.signature, request=request)
    for row, decision in by_client.items():
        signature = decision.request.script_signature
        found[row] = Original(decision_id=decision.id, signature=signature, request=decision.request)
    return found


def _rows_with(texts: pa.ChunkedArray, word: str) -> Iterable[tuple[int, str]]:
    rows = np.flatnonzero(pc.match_substring(texts, word).to_numpy(zero_copy_only=False))
    return ((int(row), texts[int(row)].as_py()) for row in rows)
