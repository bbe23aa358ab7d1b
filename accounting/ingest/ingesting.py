"""From sacct, the GPU spool and the decision journal into the store: incremental, idempotent, one window at a time.

Whatever is asked of Slurm is asked outside any transaction: each part of a window is one, and the mark that the window
was read comes last. Cut off anywhere, the next run reads that window again and writes the same rows onto the same keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection, Engine

from accounting.decisions import originals
from accounting.decisions.by_clients import ClientDecision, carried_out
from accounting.decisions.decision import Decision
from accounting.frames import Records, attempts_in, job_row_of
from accounting.ingest.completing import completed, each_once
from accounting.ingest.spools import ingest_spools, ingest_users_gpu_use
from accounting.ingest.window_marks import read_before_s
from accounting.journal.recoveries import Recovered
from accounting.labels.attempts import label
from accounting.labels.requeued import out_of_time, queued_again
from accounting.pseudonyms import Pseudonyms
from accounting.records import Attempt, Quarantined
from accounting.slurm.sacct import Answer, ended_bytes, known_fields, query_sacct
from accounting.slurm.sacct_records import Metering, read_answer
from accounting.slurm.slurmdbd import read_database
from accounting.slurm.windows import DAY_S, Fetched, Pace, Source, through_windows
from accounting.store import schema
from accounting.store.audit import read_recoveries_of
from accounting.store.bulk import known_digests, upsert_attempts
from accounting.store.database import writing
from accounting.store.recorded import read_records
from accounting.store.records import (
    Counts,
    known_attempts,
    latest_end_s,
    read_decisions,
    read_gpu_use,
    read_input_mib,
    windows_read,
    write_decisions,
    write_quarantine,
    write_refusals,
    write_rows,
)

SACCT = "sacct"
LATELY_S = DAY_S
# Told of attempts that the store did not have and that ended lately: those of one part of a window.
HandOn = Callable[[Sequence[Attempt]], None]


class IngestSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where to read. `overlap_s`: how much of the last window is read again, for records that arrived late.

    `slurmdbd_url` names slurmdbd's own database, to be read instead of asking sacct; '' is none. `cluster` is whose
    jobs these are, '' where that is not known, and `host` where this runs: other hosts may fill the same store.
    `pseudonyms` stand for names before anything is written. `hand_on` hears of new attempts that ended within LATELY_S,
    just before they are committed: where that fails it hears of them again. `advisor` and `recovery` are the folders of
    their journals.
    """

    sacct: str
    overlap_s: int
    first_days: int
    gpu_spool: Path
    journal: Path
    slurmdbd_url: str = ""
    cluster: str = ""
    host: str = ""
    metering: Metering = Metering()
    pseudonyms: Pseudonyms | None = None
    hand_on: HandOn | None = None
    advisor: Path | None = None
    recovery: Path | None = None

    @property
    def reader(self) -> str:
        """Who reads: a host of a cluster."""
        return f"{self.cluster}/{self.host}"


class IngestReport(msgspec.Struct):
    """What one run brought."""

    attempts: Counts = msgspec.field(default_factory=Counts)
    steps: Counts = msgspec.field(default_factory=Counts)
    gpu_use: Counts = msgspec.field(default_factory=Counts)
    decisions: Counts = msgspec.field(default_factory=Counts)
    cycles: Counts = msgspec.field(default_factory=Counts)
    recoveries: Counts = msgspec.field(default_factory=Counts)
    unfinished: int = 0
    quarantined: int = 0

    def __add__(self, other: IngestReport) -> IngestReport:
        """Add count by count."""
        return IngestReport(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))


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
    """Bring the store up to `now_s`; `since_s` overrides where to start. `progress` hears the share done (0..1).

    `source` answers for a window: as the settings say, where none is given. Before each window `stopped` is asked
    whether to leave what is left to the next run. Who ingests again and again keeps one `pace`.
    """
    run = Run(settings, now_s)
    fetch = source or source_of(settings, now_s)
    ingest_spools(engine, run)
    with engine.connect() as connection:
        marks = windows_read(connection, SACCT)
        until_s = read_before_s(marks, settings.cluster, now_s - settings.first_days * DAY_S)
        # Where the clock was ahead, the mark says nothing: what was recorded since the last known end is unread.
        is_ahead = until_s is not None and until_s > now_s
        read_s = latest_end_s(connection, now_s, settings.cluster) if is_ahead else until_s
    begin_s = starts_at(read_s, now_s, settings, since_s)
    # Whoever reads from later on than the last run stopped leaves a gap, which the next plain run must still read.
    leaves_gap = until_s is not None and since_s is not None and since_s > until_s
    marked_s = marks.get(settings.cluster, 0)

    def take(fetched: Fetched, window_s: int, end_s: int) -> None:
        ingest_window(engine, run, fetched, window_s, end_s)
        if not leaves_gap:
            until = max(end_s, marked_s)
            mark = {"source": SACCT, "cluster": settings.cluster, "read_until_s": until}
            with writing(engine) as connection:
                write_rows(connection, schema.windows, [mark])
        progress((end_s - begin_s) / (now_s - begin_s))

    through_windows(fetch, begin_s, now_s, take, stopped, pace)
    ingest_users_gpu_use(engine, run)
    return run.report


