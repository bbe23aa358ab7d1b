"""Writes attempts, steps and decisions to the store, and reads them. Every write is idempotent by its primary key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import ColumnElement, Connection, Engine, Select, Table, case, delete, func, or_, select

from accounting.decisions.decision import REFUSED, Decision, decode_decision, encode_decision, refused
from accounting.decisions.originals import Refusal
from accounting.decisions.token import tells_of
from accounting.frames import attempt_of
from accounting.journal.marks import Mark, mark_of
from accounting.records import Attempt, GpuUse, Key, Quarantined
from accounting.store import counts, schema
from accounting.store.batches import ROWS_A_BATCH, arrow_schema, read_batches
from accounting.store.bulk import upsert
from accounting.store.columns import from_rows
from accounting.store.quarantine import MOST_CHARS, digest_of
from accounting.store.schema import portions, rows_among

WEEK_S, MOST_LATEST = 7 * 86400, 2_000

Row = dict[str, Any]
Counts = counts.Counts
# Columns of attempts whose texts recur often.
_WORDS = (
    "cluster", "user", "account", "partition", "qos", "job_name", "state", "script_signature", "outcome",
    "memory_quality", "cores_quality", "wall_quality", "gpu_quality", "gpu_source", "io_quality", "energy_quality",
)  # fmt: skip


def write_rows(connection: Connection, table: Table, rows: Iterable[Row]) -> Counts:
    """Insert rows with a new key, update those that differ, leave the rest; all rows have the same columns."""
    columns = tuple(table.primary_key.columns)
    by_key = {tuple(row[column.name] for column in columns): row for row in rows}
    return upsert(connection, table, from_rows(table, by_key.values()))


def write_gpu_use(connection: Connection, uses: Iterable[GpuUse]) -> Counts:
    """Store what the GPU meters saw."""
    return write_rows(connection, schema.gpu_use, (msgspec.structs.asdict(use) for use in uses))


def write_decisions(connection: Connection, decisions: Iterable[Decision]) -> Counts:
    """Store decisions by their id."""
    return write_rows(connection, schema.decisions, (_decision_row(decision) for decision in decisions))


def write_journalled(connection: Connection, decisions: Sequence[Decision]) -> Counts:
    """Store the journal's decisions, but keep a refusal by the hook that a token of the same job has shown."""
    known = read_decisions(connection, [decision.id for decision in decisions])
    return write_decisions(connection, (_as_told(one, known.get(one.id)) for one in decisions))


def _as_told(decision: Decision, known: Decision | None) -> Decision:
    """Return a journal's decision as refused, if the stored one is of the same job and says so."""
    if known is None or not known.reason.startswith(REFUSED) or not tells_of(known.request, decision):
        return decision
    return refused(decision, known.reason.removeprefix(REFUSED))


def write_refusals(connection: Connection, refusals: Sequence[Refusal]) -> Counts:
    """Mark decisions as not applied, with the hook's reason; decisions that are not stored are left out.

    A job whose user or amounts are not the decision's does not count, whatever id its token names.
    """
    known = read_decisions(connection, list({one.decision_id for one in refusals}))
    return write_decisions(
        connection,
        (
            refused(known[one.decision_id], one.reason)
            for one in refusals
            if one.decision_id in known and tells_of(one.asked, known[one.decision_id])
        ),
    )


def write_quarantine(connection: Connection, lines: Iterable[Quarantined], seen_s: int) -> Counts:
    """Store rejected lines, each once, with the time when it was first seen."""
    rows = {digest_of(item): item for item in lines}
    digest = schema.quarantine.c.digest
    known = {row.digest for row in rows_among(connection, select(digest), digest, list(rows))}
    fresh = (
        {
            "digest": digest,
            "seen_s": seen_s,
            "source": item.source,
            "reason": item.reason,
            "line": item.line[:MOST_CHARS],
        }
        for digest, item in rows.items()
        if digest not in known
    )
    return write_rows(connection, schema.quarantine, fresh)


