"""Reads journals and the GPU spool into the store: each file from where it was last read to, one transaction a part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from sqlalchemy import Connection, Engine

from accounting.gpu_spool.files import others_may_write, read_spool_on, spool_offsets
from accounting.gpu_spool.owners import owners_of
from accounting.gpu_spool.samples import parse_line
from accounting.ingest.run import Run
from accounting.journal import files as journal
from accounting.journal import recoveries
from accounting.journal.advice import CYCLES, read_cycles
from accounting.journal.files import JournalLine, JournalLink
from accounting.journal.marks import Mark, offsets_of
from accounting.records import GpuUse
from accounting.store.advice import write_cycles
from accounting.store.audit import origin_of, write_links, write_recoveries
from accounting.store.database import writing
from accounting.store.recorded import jobs_naming
from accounting.store.records import read_gpu_use, read_marks, write_gpu_use, write_journalled, write_mark


def ingest_spools(engine: Engine, run: Run) -> None:
    """Read new lines of the journals and the GPU spool; attempts already stored get the use of their GPUs."""
    with engine.connect() as connection:
        marks = read_marks(connection)
    ingest_decisions(engine, run, run.settings.journal, marks)
    if run.settings.advisor is not None:
        ingest_cycles(engine, run, run.settings.advisor, marks)
    if run.settings.recovery is not None:
        ingest_recoveries(engine, run, run.settings.recovery, marks)
    ingest_gpu_use(engine, run, run.settings.gpu_spool, marks)


def ingest_decisions(engine: Engine, run: Run, folder: Path, marks: Mapping[str, Mark]) -> None:
    """Read new lines of the decision journal."""
    offsets = offsets_of(folder.glob(journal.PATTERN), marks)
    for part in journal.read_journal(folder, offsets):
        with writing(engine) as connection:
            take_decisions(connection, run, part.taken)
            run.quarantine(connection, part.quarantined)
            write_mark(connection, part.file, folder / part.file, part.read_bytes)


def take_decisions(connection: Connection, run: Run, lines: Sequence[JournalLine]) -> None:
    """Write the journal's decisions and the links of their lines; label attempts that were stored earlier again.

    A login node's journal may lie in a shared folder; another controller's is read by its own ingest.
    """
    hidden = [run.hidden_decision(line.decision) for line in lines]
    written = write_journalled(connection, hidden)
    run.report.decisions += written
    if written.new or written.changed:
        run.label_again(connection, jobs_naming(connection, hidden))
    links = [line.link for line in lines if line.link is not None]
    write_links(connection, of_their_chain(connection, links, run.settings.reader))


def of_their_chain(
    connection: Connection, links: Sequence[JournalLink], reader: str
) -> Sequence[JournalLink]:
    """Return the links of a file, in their order, with the chain that they continue and the reader's name."""
    if not links:
        return links
    origin = origin_of(connection, links[0])
    return [msgspec.structs.replace(link, origin=origin, reader=reader) for link in links]


def ingest_cycles(engine: Engine, run: Run, folder: Path, marks: Mapping[str, Mark]) -> None:
    """Read new lines of the advisor's journal."""
    for part in read_cycles(folder, offsets_of(folder.glob(CYCLES), marks)):
        with writing(engine) as connection:
            run.report.cycles += write_cycles(connection, part.taken)
            run.quarantine(connection, part.quarantined)
            write_mark(connection, part.file, folder / part.file, part.read_bytes)


def ingest_recoveries(engine: Engine, run: Run, folder: Path, marks: Mapping[str, Mark]) -> None:
    """Read new lines of recovery's journal."""
    offsets = offsets_of(folder.glob(recoveries.FILES), marks)
    for part in recoveries.read_recoveries(folder, offsets):
        with writing(engine) as connection:
            run.report.recoveries += write_recoveries(connection, map(run.hidden_recovery, part.taken))
            run.quarantine(connection, part.quarantined)
            write_mark(connection, part.file, folder / part.file, part.read_bytes)


def ingest_gpu_use(engine: Engine, run: Run, folder: Path, marks: Mapping[str, Mark]) -> None:
    """Read new lines of the GPU spool."""
    with engine.connect() as connection:
        offsets = spool_offsets(folder, marks, lambda line: is_known_use(connection, line))
    owners = owners_of(engine, (folder, run.settings.journal), run.hidden_user)
    for part in read_spool_on(folder, offsets, run.now_s, run.settings.cluster, owners):
        with writing(engine) as connection:
            run.report.gpu_use += write_gpu_use(connection, part.uses)
            run.quarantine(connection, part.quarantined)
            write_mark(connection, part.file, part.path, part.read_bytes)
            run.label_again(connection, sorted({use.job_id for use in part.uses}))


def ingest_users_gpu_use(engine: Engine, run: Run) -> None:
    """Read new lines of a GPU spool that users can write to: their lines waited until sacct knew their jobs."""
    folder = run.settings.gpu_spool
    if others_may_write(folder):
        with engine.connect() as connection:
            marks = read_marks(connection)
        ingest_gpu_use(engine, run, folder, marks)


def is_known_use(connection: Connection, line: bytes) -> bool:
    """Whether the store has the use in a line of the GPU spool."""
    use, _ = parse_line(line)
    return use is not None and any(
        _holds(one, use) for one in read_gpu_use(connection, [use.job_id]).get(use.job_id, ())
    )


def _holds(stored: GpuUse, use: GpuUse) -> bool:
    """Whether a stored use includes another one."""
    same = ("node", "gpu", "instance", "source")
    return (
        stored.first_s <= use.first_s <= use.last_s <= stored.last_s
        and stored.mem_max_mib >= use.mem_max_mib
        and all(getattr(stored, name) == getattr(use, name) for name in same)
    )
