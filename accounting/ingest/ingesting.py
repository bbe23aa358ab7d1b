"""Reads sacct, the GPU spool and the decision journal into the store: incremental, idempotent, window by window.

Slurm is always asked outside a transaction. Each part of a window is one transaction, and the mark that the window
was read comes last. If a run is cut off anywhere, the next one reads that window again and writes the same rows
onto the same keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sqlalchemy import Engine

from accounting.dumps.slurmdbd import read_database
from accounting.frames import Records
from accounting.ingest.label_marks import OUTDATED, outdated_until_s, still_outdated_s
from accounting.ingest.run import IngestReport, IngestSettings, Run
from accounting.ingest.spools import ingest_spools, ingest_users_gpu_use
from accounting.ingest.window_marks import LATE, late_since_s, read_before_s
from accounting.slurm.sacct import Answer, ended_bytes, known_fields, query_sacct
from accounting.slurm.sacct_groups import LABELS
from accounting.slurm.sacct_records import Metering, read_answer
from accounting.slurm.windows import DAY_S, Fetched, Pace, Source, through_windows
from accounting.store import schema
from accounting.store.bulk import known_digests
from accounting.store.database import writing
from accounting.store.records import (
    earliest_end_s,
    latest_end_s,
    windows_read,
    write_rows,
)

SACCT = "sacct"
# 2002-01-01: no accounting is older than Slurm. sacct refuses the first days of 1970 and everything before, which is
# what a site may write that means all of its past.
SLURM_BEGAN_S = 1_009_843_200


def ingest(
    engine: Engine,
    settings: IngestSettings,
    now_s: int,
    since_s: int | None = None,
    progress: Callable[[float], None] = lambda _done: None,
    source: Source | None = None,
    stopped: Callable[[], bool] = lambda: False,
    pace: Pace | None = None,
) -> IngestReport:
    """Bring the store up to `now_s`; `since_s` overrides where to start. `progress` gets the share done (0..1).

    `source` answers for a window; by default it is what the settings name. Before each window, `stopped` is asked
    whether to leave the rest to the next run. A caller that ingests repeatedly keeps one `pace`.
    """
    run = Run(settings, now_s)
    fetch = source or source_of(settings, now_s)
    ingest_spools(engine, run)
    with engine.connect() as connection:
        marks = windows_read(connection, SACCT)
        until_s = read_before_s(marks, settings.cluster, now_s - settings.first_days * DAY_S)
        # A mark from a clock that was ahead says nothing: everything recorded since the last known end is unread.
        is_ahead = until_s is not None and until_s > now_s
        read_s = latest_end_s(connection, now_s, settings.cluster) if is_ahead else until_s
        labelled_s, outdated_s, late_s = (
            windows_read(connection, source).get(settings.cluster) for source in (LABELS, OUTDATED, LATE)
        )
    outdated_s = outdated_until_s(until_s, labelled_s, outdated_s)
    begin_s = starts_at(read_s, now_s, settings, since_s)
    again_s = late_since_s(settings.late_days, now_s, late_s) if since_s is None else None
    if again_s is not None and read_s is not None:
        begin_s = min(begin_s, again_s)
    begin_s = max(begin_s, SLURM_BEGAN_S)
    # Starting later than where the last run stopped leaves a gap, which the next plain run must still read.
    leaves_gap = read_s is not None and since_s is not None and since_s > read_s
    # Nor may it stay: it would hide how far reading is behind, and what is left unread once its time has come. It goes
    # back before anything is read, as what is read changes the last known end.
    if is_ahead and read_s is not None:
        with writing(engine) as connection:
            row = {"source": SACCT, "cluster": settings.cluster, "read_until_s": read_s}
            write_rows(connection, schema.windows, [row])
    marked_s = 0 if is_ahead else marks.get(settings.cluster, 0)

    def take(fetched: Fetched, window_s: int, end_s: int) -> None:
        ingest_window(engine, run, fetched, window_s, end_s)
        if not leaves_gap:
            until = max(end_s, marked_s)
            marks_s = {SACCT: until, LABELS: until}
            if again_s is not None and end_s == now_s:
                marks_s[LATE] = now_s
            with writing(engine) as connection:
                if outdated_s is not None:
                    first_s = earliest_end_s(connection)
                    marks_s[OUTDATED] = still_outdated_s(min(outdated_s, now_s), begin_s, end_s, first_s)
                rows = [
                    {"source": source, "cluster": settings.cluster, "read_until_s": mark_s}
                    for source, mark_s in marks_s.items()
                ]
                write_rows(connection, schema.windows, rows)
        progress((end_s - begin_s) / (now_s - begin_s))

    through_windows(fetch, begin_s, now_s, take, stopped, pace)
    ingest_users_gpu_use(engine, run)
    return run.report


def ingest_window(engine: Engine, run: Run, fetched: Fetched, begin_s: int, end_s: int) -> None:
    """Write a window's records; each part is complete before its transaction begins."""
    # Another writer may come between this and the parts: it only writes what it read from Slurm, as this run does.
    with engine.connect() as connection:
        known = known_digests(connection, begin_s, end_s)
    run.report.unfinished = 0  # only what has not ended by the last window is still to come
    for records in fetched.records(known):
        with writing(engine) as connection:
            run.write(connection, records)


def ingest_records(
    engine: Engine,
    settings: IngestSettings,
    now_s: int,
    parts: Iterable[Records],
    progress: Callable[[float, int], None],
) -> IngestReport:
    """Write records from other sources, one transaction per part; stored attempts are completed, never made poorer.

    The rule is that of completing.py. `progress` gets the number of jobs read; the total is unknown until the end.
    """
    run, jobs = Run(settings, now_s), 0
    for records in parts:
        with writing(engine) as connection:
            run.complete(connection, records)
        jobs += len(records.jobs)
        progress(0.0, jobs)
    return run.report


def source_of(settings: IngestSettings, now_s: int) -> Source:
    """Return the source that the settings name: slurmdbd's database, else sacct."""
    if not settings.slurmdbd_url:
        return sacct_source(settings, now_s)
    where = (settings.slurmdbd_url, settings.cluster)
    return lambda begin_s, end_s: Fetched(
        size_bytes=0,
        records=lambda _known: read_database(*where, begin_s, end_s, now_s, settings.metering),
    )


def sacct_source(settings: IngestSettings, now_s: int) -> Source:
    """Return a source that asks sacct, after asking it once which columns it knows."""
    fields = known_fields(settings.sacct)
    return lambda begin_s, end_s: fetched_answer(
        query_sacct(settings.sacct, begin_s, end_s, fields), end_s, settings.metering, now_s
    )


def fetched_answer(answer: Answer, until_s: int, metering: Metering, asked_s: int = 0) -> Fetched:
    """Return sacct's answer about a window that ends at `until_s`; `asked_s` is when it was asked, if later."""
    return Fetched(
        size_bytes=ended_bytes(answer.figures, until_s),
        records=lambda known: read_answer(answer, until_s, metering, known, asked_s=asked_s),
    )


def starts_at(until_s: int | None, now_s: int, settings: IngestSettings, since_s: int | None) -> int:
    """Return the unix second from which to read."""
    if since_s is not None:
        return since_s
    if until_s is None:
        return now_s - settings.first_days * DAY_S
    return min(until_s, now_s) - settings.overlap_s