def _decision_row(decision: Decision) -> Row:
    return {
        "id": decision.id,
        "time_s": decision.time_s,
        "mode": decision.mode,
        "applied": int(decision.applied),
        "reason": decision.reason,
        "user": decision.request.user,
        "job_name": decision.request.job_name,
        "model": decision.model,
        "document": encode_decision(decision).decode().rstrip("\n"),
        "input_mib": decision.request.input_mib,
    }


def read_attempts(
    engine: Engine,
    job_id: int | None = None,
    cluster: str | None = None,
    display_id: str | None = None,
) -> list[Attempt]:
    """Return attempts in the order of submission: all, or those that meet all given conditions."""
    table = schema.attempts.c
    same = {table.job_id: job_id, table.cluster: cluster, table.display_id: display_id}
    conditions = [column == value for column, value in same.items() if value is not None]
    return list(_attempts(engine, conditions))


def all_attempts(engine: Engine) -> Iterator[Attempt]:
    """Yield all attempts in the order of submission, a batch at a time."""
    return _attempts(engine, ())


def submitted_between(
    engine: Engine,
    cluster: str,
    from_s: int,
    before_s: int,
    partition: str | None = None,
    *,
    or_ended_after_s: int | None = None,
) -> Iterator[Attempt]:
    """Yield a cluster's attempts that were submitted in a span of unix seconds, in the order of submission.

    With `or_ended_after_s`, those that were submitted earlier and ended after that moment come, too. They come a batch
    at a time; all of a large site's take gigabytes.
    """
    table = schema.attempts.c
    begins = table.submit_s >= from_s
    if or_ended_after_s is not None:
        begins = or_(begins, table.end_s > or_ended_after_s)
    conditions = [table.cluster == cluster, begins, table.submit_s < before_s]
    if partition is not None:
        conditions.append(table.partition == partition)
    return _attempts(engine, conditions)


def _attempts(engine: Engine, conditions: Sequence[ColumnElement[bool]]) -> Iterator[Attempt]:
    table = schema.attempts
    query = select(table).where(*conditions).order_by(table.c.submit_s, table.c.job_id)
    words: dict[str, str] = {}
    with engine.connect().execution_options(yield_per=ROWS_A_BATCH) as connection:
        for found in connection.execute(query).mappings():
            row = dict(found)
            # Each distinct text is held once: as the database returns them, they are a third of the size of attempts.
            row.update((name, words.setdefault(row[name], row[name])) for name in _WORDS)
            yield attempt_of(row)


def submissions(connection: Connection) -> dict[str, tuple[int, int]]:
    """Return the first and last submit times of attempts (unix seconds), by cluster."""
    table = schema.attempts.c
    query = select(table.cluster, func.min(table.submit_s), func.max(table.submit_s)).group_by(table.cluster)
    return {row[0]: (int(row[1]), int(row[2])) for row in connection.execute(query)}


def read_direct_jobs(connection: Connection, cluster: str, submitted_from_s: int) -> set[tuple[int, int]]:
    """Return job ids and submit times of a cluster's attempts with steps but without a batch step."""
    table = schema.steps.c
    batch = func.sum(case((table.step_id == "batch", 1), else_=0))
    query = (
        select(table.job_id, table.submit_s)
        .where(table.cluster == cluster, table.submit_s >= submitted_from_s)
        .group_by(table.job_id, table.submit_s)
        .having(batch == 0)
    )
    return {(int(row.job_id), int(row.submit_s)) for row in connection.execute(query)}


def read_attempt_columns(
    engine: Engine, names: Sequence[str], conditions: Sequence[ColumnElement[bool]] = ()
) -> pa.Table:
    """Return columns of all attempts, or of those that meet the conditions, in the order of submission."""
    table = schema.attempts
    query = (
        select(*(table.c[name] for name in names))
        .where(*conditions)
        .order_by(table.c.submit_s, table.c.job_id)
    )
    batches = [_packed(batch) for batch in read_batches(engine, query)]
    return pa.concat_tables(batches) if batches else arrow_schema(query).empty_table()


