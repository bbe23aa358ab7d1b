"""Attempts, steps and decisions into the store and out of it. Every write is idempotent by its primary key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import ColumnElement, Connection, Engine, Table, case, delete, func, select

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
# Texts of attempts that come again and again.
_WORDS = (
    "cluster", "user", "account", "partition", "qos", "job_name", "state", "script_signature", "outcome",
    "memory_quality", "cores_quality", "wall_quality", "gpu_quality", "gpu_source", "io_quality", "energy_quality",
)  # fmt: skip


def write_rows(connection: Connection, table: Table, rows: Iterable[Row]) -> Counts:
    """Insert the rows whose key is new, update those that differ, leave the rest; all rows have the same columns."""
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
    """Store decisions as the journal has them; what a token of the same job has told of the hook's refusal stays."""
    known = read_decisions(connection, [decision.id for decision in decisions])
    return write_decisions(connection, (_as_told(one, known.get(one.id)) for one in decisions))


def _as_told(decision: Decision, known: Decision | None) -> Decision:
    """Return a decision of the journal's as what is stored of it says that it was refused, where it is of its job."""
    if known is None or not known.reason.startswith(REFUSED) or not tells_of(known.request, decision):
        return decision
    return refused(decision, known.reason.removeprefix(REFUSED))


def write_refusals(connection: Connection, refusals: Sequence[Refusal]) -> Counts:
    """Mark decisions as not applied for a reason of the hook's; those that are not stored are left out.

    A job whose user or amounts are not the decision's says nothing of it, whatever id its token names.
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
    """Keep lines that were not taken, each once, with the time it was first seen."""
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
    """Return attempts in the order of their submission: all, or those that all the conditions given hold for."""
    table = schema.attempts.c
    same = {table.job_id: job_id, table.cluster: cluster, table.display_id: display_id}
    conditions = [column == value for column, value in same.items() if value is not None]
    return list(_attempts(engine, conditions))


def all_attempts(engine: Engine) -> Iterator[Attempt]:
    """Yield all attempts in the order of their submission, a batch at a time."""
    return _attempts(engine, ())


def submitted_between(
    engine: Engine, cluster: str, from_s: int, before_s: int, partition: str | None = None
) -> Iterator[Attempt]:
    """Yield a cluster's attempts in the order of their submission, which was in a span of unix seconds.

    They come a batch at a time; all of a large site take gigabytes.
    """
    table = schema.attempts.c
    conditions = [table.cluster == cluster, table.submit_s >= from_s, table.submit_s < before_s]
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
            # Each word is held once: as the database gives them they are a third of what attempts take.
            row.update((name, words.setdefault(row[name], row[name])) for name in _WORDS)
            yield attempt_of(row)


def submissions(connection: Connection) -> dict[str, tuple[int, int]]:
    """Return when the first and the last attempt of each cluster were submitted (unix seconds), by cluster."""
    table = schema.attempts.c
    query = select(table.cluster, func.min(table.submit_s), func.max(table.submit_s)).group_by(table.cluster)
    return {row[0]: (int(row[1]), int(row[2])) for row in connection.execute(query)}


def read_direct_jobs(connection: Connection, cluster: str, submitted_from_s: int) -> set[tuple[int, int]]:
    """Return job ids and submit times of a cluster's attempts that have steps, none of them a batch job's."""
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
    """Return columns of all attempts, or of those that fulfil conditions, in the order of their submission."""
    table = schema.attempts
    query = (
        select(*(table.c[name] for name in names))
        .where(*conditions)
        .order_by(table.c.submit_s, table.c.job_id)
    )
    batches = [_packed(batch) for batch in read_batches(engine, query)]
    return pa.concat_tables(batches) if batches else arrow_schema(query).empty_table()


def _packed(batch: pa.Table) -> pa.Table:
    """Return a batch with its texts as places in a list of different ones: most come again and again."""
    columns = (
        pc.dictionary_encode(column) if column.type == pa.string() else column for column in batch.columns
    )
    return pa.table(dict(zip(batch.column_names, columns, strict=True)))


def known_attempts(connection: Connection, job_ids: Sequence[int]) -> set[Key]:
    """Return what is stored of the given jobs, as cluster, job id, submit and start time (unix seconds)."""
    table = schema.attempts.c
    query = select(table.cluster, table.job_id, table.submit_s, table.start_s)
    found = rows_among(connection, query, table.job_id, job_ids)
    return {(one.cluster, one.job_id, one.submit_s, one.start_s) for one in found}


def stored_attempts(connection: Connection, job_ids: Sequence[int]) -> dict[Key, Attempt]:
    """Return the stored attempts of the given jobs, by cluster, job id, submit and start time (unix seconds)."""
    table, found = schema.attempts, dict[Key, Attempt]()
    for row in rows_among(connection, select(table), table.c.job_id, job_ids):
        attempt = attempt_of(row._asdict())
        found[attempt.row.key] = attempt
    return found


def read_decision(engine: Engine, decision_id: str) -> Decision | None:
    """Return a stored decision by its id; None where there is none."""
    query = select(schema.decisions.c.document).where(schema.decisions.c.id == decision_id)
    with engine.connect() as connection:
        document = connection.execute(query).scalar()
    return None if document is None else decode_decision(str(document).encode())


def read_decisions(connection: Connection, decision_ids: Sequence[str]) -> dict[str, Decision]:
    """Return the decisions that are stored under the given ids, by id."""
    table = schema.decisions.c
    rows = rows_among(connection, select(table.document), table.id, decision_ids)
    found = (decode_decision(str(row.document).encode()) for row in rows)
    return {one.id: one for one in found if one is not None}


def read_input_mib(connection: Connection, decision_ids: Sequence[str]) -> dict[str, float | None]:
    """Return the size of the input that stored decisions saw, in MiB, by id; None where they saw none."""
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
    """Whose attempt ran, where and when, in unix seconds."""

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
    """Keep how far a file was read; `name` is what it goes by among all journals."""
    marked = mark_of(name, file, read_bytes)
    if marked is not None:
        key, mark = marked
        write_rows(connection, schema.journals, [{"file": key, **mark._asdict()}])


def forget_marks(connection: Connection, keys: Sequence[str]) -> None:
    """Forget how far files were read that are gone, by the keys of their marks."""
    for chunk in portions(keys):
        connection.execute(delete(schema.journals).where(schema.journals.c.file.in_(chunk)))


def windows_read(connection: Connection, source: str) -> dict[str, int]:
    """Return the end of the last window read from a source, in unix seconds, by cluster; '' is of nobody's."""
    table = schema.windows.c
    query = select(table.cluster, table.read_until_s).where(table.source == source)
    return {str(cluster): int(until_s) for cluster, until_s in connection.execute(query)}


