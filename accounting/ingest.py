"""From sacct, the GPU spool and the decision journal into the store: incremental, idempotent, one window at a time.

A window's rows and the mark that it was read are one transaction: cut off anywhere, the next run reads that
window again and writes the same rows onto the same keys.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection, Engine

from accounting import originals
from accounting.client_decisions import ClientDecision, carried_out
from accounting.frames import Records, job_row_of
from accounting.gpu_samples import read_spool
from accounting.journal import read_journal
from accounting.labels import label
from accounting.sacct import Answer, known_fields, query_sacct
from accounting.sacct_records import Metering, read_answer
from accounting.store import schema
from accounting.store.known import Known, read_known
from accounting.store.records import (
    Counts,
    read_decisions,
    read_gpu_use,
    read_offsets,
    read_until_s,
    write_decisions,
    write_gpu_use,
    write_quarantine,
    write_refusals,
    write_rows,
    write_table,
)

SACCT = "sacct"
DAY_S, HOUR_S = 86400, 3600
# Windows are made so long that sacct's answer, which is held in memory, has some such size: 100,000 jobs.
WINDOW_BYTES = 64 * 1024**2

Window = tuple[int, int]
Query = Callable[[int, int], Answer]


class IngestSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where to read. `overlap_s`: how much of the last window is read again, for records that arrived late."""

    sacct: str
    overlap_s: int
    first_days: int
    gpu_spool: Path
    journal: Path
    metering: Metering = Metering()


class IngestReport(msgspec.Struct):
    """What one run brought."""

    attempts: Counts
    steps: Counts
    gpu_use: Counts
    decisions: Counts
    unfinished: int = 0
    quarantined: int = 0


def ingest(
    engine: Engine,
    settings: IngestSettings,
    now_s: int,
    since_s: int | None = None,
    progress: Callable[[float], None] = lambda _done: None,
    query: Query | None = None,
) -> IngestReport:
    """Bring the store up to `now_s`; `since_s` overrides where to start. `progress` hears the share done (0..1).

    `query` answers for a window what sacct printed about it: sacct itself, or a recording.
    """
    report = IngestReport(Counts(), Counts(), Counts(), Counts())
    ask = query or sacct_query(settings.sacct)
    with engine.begin() as connection:
        _ingest_spools(connection, settings, now_s, report)
        until_s = read_until_s(connection, SACCT)
    begin_s = first_s = starts_at(until_s, now_s, settings, since_s)
    # Whoever reads from later on than the last run stopped leaves a gap, which the next plain run must still read.
    leaves_gap = until_s is not None and since_s is not None and since_s > until_s
    span_s = first_span_s(now_s - begin_s)
    while begin_s < now_s:
        end_s = min(begin_s + span_s, now_s)
        answer = ask(begin_s, end_s)
        with engine.begin() as connection:
            _ingest_answer(connection, answer, (begin_s, end_s), settings, report, now_s)
            if not leaves_gap:
                mark = {"source": SACCT, "read_until_s": max(end_s, until_s or 0)}
                write_rows(connection, schema.windows, [mark])
        progress((end_s - first_s) / (now_s - first_s))
        begin_s, span_s = end_s, next_span_s(span_s, len(answer.figures))
    return report


def sacct_query(command: str) -> Query:
    """Return what asks sacct; it is asked first which columns it knows."""
    fields = known_fields(command)
    return lambda begin_s, end_s: query_sacct(command, begin_s, end_s, fields)


def starts_at(until_s: int | None, now_s: int, settings: IngestSettings, since_s: int | None) -> int:
    """Return from which unix second on to read."""
    if since_s is not None:
        return since_s
    if until_s is None:
        return now_s - settings.first_days * DAY_S
    # A clock that went back must not leave what was recorded meanwhile unread.
    return min(until_s, now_s) - settings.overlap_s


def first_span_s(ahead_s: int) -> int:
    """Return the length of the first window: nothing is known yet of how many jobs a long way back holds."""
    return HOUR_S if ahead_s > DAY_S else DAY_S


def next_span_s(span_s: int, answer_bytes: int) -> int:
    """Return the length of the next window after one with an answer of so many bytes: from a minute to a day."""
    if answer_bytes > WINDOW_BYTES:
        return max(60, span_s // 2)
    return min(DAY_S, span_s * 2) if answer_bytes < WINDOW_BYTES // 2 else span_s


def _ingest_answer(
    connection: Connection,
    answer: Answer,
    window: Window,
    settings: IngestSettings,
    report: IngestReport,
    now_s: int,
) -> None:
    known = read_known(connection, *window)
    report.unfinished = 0  # what has not ended by the last window is what is still to come
    for records in read_answer(answer, window[1], settings.metering, known.digests):
        write_records(connection, records, known, settings.metering, report, now_s)
        report.unfinished += records.unfinished


def write_records(
    connection: Connection,
    records: Records,
    known: Known,
    metering: Metering,
    report: IngestReport,
    now_s: int,
) -> None:
    """Label records and write them; what is `known` counts as changed."""
    jobs = records.jobs
    gpu_use = read_gpu_use(connection, jobs["job_id"].to_pylist())
    attempts = label(records, gpu_use, _by_client(connection, jobs), metering.sampled_every_s)
    write_table(connection, schema.attempts, attempts)
    write_table(connection, schema.steps, steps_of(attempts, records.steps))
    changed = known.has(attempts)
    report.attempts += Counts(new=len(attempts) - changed, changed=changed, same=records.known)
    report.steps += Counts(new=len(records.steps))
    report.decisions += write_refusals(connection, originals.refusals(jobs))
    report.quarantined += write_quarantine(connection, records.quarantined, now_s).new


def steps_of(attempts: pa.Table, steps: pa.Table) -> pa.Table:
    """Return the steps with the keys of their attempts, as the store's table has them."""
    of = {"cluster": "cluster", "job_id": "job_id", "submit_s": "submit_s", "attempt_start_s": "start_s"}
    columns = {name: pc.take(attempts[source], steps["job"]) for name, source in of.items()}
    return pa.table({**columns, **{name: steps[name] for name in steps.column_names if name != "job"}})


def _by_client(connection: Connection, jobs: pa.Table) -> dict[int, ClientDecision]:
    named = originals.client_decision_ids(jobs)
    decisions = read_decisions(connection, list(named.values()))
    carried = ((row, carried_out(decisions.get(name), job_row_of(jobs, row))) for row, name in named.items())
    return {row: decision for row, decision in carried if decision is not None}


def _ingest_spools(
    connection: Connection, settings: IngestSettings, now_s: int, report: IngestReport
) -> None:
    uses, quarantined = read_spool(settings.gpu_spool)
    report.gpu_use += write_gpu_use(connection, uses)
    for part in read_journal(settings.journal, read_offsets(connection)):
        report.decisions += write_decisions(connection, part.decisions)
        quarantined.extend(part.quarantined)
        write_rows(connection, schema.journals, [{"file": part.file, "read_bytes": part.read_bytes}])
    report.quarantined += write_quarantine(connection, quarantined, now_s).new