def _packed(batch: pa.Table) -> pa.Table:
    """Return a batch with its texts dictionary-encoded: most of them recur often."""
    columns = (
        pc.dictionary_encode(column) if column.type == pa.string() else column for column in batch.columns
    )
    return pa.table(dict(zip(batch.column_names, columns, strict=True)))


def known_attempts(connection: Connection, job_ids: Sequence[int]) -> set[Key]:
    """Return the keys of the jobs' stored attempts: cluster, job id, submit and start time (unix seconds)."""
    table = schema.attempts.c
    query = select(table.cluster, table.job_id, table.submit_s, table.start_s)
    found = rows_among(connection, query, table.job_id, job_ids)
    return {(one.cluster, one.job_id, one.submit_s, one.start_s) for one in found}


def stored_attempts(connection: Connection, job_ids: Sequence[int]) -> dict[Key, Attempt]:
    """Return the jobs' stored attempts, by cluster, job id, submit and start time (unix seconds)."""
    table, found = schema.attempts, dict[Key, Attempt]()
    for row in rows_among(connection, select(table), table.c.job_id, job_ids):
        attempt = attempt_of(row._asdict())
        found[attempt.row.key] = attempt
    return found


def read_decision(engine: Engine, decision_id: str) -> Decision | None:
    """Return a stored decision by its id; None if there is none."""
    query = select(schema.decisions.c.document).where(schema.decisions.c.id == decision_id)
    with engine.connect() as connection:
        document = connection.execute(query).scalar()
    return None if document is None else decode_decision(str(document).encode())


def read_decisions(connection: Connection, decision_ids: Sequence[str]) -> dict[str, Decision]:
    """Return the stored decisions with these ids, by id."""
    table = schema.decisions.c
    rows = rows_among(connection, select(table.document), table.id, decision_ids)
    found = (decode_decision(str(row.document).encode()) for row in rows)
    return {one.id: one for one in found if one is not None}


def read_input_mib(connection: Connection, decision_ids: Sequence[str]) -> dict[str, float | None]:
    """Return the input sizes that stored decisions saw, in MiB, by id; None if a decision saw none."""
    table = schema.decisions.c
    found = rows_among(connection, select(table.id, table.input_mib), table.id, decision_ids)
    return {row.id: row.input_mib for row in found}


def read_gpu_use(connection: Connection, job_ids: Sequence[int]) -> dict[int, list[GpuUse]]:
    """Return the GPU use of the given jobs, by job id."""
    table, found = schema.gpu_use, dict[int, list[GpuUse]]()
    for row in rows_among(connection, select(table), table.c.job_id, job_ids):
        found.setdefault(int(row.job_id), []).append(GpuUse(**row._asdict()))
    return found


class Ran(NamedTuple):
    """An attempt that ran: where, whose, and when, in unix seconds."""

    cluster: str
    user: str
    start_s: int
    end_s: int


def read_runs(connection: Connection, job_ids: Sequence[int]) -> dict[int, list[Ran]]:
    """Return the attempts that ran under the given job ids."""
    table, found = schema.attempts.c, dict[int, list[Ran]]()
    query = select(table.job_id, table.cluster, table.user, table.start_s, table.end_s)
    for row in rows_among(connection, query, table.job_id, job_ids):
        found.setdefault(int(row.job_id), []).append(Ran(row.cluster, row.user, row.start_s, row.end_s))
    return found


def read_marks(connection: Connection) -> dict[str, Mark]:
    """Return how far each file of a journal was read, by its key."""
    return {row.file: Mark(row.read_bytes, row.tail) for row in connection.execute(select(schema.journals))}