def ingest_window(engine: Engine, run: Run, fetched: Fetched, begin_s: int, end_s: int) -> None:
    """Write a window's records; a part is complete before its transaction begins."""
    # Another writer may come between this and the parts: it only writes what it read of Slurm, as this run does.
    with engine.connect() as connection:
        known = known_digests(connection, begin_s, end_s)
    run.report.unfinished = 0  # what has not ended by the last window is what is still to come
    for records in fetched.records(known):
        with writing(engine) as connection:
            run.write(connection, records)


def ingest_records(
    engine: Engine,
    settings: IngestSettings,
    now_s: int,
    parts: Iterable[Records],
    progress: Callable[[float, int], None] = lambda _done, _jobs: None,
) -> IngestReport:
    """Write records that come from elsewhere, each part by itself; what is stored is completed and never made poorer.

    The rule is that of completing.py. `progress` hears of the jobs that were read; how many there are nobody knows
    before the end.
    """
    run, jobs = Run(settings, now_s), 0
    for records in parts:
        with writing(engine) as connection:
            run.complete(connection, records)
        jobs += len(records.jobs)
        progress(0.0, jobs)
    return run.report


def source_of(settings: IngestSettings, now_s: int) -> Source:
    """Return what the settings name: slurmdbd's database, else sacct."""
    if not settings.slurmdbd_url:
        return sacct_source(settings, now_s)
    where = (settings.slurmdbd_url, settings.cluster)
    return lambda begin_s, end_s: Fetched(
        size_bytes=0,
        records=lambda _known: read_database(*where, begin_s, end_s, now_s, settings.metering),
    )


def sacct_source(settings: IngestSettings, now_s: int) -> Source:
    """Return what asks sacct from now on; it is asked first which columns it knows."""
    fields = known_fields(settings.sacct)
    return lambda begin_s, end_s: fetched_answer(
        query_sacct(settings.sacct, begin_s, end_s, fields), end_s, settings.metering, now_s
    )


def fetched_answer(answer: Answer, until_s: int, metering: Metering, asked_s: int = 0) -> Fetched:
    """Return what sacct answered about a window that ends at `until_s`; `asked_s` is when, if that was later."""
    return Fetched(
        size_bytes=ended_bytes(answer.figures),
        records=lambda known: read_answer(answer, until_s, metering, known, asked_s=asked_s),
    )


def starts_at(until_s: int | None, now_s: int, settings: IngestSettings, since_s: int | None) -> int:
    """Return from which unix second on to read."""
    if since_s is not None:
        return since_s
    if until_s is None:
        return now_s - settings.first_days * DAY_S
    return min(until_s, now_s) - settings.overlap_s


