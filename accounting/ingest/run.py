"""One run of ingest: its settings, what it writes, and its counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection

from accounting.decisions import originals
from accounting.decisions.by_clients import ClientDecision, carried_out
from accounting.decisions.decision import Decision
from accounting.frames import Records, attempts_in, job_row_of
from accounting.ingest.completing import as_measured, completed, each_once, remembered
from accounting.ingest.lost_tokens import with_lost_tokens
from accounting.journal.recoveries import Recovered
from accounting.labels.attempts import label
from accounting.labels.requeued import as_ended, queued_again
from accounting.pseudonyms import Pseudonyms
from accounting.records import Attempt, Quarantined
from accounting.slurm.sacct_records import Metering
from accounting.slurm.windows import DAY_S
from accounting.store.audit import read_recoveries_of
from accounting.store.bulk import upsert_attempts
from accounting.store.recorded import jobs_with_other_steps, read_meters, read_records
from accounting.store.records import (
    Counts,
    read_decisions,
    read_gpu_use,
    read_input_mib,
    stored_attempts,
    write_decisions,
    write_quarantine,
    write_refusals,
)

# Attempts that ended earlier than this are not handed on.
LATELY_S = DAY_S
# Called with attempts that ended lately: those new to the store, and those that the store had with other values.
HandOn = Callable[[Sequence[Attempt], Sequence[Attempt]], None]


class IngestSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where to read. `overlap_s`: how much of the last window is read again, for records that arrived late.

    Once a day `late_days` are read again, 0 for never (window_marks.py). `slurmdbd_url` names slurmdbd's own
    database, to be read instead of sacct; '' for none. `cluster` is the cluster of these jobs, '' if not known, and
    `host` is where this runs: other hosts may fill the same store. `pseudonyms` replace names before anything is
    written. `hand_on` is called with attempts that ended within LATELY_S and are new or better known, just before
    they are committed; if the commit fails, it is called with them again. `advisor` and `recovery` are the folders
    of their journals.
    """

    sacct: str
    overlap_s: int
    first_days: int
    gpu_spool: Path
    journal: Path
    late_days: int = 0
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
        """The reader's name: a host of a cluster."""
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


class Run:
    """One run: what it writes, and its counts."""

    def __init__(self, settings: IngestSettings, now_s: int) -> None:
        self.settings = settings
        self.now_s = now_s
        self.report = IngestReport()

    def write(self, connection: Connection, records: Records) -> None:
        """Label Slurm's records and write them over the stored attempts, but keep what it no longer tells."""
        told = self._hidden(records)
        told = as_measured(told, read_meters(connection, told.jobs["job_id"].to_pylist()))
        forgotten = jobs_with_other_steps(connection, told)
        self._write(connection, remembered(told, read_records(connection, forgotten)) if forgotten else told)

    def complete(self, connection: Connection, records: Records) -> None:
        """Label records, completed by what is stored of the same attempts, and write them: nothing known is lost."""
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
        """Label the stored attempts of jobs again, because more is known about them."""
        records = read_records(connection, job_ids)
        if len(records.jobs):
            self._label_and_write(connection, records)

    def _label_and_write(self, connection: Connection, records: Records) -> tuple[Counts, Counts]:
        again = [records.jobs["job_id"][row].as_py() for row in queued_again(records.jobs)]
        jobs = as_ended(with_lost_tokens(connection, records.jobs), read_recoveries_of(connection, again))
        gpu_use = read_gpu_use(connection, jobs["job_id"].to_pylist())
        every_s = self.settings.metering.sampled_every_s
        attempts = label(replace(records, jobs=jobs), gpu_use, by_client(connection, jobs), every_s)
        named = set(filter(None, attempts["decision_id"].to_pylist()))
        known = read_input_mib(connection, list(named))
        lost = originals.lost_decisions(jobs, named - known.keys())
        self.report.decisions += write_decisions(connection, lost)
        attempts = with_input(attempts, known)
        if self.settings.hand_on is not None:
            self.settings.hand_on(*told_of(connection, attempts, self.now_s - LATELY_S))
        return upsert_attempts(connection, attempts, steps_of(attempts, records.steps))

    def quarantine(self, connection: Connection, items: Iterable[Quarantined]) -> None:
        """Store rejected input."""
        pseudonyms = self.settings.pseudonyms
        shown = items if pseudonyms is None else map(pseudonyms.quarantined, items)
        self.report.quarantined += write_quarantine(connection, shown, self.now_s).new

    def hidden_user(self, name: str) -> str:
        """Return a user's name in the form in which it is stored."""
        pseudonyms = self.settings.pseudonyms
        return name if pseudonyms is None else pseudonyms.user(name)

    def hidden_recovery(self, recovery: Recovered) -> Recovered:
        """Return the outcome of a recovery in the form in which it is stored."""
        pseudonyms = self.settings.pseudonyms
        if pseudonyms is None:
            return recovery
        user, account = pseudonyms.user(recovery.user), pseudonyms.account(recovery.account)
        return msgspec.structs.replace(recovery, user=user, account=account)

    def hidden_decision(self, decision: Decision) -> Decision:
        """Return a decision in the form in which it is stored."""
        pseudonyms = self.settings.pseudonyms
        return decision if pseudonyms is None else pseudonyms.decision(decision)


def told_of(connection: Connection, attempts: pa.Table, since_s: int) -> tuple[list[Attempt], list[Attempt]]:
    """Return attempts that ended since `since_s`: those new to the store, and those stored with other values."""
    lately = attempts_in(attempts.filter(pc.greater_equal(attempts["end_s"], since_s)))
    stored = stored_attempts(connection, [attempt.row.job_id for attempt in lately])
    new = [attempt for attempt in lately if attempt.row.key not in stored]
    return new, [attempt for attempt in lately if stored.get(attempt.row.key, attempt) != attempt]


def with_input(attempts: pa.Table, known: Mapping[str, float | None]) -> pa.Table:
    """Return attempts with the input size that their decisions saw: not in the token, which others can read."""
    column = pa.array([known.get(name) for name in attempts["decision_id"].to_pylist()], pa.float64())
    return attempts.set_column(attempts.schema.get_field_index("input_mib"), "input_mib", column)


def steps_of(attempts: pa.Table, steps: pa.Table) -> pa.Table:
    """Return steps with the keys of their attempts, as in the store's table."""
    of = {"cluster": "cluster", "job_id": "job_id", "submit_s": "submit_s", "attempt_start_s": "start_s"}
    columns = {name: pc.take(attempts[source], steps["job"]) for name, source in of.items()}
    return pa.table({**columns, **{name: steps[name] for name in steps.column_names if name != "job"}})


def by_client(connection: Connection, jobs: pa.Table) -> dict[int, ClientDecision]:
    """Return the decisions that jobs' clients carried out, by row."""
    named = originals.client_decision_ids(jobs)
    decisions = read_decisions(connection, list(named.values()))
    carried = ((row, carried_out(decisions.get(name), job_row_of(jobs, row))) for row, name in named.items())
    return {row: decision for row, decision in carried if decision is not None}
