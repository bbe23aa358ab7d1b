"""Gives jobs whose admin comment another tool has replaced the tokens of their decisions, which the journal has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection

from accounting.decisions.decision import Decision
from accounting.decisions.originals import TOKEN_WORD
from accounting.decisions.replaced import moments, restored_comments
from accounting.decisions.token import find_token
from accounting.frames import job_rows
from accounting.records import JobRow, Key
from accounting.store.recorded import decisions_about, stored_comments
from accounting.store.records import read_decisions


def with_lost_tokens(connection: Connection, jobs: pa.Table) -> pa.Table:
    """Return jobs (JOBS) with their tokens where another tool has replaced the admin comment in slurmdbd."""
    comments = jobs["admin_comment"]
    places = np.flatnonzero(
        pc.and_(pc.not_equal(comments, ""), pc.invert(pc.match_substring(comments, TOKEN_WORD))).to_numpy()
    )
    if not len(places):
        return jobs
    rows = list(job_rows(jobs.take(places)))
    stored = dict(stored_comments(connection, [row.job_id for row in rows]))
    known = {
        place: comment
        for place, row in enumerate(rows)
        if (comment := stored.get(row.key, "")).startswith(f"{row.admin_comment} ") and find_token(comment)
    }
    decisions = decisions_about(connection, sorted({row.user for row in rows}), moments(rows))
    before = _named_before(connection, rows, stored)
    whole = comments.to_pylist()
    for place, comment in restored_comments(rows, decisions, known, before).items():
        whole[places[place]] = comment
    at = jobs.schema.get_field_index("admin_comment")
    return jobs.set_column(at, "admin_comment", pa.array(whole, pa.string()))


def _named_before(
    connection: Connection, rows: Sequence[JobRow], stored: Mapping[Key, str]
) -> dict[int, Decision]:
    """Return the decisions that stored attempts of the same jobs name in their comments, by row."""
    tokens = ((key[:2], find_token(comment)) for key, comment in sorted(stored.items()))
    named = {job: token.decision_id for job, token in tokens if token is not None}
    decisions = read_decisions(connection, list(named.values()))
    found = ((place, named.get(row.key[:2])) for place, row in enumerate(rows))
    return {place: decisions[name] for place, name in found if name in decisions}