class Run:
    """One run: what is written, and what it came to."""

    def __init__(self, settings: IngestSettings, now_s: int) -> None:
        self.settings = settings
        self.now_s = now_s
        self.report = IngestReport()

    def write(self, connection: Connection, records: Records) -> None:
        """Label records and write them in place of what is stored of the same attempts."""
        self._write(connection, self._hidden(records))

    def complete(self, connection: Connection, records: Records) -> None:
        """Label records with what is stored of the same attempts, and write them: nothing that is known goes."""
        for part in each_once(self._hidden(records)):
            stored = read_records(connection, part.jobs["job_id"].to_pylist())
            self._write(connection, completed(part, stored))

    def _hidden(self, records: Records) -> Records:
        pseudonyms = self.settings.pseudonyms
        if pseudonyms is None:
            return records
        return replace(records, jobs=pseudonyms.table(records.jobs), steps=pseudonyms.table(records.steps))

    def _write(self, connection: Connection, records: Records) -> None:
        written, written_steps = self._label_and_write(connection, records)
        self.report.attempts += written + Counts(same=records.known)
        self.report.steps += written_steps
        self.report.unfinished += records.unfinished
        self.report.decisions += write_refusals(connection, originals.refusals(records.jobs))
        self.quarantine(connection, records.quarantined)

    def label_again(self, connection: Connection, job_ids: Sequence[int]) -> None:
        """Label the stored attempts of jobs once more, since more is known of them."""
        records = read_records(connection, job_ids)
        if len(records.jobs):
            self._label_and_write(connection, records)

    def _label_and_write(self, connection: Connection, records: Records) -> tuple[Counts, Counts]:
        jobs = records.jobs
        gpu_use = read_gpu_use(connection, jobs["job_id"].to_pylist())
        every_s = self.settings.metering.sampled_every_s
        again = [jobs["job_id"][row].as_py() for row in queued_again(jobs)]
        late = out_of_time(jobs, read_recoveries_of(connection, again))
        attempts = label(records, gpu_use, by_client(connection, jobs), every_s, late)
        named = set(filter(None, attempts["decision_id"].to_pylist()))
        known = read_input_mib(connection, list(named))
        lost = originals.lost_decisions(jobs, named - known.keys())
        self.report.decisions += write_decisions(connection, lost)
        attempts = with_input(attempts, known)
        if self.settings.hand_on is not None:
            self.settings.hand_on(new_attempts(connection, attempts, self.now_s - LATELY_S))
        return upsert_attempts(connection, attempts, steps_of(attempts, records.steps))

    def quarantine(self, connection: Connection, items: Iterable[Quarantined]) -> None:
        """Keep input that was not taken."""
        pseudonyms = self.settings.pseudonyms
        shown = items if pseudonyms is None else map(pseudonyms.quarantined, items)
        self.report.quarantined += write_quarantine(connection, shown, self.now_s).new

    def hidden_user(self, name: str) -> str:
        """Return a user's name as it is stored."""
        pseudonyms = self.settings.pseudonyms
        return name if pseudonyms is None else pseudonyms.user(name)

    def hidden_recovery(self, recovery: Recovered) -> Recovered:
        """Return what became of a run as it is to be stored."""
        pseudonyms = self.settings.pseudonyms
        if pseudonyms is None:
            return recovery
        user, account = pseudonyms.user(recovery.user), pseudonyms.account(recovery.account)
        return msgspec.structs.replace(recovery, user=user, account=account)

    def hidden_decision(self, decision: Decision) -> Decision:
        """Return a decision as it is to be stored."""
        pseudonyms = self.settings.pseudonyms
        return decision if pseudonyms is None else pseudonyms.decision(decision)


def new_attempts(connection: Connection, attempts: pa.Table, since_s: int) -> list[Attempt]:
    """Return those attempts that ended since and that the store does not have yet."""
    lately = attempts_in(attempts.filter(pc.greater_equal(attempts["end_s"], since_s)))
    known = known_attempts(connection, [attempt.row.job_id for attempt in lately])
    return [attempt for attempt in lately if attempt.row.key not in known]


def with_input(attempts: pa.Table, known: Mapping[str, float | None]) -> pa.Table:
    """Return attempts with the size of the input that their decisions saw: no token tells it, which others can read."""
    column = pa.array([known.get(name) for name in attempts["decision_id"].to_pylist()], pa.float64())
    return attempts.set_column(attempts.schema.get_field_index("input_mib"), "input_mib", column)


def steps_of(attempts: pa.Table, steps: pa.Table) -> pa.Table:
    """Return the steps with the keys of their attempts, as the store's table has them."""
    of = {"cluster": "cluster", "job_id": "job_id", "submit_s": "submit_s", "attempt_start_s": "start_s"}
    columns = {name: pc.take(attempts[source], steps["job"]) for name, source in of.items()}
    return pa.table({**columns, **{name: steps[name] for name in steps.column_names if name != "job"}})


def by_client(connection: Connection, jobs: pa.Table) -> dict[int, ClientDecision]:
    """Return the decisions that jobs' clients carried out, by row."""
    named = originals.client_decision_ids(jobs)
    decisions = read_decisions(connection, list(named.values()))
    carried = ((row, carried_out(decisions.get(name), job_row_of(jobs, row))) for row, name in named.items())
    return {row: decision for row, decision in carried if decision is not None}