def write_mark(connection: Connection, name: str, file: Path, read_bytes: int) -> None:
    """Store how far a file was read; `name` is the file's name among all journals."""
    marked = mark_of(name, file, read_bytes)
    if marked is not None:
        key, mark = marked
        write_rows(connection, schema.journals, [{"file": key, **mark._asdict()}])


def forget_marks(connection: Connection, keys: Sequence[str]) -> None:
    """Forget how far removed files were read, by the keys of their marks."""
    for chunk in portions(keys):
        connection.execute(delete(schema.journals).where(schema.journals.c.file.in_(chunk)))


def windows_read(connection: Connection, source: str) -> dict[str, int]:
    """Return the end of the last window read from a source (unix seconds), by cluster; '' for an unnamed one."""
    table = schema.windows.c
    query = select(table.cluster, table.read_until_s).where(table.source == source)
    return {str(cluster): int(until_s) for cluster, until_s in connection.execute(query)}


def earliest_end_s(connection: Connection) -> int | None:
    """Return the earliest end of all attempts; None if there are none."""
    earliest = connection.execute(select(func.min(schema.attempts.c.end_s))).scalar()
    return None if earliest is None else int(earliest)


def latest_end_s(connection: Connection, now_s: int, cluster: str = "") -> int | None:
    """Return the latest end, up to `now_s`, of a cluster's attempts, or of all; None if there are none."""
    latest = connection.execute(
        _latest_first(select(schema.attempts.c.end_s), now_s, cluster).limit(1)
    ).scalar()
    return None if latest is None else int(latest)


def _latest_first(query: Select[Any], until_s: int, cluster: str) -> Select[Any]:
    """Return a query of attempts that ended up to `until_s`, of a cluster or all, from the last end back."""
    column = schema.attempts.c
    query = query.where(column.end_s <= until_s).order_by(column.end_s.desc())
    # This condition must not use an index: by the key, which begins with the cluster, the database would read all of
    # the cluster's attempts instead of going back from the last end.
    return query.where(column.cluster.concat("") == cluster) if cluster else query


def _latest_week(query: Select[Any], until_s: int, cluster: str) -> Select[Any]:
    """Return a query of the latest MOST_LATEST attempts of the week up to `until_s`, of a cluster or all."""
    week = query.where(schema.attempts.c.end_s > until_s - WEEK_S)
    return _latest_first(week, until_s, cluster).limit(MOST_LATEST)


class Measured(NamedTuple):
    """The latest attempts that ran long enough: how many there are, and how many lack a memory figure."""

    attempts: int
    without_memory: int


def latest_measured(connection: Connection, until_s: int, cluster: str = "") -> Measured:
    """Return how often memory was measured for attempts that ended in the week up to `until_s`, of a cluster or all.

    In a busy week, only the latest MOST_LATEST attempts are looked at.
    """
    column = schema.attempts.c
    query = _latest_week(select(column.memory_quality, column.wall_quality), until_s, cluster)
    ran = [memory for memory, wall in connection.execute(query) if wall != "absent" and memory != "short"]
    return Measured(len(ran), ran.count("absent"))


class Named(NamedTuple):
    """The latest attempts with an admin comment: how many name a decision in it, and how many do not."""

    named: int
    unnamed: int


def latest_named(connection: Connection, until_s: int, cluster: str) -> Named:
    """Return of how many attempts the decision is known, among those that ended in the week up to `until_s`.

    Only attempts that were submitted since the first decision count, and of those the latest MOST_LATEST.
    """
    column = schema.attempts.c
    first_s = select(func.min(schema.decisions.c.time_s)).scalar_subquery()
    ours = select(column.decision_id).where(column.admin_comment != "", column.submit_s >= first_s)
    query = _latest_week(ours, until_s, cluster)
    found = [bool(decision_id) for decision_id in connection.scalars(query)]
    return Named(found.count(True), found.count(False))
