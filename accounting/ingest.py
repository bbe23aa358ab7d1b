"""From sacct, the GPU spool and the decision journal into the store: incremental, idempotent, one window at a time.

A window's rows and the mark that it was read are one transaction: cut off anywhere, the next run reads that
window again and writes the same rows onto the same keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
from sqlalchemy import Connection, Engine

from accounting.client_decisions import carried_out, client_decision_id
from accounting.gpu_samples import read_spool
from accounting.journal import read_journal
from accounting.labels import label_attempt
from accounting.records import GpuUse, JobRow
from accounting.sacct import Reading, query_sacct, read_sacct
from accounting.store import schema
from accounting.store.records import (
    Counts,
    read_decisions,
    read_gpu_use,
    read_offsets,
    read_until_s,
    write_attempts,
    write_decisions,
    write_gpu_use,
    write_quarantine,
    write_refusals,
    write_rows,
    write_steps,
)
from accounting.token import find_token

SACCT = "sacct"
DAY_S = 86400

Window = tuple[int, int]
Query = Callable[[str, int, int], list[str]]


class IngestSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where to read. `overlap_s`: how much of the last window is read again, for records that arrived late."""

    sacct: str
    overlap_s: int
    first_days: int
    gpu_spool: Path
    journal: Path


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
    query: Query = query_sacct,
) -> IngestReport:
    """Bring the store up to `now_s`; `since_s` overrides where to start. `progress` hears the share done (0..1).

    `query` answers for a window what sacct printed about it: sacct itself, or a recording.
    """
    report = IngestReport(Counts(), Counts(), Counts(), Counts())
    with engine.begin() as connection:
        _ingest_spools(connection, settings, now_s, report)
        until_s = read_until_s(connection, SACCT)
    windows = list(plan_windows(until_s, now_s, settings, since_s))
    # Whoever reads from later on than the last run stopped leaves a gap, which the next plain run must still read.
    leaves_gap = until_s is not None and since_s is not None and since_s > until_s
    for number, (begin_s, end_s) in enumerate(windows, start=1):
        reading = read_sacct(query(settings.sacct, begin_s, end_s))
        with engine.begin() as connection:
            _write_reading(connection, reading, now_s, report)
            if not leaves_gap:
                mark = {"source": SACCT, "read_until_s": max(end_s, until_s or 0)}
                write_rows(connection, schema.windows, [mark])
        report.unfinished = reading.unfinished
        progress(number / len(windows))
    return report


def plan_windows(
    until_s: int | None, now_s: int, settings: IngestSettings, since_s: int | None
) -> Iterator[Window]:
    """Yield windows of a day at most, in unix seconds, that lead up to now: slurmdbd answers small questions."""
    if since_s is not None:
        begin_s = since_s
    elif until_s is None:
        begin_s = now_s - settings.first_days * DAY_S
    else:
        begin_s = until_s - settings.overlap_s
    while begin_s < now_s:
        end_s = min(begin_s + DAY_S, now_s)
        yield begin_s, end_s
        begin_s = end_s


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


def _write_reading(connection: Connection, reading: Reading, now_s: int, report: IngestReport) -> None:
    gpu_use = read_gpu_use(connection, [row.job_id for row, _ in reading.jobs])
    named = [client_decision_id(row) for row, _ in reading.jobs]
    decisions = read_decisions(connection, [name for name in named if name])
    attempts = [
        label_attempt(
            row,
            steps,
            _during(row, gpu_use.get(row.job_id, [])),
            carried_out(decisions.get(name), row),
        )
        for name, (row, steps) in zip(named, reading.jobs, strict=True)
    ]
    report.attempts += write_attempts(connection, attempts)
    report.steps += write_steps(connection, ((row, step) for row, steps in reading.jobs for step in steps))
    report.decisions += write_refusals(connection, _refusals(row for row, _ in reading.jobs))
    report.quarantined += write_quarantine(connection, reading.quarantined, now_s).new


def _refusals(rows: Iterable[JobRow]) -> dict[str, str]:
    """Return why the hook did not carry decisions out, by their ids: the journal counts them as applied."""
    tokens = (find_token(row.admin_comment) for row in rows)
    return {token.decision_id: token.refused for token in tokens if token and token.refused}


def _during(row: JobRow, uses: list[GpuUse]) -> list[GpuUse]:
    """Return the GPU use that falls into an attempt; job ids come again after a requeue."""
    return [use for use in uses if use.first_s <= row.end_s and use.last_s >= row.start_s]
