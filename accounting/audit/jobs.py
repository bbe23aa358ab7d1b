"""Reads the jobs of a time window from Slurm again and compares them with the store; writes nothing."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pyarrow as pa
from sqlalchemy import Connection

from accounting.audit.agreement import Disagreement, disagreements
from accounting.decisions.token import find_token
from accounting.frames import job_rows
from accounting.pseudonyms import Pseudonyms
from accounting.records import Key
from accounting.slurm.windows import Fetched, Source, through_windows
from accounting.store.audit import read_recoveries_of
from accounting.store.recorded import stored_comments
from accounting.store.records import read_decisions

# A window may hold a whole campaign: tokens and decisions of this many attempts are held at once, next to Slurm's rows.
ATTEMPTS_AT_ONCE = 2_000


class Compared(msgspec.Struct, kw_only=True):
    """How many ended attempts were compared, how many carry a token, and how many the store does not have yet.

    `found` lists where token, store and Slurm disagree.
    """

    attempts: int = 0
    with_token: int = 0
    not_ingested: int = 0
    found: list[Disagreement] = msgspec.field(default_factory=list)


def compare_jobs(
    connection: Connection,
    source: Source,
    since_s: int,
    until_s: int,
    hide: Pseudonyms | None = None,
    journalled_from_s: float | None = None,
    progress: Callable[[float], None] = lambda _done: None,
) -> Compared:
    """Compare the attempts that ended in a window (unix seconds), part by part, each once.

    Raises SlurmError if Slurm does not answer. `hide` makes the pseudonyms that the store uses for names.
    """
    compared, seen = Compared(), dict[Key, int]()

    def take(fetched: Fetched, _begin_s: int, end_s: int) -> None:
        for records in fetched.records(None):
            for at in range(0, len(records.jobs), ATTEMPTS_AT_ONCE):
                part = records.jobs.slice(at, ATTEMPTS_AT_ONCE)
                jobs = part if hide is None else hide.table(part)
                compare(connection, jobs, compared, seen, journalled_from_s)
        # Only what ended at that very moment comes again with the next window.
        for key in [key for key, ended_s in seen.items() if ended_s < end_s]:
            del seen[key]
        progress((end_s - since_s) / (until_s - since_s))

    through_windows(source, since_s, until_s, take)
    return compared


def compare(
    connection: Connection,
    jobs: pa.Table,
    compared: Compared,
    seen: dict[Key, int],
    journalled_from_s: float | None,
) -> None:
    """Compare a part of a window (JOBS), and add the result; `seen` maps the attempts before it to their ends."""
    rows = [row for row in job_rows(jobs) if row.key not in seen]
    seen |= {row.key: row.end_s for row in rows}
    job_ids = sorted({row.job_id for row in rows})
    comments = dict(stored_comments(connection, job_ids))
    tokens = [find_token(row.admin_comment) for row in rows]
    decisions = read_decisions(connection, sorted({token.decision_id for token in tokens if token}))
    recoveries = read_recoveries_of(connection, job_ids)
    for row in rows:
        comment = comments.get(row.key)
        compared.not_ingested += comment is None
        compared.found += disagreements(
            row, comment, decisions, recoveries.get(row.job_id, ()), journalled_from_s
        )
    compared.attempts += len(rows)
    compared.with_token += sum(token is not None for token in tokens)
