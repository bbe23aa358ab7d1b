"""Tries quarantined input again: a newer release may understand it, or slurmdbd may now record it correctly."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Engine

from accounting.dumps.slurmdbd import SOURCE as DATABASE
from accounting.frames import Records
from accounting.gpu_spool import samples as gpu_samples
from accounting.ingest.run import Run
from accounting.ingest.spools import take_decisions
from accounting.journal.advice import SOURCE as ADVISOR
from accounting.journal.files import SOURCE as JOURNAL
from accounting.journal.files import JournalLine, Part, read_quarantined
from accounting.journal.recoveries import SOURCE as RECOVERY
from accounting.records import Quarantined
from accounting.slurm.sacct_groups import SOURCE as SACCT
from accounting.slurm.sacct_groups import cluster_of, end_of, job_of
from accounting.slurm.windows import Source
from accounting.states import WENT_ON
from accounting.store.database import writing
from accounting.store.quarantine import digests_of, forget_quarantined, take_quarantined
from accounting.store.records import write_gpu_use

Entry = tuple[str, Quarantined]
# The sources that retry() tries again; then all sources that are not file names.
TRIED = frozenset((JOURNAL, gpu_samples.SOURCE, SACCT))
NOT_FROM_FILES = TRIED | {ADVISOR, RECOVERY, DATABASE}


def retry(engine: Engine, run: Run, source: Source) -> int:
    """Try all quarantined input again and return how many entries were understood this time.

    Jobs are asked for again; lines of the journal and of the GPU spool are parsed again. Input from a file is tried
    only when that file is ingested again.
    """
    with engine.connect() as connection:
        # Not entries from files: a large file that is no dump at all may have left millions of lines.
        entries = {name: list(take_quarantined(connection, name)) for name in TRIED}
    _retry_decisions(engine, run, entries[JOURNAL])
    for entry in entries[gpu_samples.SOURCE]:
        _retry_samples(engine, run, entry)
    _retry_jobs(engine, run, source, entries[SACCT])
    with engine.connect() as connection:
        left = set[str]().union(*(digests_of(connection, name) for name in TRIED))
    return sum(digest not in left for found in entries.values() for digest, _ in found)


def _retry_decisions(engine: Engine, run: Run, entries: list[Entry]) -> None:
    """Take journal lines as if read now, in their order: a link belongs to the chain of the one before it."""
    read = [(read_quarantined(item), digest) for digest, item in entries]
    for part, digest in sorted(read, key=lambda one: _place(one[0])):
        if part.taken:
            with writing(engine) as connection:
                take_decisions(connection, run, part.taken)
                forget_quarantined(connection, [digest])


def _place(part: Part[JournalLine]) -> tuple[str, int]:
    return part.file, next((line.link.number for line in part.taken if line.link is not None), 0)


def _retry_samples(engine: Engine, run: Run, entry: Entry) -> None:
    use, _ = gpu_samples.parse_line(entry[1].line.encode(), run.now_s)
    if use is not None:
        with writing(engine) as connection:
            own = gpu_samples.of_cluster(use, run.settings.cluster)
            run.report.gpu_use += write_gpu_use(connection, [own])
            run.label_again(connection, [use.job_id])
            forget_quarantined(connection, [entry[0]])


def _retry_jobs(engine: Engine, run: Run, source: Source, entries: list[Entry]) -> None:
    """Ask again for the moments at which these jobs ended; what is still not understood is quarantined again.

    A job that Slurm no longer returns, because it was purged, stays as it is: there is no other record of it. So does
    the record of a job after a resize: only next to the record before it, which ended then, can it be recognised.
    """
    ends: dict[int, list[Entry]] = {}
    for digest, item in entries:
        end_s = end_of(item.line)
        # Those of another cluster are left to a host that can ask for them.
        if end_s and item.reason != WENT_ON and run.settings.cluster in ("", cluster_of(item.line)):
            ends.setdefault(end_s, []).append((digest, item))
    for end_s, ended in ends.items():
        # All parts at once: Slurm may be asked for each, which must not happen in the transaction, and a second's
        # jobs are few.
        parts = list(source(end_s - 1, end_s).records(None))
        told = {name for records in parts for name in _told(records)}
        with writing(engine) as connection:
            forget_quarantined(connection, [digest for digest, item in ended if job_of(item.line) in told])
            for records in parts:
                run.write(connection, records)


def _told(records: Records) -> Iterator[str]:
    """Yield the ids of the jobs in records, whether understood or not."""
    yield from map(str, records.jobs["job_id"].to_pylist())
    yield from (job_of(item.line) for item in records.quarantined)