def earliest_end_s(connection: Connection) -> int | None:
    """Return when the attempt that ended first ended; None where there is none."""
    earliest = connection.execute(select(func.min(schema.attempts.c.end_s))).scalar()
    return None if earliest is None else int(earliest)


def latest_end_s(connection: Connection, now_s: int, cluster: str = "") -> int | None:
    """Return when the attempt that ended last, but not after `now_s`, ended: a cluster's, or any's; None for none."""
    column = schema.attempts.c
    query = select(column.end_s).where(column.end_s <= now_s).order_by(column.end_s.desc()).limit(1)
    if cluster:
        # From the last end on: by its key, of which it is the first part, all of a cluster's attempts are read.
        query = query.where(column.cluster.concat("") == cluster)
    latest = connection.execute(query).scalar()
    return None if latest is None else int(latest)


class Measured(NamedTuple):
    """Of the latest attempts that ran long enough for it: how many there are, and of how many memory is not known."""

    attempts: int
    without_memory: int


def latest_measured(connection: Connection, until_s: int, cluster: str = "") -> Measured:
    """Return how far memory is measured of a cluster's attempts, or any's, that ended in the week up to `until_s`.

    Of a busy week the latest MOST_LATEST attempts are looked at.
    """
    column = schema.attempts.c
    query = select(column.memory_quality, column.wall_quality).order_by(column.end_s.desc())
    query = query.where(column.end_s <= until_s, column.end_s > until_s - WEEK_S).limit(MOST_LATEST)
    if cluster:
        query = query.where(column.cluster.concat("") == cluster)  # as in latest_end_s
    ran = [memory for memory, wall in connection.execute(query) if wall != "absent" and memory != "short"]
    return Measured(len(ran), ran.count("absent"))
