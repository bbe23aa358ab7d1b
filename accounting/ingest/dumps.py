"""Reads dumps into the store, and reports what a file lacks, what was rejected, and jobs stored at shifted times."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import pyarrow as pa
from sqlalchemy import Connection, Engine

from accounting.dumps.jobs import DumpSettings
from accounting.dumps.read import read_dump
from accounting.errors import DumpError
from accounting.frames import Records
from accounting.ingest.ingesting import ingest_records
from accounting.ingest.run import IngestReport, IngestSettings
from accounting.records import Quarantined
from accounting.store.database import writing
from accounting.store.quarantine import digest_of, digests_of_file, forget_quarantined
from accounting.store.records import known_attempts

# Time zones are multiples of a quarter of an hour apart, and at most this far.
ZONE_STEP_S = 900
MOST_SHIFT_S = 26 * 3600


@dataclass
class DumpReport:
    """What one file brought. `missing` and `cut_off` continue a sentence after its name; `kept_aside` counts rejects.

    `shifted` counts the jobs that the store has only at other times, by how much later those are (seconds); 0 if no
    difference between time zones explains it.
    """

    ingested: IngestReport = field(default_factory=IngestReport)
    missing: list[str] = field(default_factory=list)
    cut_off: str = ""
    kept_aside: int = 0
    shifted: Counter[int] = field(default_factory=Counter)

    @property
    def zones_differ(self) -> bool:
        """Whether most of these jobs are stored a time-zone difference away: a few may be so by chance."""
        return self.shifted.total() > 2 * self.shifted[0]


def ingest_dump(
    engine: Engine,
    settings: IngestSettings,
    file: Path,
    dumps: DumpSettings,
    progress: Callable[[float, int], None] = lambda _done, _jobs: None,
) -> DumpReport:
    """Write the jobs of a file, and forget what an earlier reading of it rejected if this one understands it.

    A file is identified by its path: entries of another file with the same name stay. Raises DumpError if it is no
    dump.
    """
    report, seen, path = DumpReport(), set[str](), str(file.resolve())
    with engine.connect() as connection:
        before = digests_of_file(connection, file.name, path)

    def parts() -> Iterator[Records]:
        for records in _as_far_as_it_goes(read_dump(file, dumps), report):
            report.missing.extend(records.missing)
            report.cut_off = report.cut_off or records.cut_off
            report.kept_aside += len(records.quarantined)
            kept = tuple(msgspec.structs.replace(one, path=path) for one in records.quarantined)
            seen.update(_digests(settings, kept))
            with engine.connect() as connection:
                report.shifted += shifted_jobs(connection, records.jobs)
            yield replace(records, quarantined=kept)

    report.ingested = ingest_records(engine, settings, dumps.now_s, parts(), progress)
    if not report.cut_off:  # what lies beyond the cut may be unchanged
        with writing(engine) as connection:
            forget_quarantined(connection, before - seen)
    return report


def _as_far_as_it_goes(parts: Iterable[Records], report: DumpReport) -> Iterator[Records]:
    """Yield the parts of a dump; if one cannot be read, and earlier ones could, end there."""
    any_read = False
    try:
        for records in parts:
            any_read = True
            yield records
    except DumpError as error:
        if not any_read:
            raise
        report.cut_off = f"cannot be read to its end: {error}"


def _digests(settings: IngestSettings, items: Iterable[Quarantined]) -> Iterator[str]:
    """Yield the digests by which the store knows these entries."""
    shown = items if settings.pseudonyms is None else map(settings.pseudonyms.quarantined, items)
    return map(digest_of, shown)


def shifted_jobs(connection: Connection, jobs: pa.Table) -> Counter[int]:
    """Count jobs that the store has only at other times, by the keys of DumpReport.shifted."""
    stored = defaultdict[tuple[str, int], set[tuple[int, int]]](set)
    for cluster, job_id, submit_s, start_s in known_attempts(connection, jobs["job_id"].to_pylist()):
        stored[cluster, job_id].add((submit_s, start_s))
    if not stored:
        return Counter()
    keys = ("cluster", "job_id", "submit_s", "start_s")
    rows = zip(*(jobs[key].to_pylist() for key in keys), strict=True)
    others = (
        (submit_s, start_s, stored.get((name, job_id), set())) for name, job_id, submit_s, start_s in rows
    )
    return Counter(
        _shift_s(submit_s, start_s, times)
        for submit_s, start_s, times in others
        if times and (submit_s, start_s) not in times
    )


def _shift_s(submit_s: int, start_s: int, times: Iterable[tuple[int, int]]) -> int:
    """Return how much later (s) the times are that look like these in another time zone; 0 if none do."""
    shifts_s = (
        other_s - submit_s for other_s, begun_s in times if _waits_alike(submit_s, start_s, other_s, begun_s)
    )
    zones_s = (one for one in shifts_s if one % ZONE_STEP_S == 0 and 0 < abs(one) <= MOST_SHIFT_S)
    return min(zones_s, key=abs, default=0)


def _waits_alike(submit_s: int, start_s: int, other_submit_s: int, other_start_s: int) -> bool:
    """Whether two jobs waited equally long, or neither started (0)."""
    if not start_s or not other_start_s:
        return start_s == other_start_s
    return start_s - submit_s == other_start_s - other_submit_s
