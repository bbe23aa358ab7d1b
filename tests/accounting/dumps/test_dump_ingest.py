"""Dumps complete what is stored, in any order, and make nothing poorer; each file keeps its own entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import Engine, func, select

from accounting.decisions.token import format_token
from accounting.dumps.jobs import DumpSettings
from accounting.ingest.dumps import DumpReport, ingest_dump
from accounting.ingest.ingesting import ingest
from accounting.ingest.run import IngestSettings
from accounting.records import Attempt, Quarantined
from accounting.slurm.sacct_records import Metering
from accounting.store import schema
from accounting.store.database import open_store, writing
from accounting.store.records import Counts, read_attempts, write_quarantine
from tests.accounting.dumps.table import COLUMNS, SETTINGS, job, numbered, step, text
from tests.accounting.ingest.recorded import NOW_S, content, recorded, settings_of
from tests.builders import DAY_S, T0, FakeSacct, decision, job_line, step_line

Lines = list[dict[str, str]]
FULL: Lines = [row for number in (1, 2, 3) for row in numbered(number)]
JOBS_ALONE = [row for row in FULL if "." not in row["JobIDRaw"]]
FEW = ("JobIDRaw", "Cluster", "State", "Submit", "Start", "End", "ElapsedRaw")
MEASURED = ("MaxRSS", "TotalCPU", "TRESUsageInMax", "TRESUsageInTot", "TRESUsageOutTot", "NTasks", "NNodes")
PLAIN = IngestSettings(sacct="", overlap_s=0, first_days=1, gpu_spool=Path("none"), journal=Path("none"))
ON_SQLITE = pytest.mark.parametrize("kind", ["sqlite"], indirect=True)


def dump(store: Engine, file: Path, written: str, dumps: DumpSettings = SETTINGS) -> DumpReport:
    """Ingest a dump of these lines."""
    file.parent.mkdir(exist_ok=True)
    file.write_text(written)
    return ingest_dump(store, PLAIN, file, dumps)


def steps_in(store: Engine) -> int:
    with store.connect() as connection:
        return int(connection.execute(select(func.count()).select_from(schema.steps)).scalar_one())


def without(*names: str) -> tuple[str, ...]:
    return tuple(name for name in COLUMNS if name not in names)


POORER = [
    text(JOBS_ALONE),
    text(JOBS_ALONE, FEW),
    text(FULL, FEW),
    text(FULL, without(*MEASURED)),
    text(FULL, without("JobName", "Partition", "ReqTRES", "AllocTRES", "ReqMem", "AdminComment", "Comment")),
    text([{**row, "ConsumedEnergyRaw": "0"} for row in FULL]),
]


def test_a_dump_without_steps_removes_none(store: Engine, tmp_path: Path) -> None:
    dump(store, tmp_path / "full.psv", text(FULL))
    before = content(store)
    assert dump(store, tmp_path / "poor.psv", text(JOBS_ALONE)).ingested.attempts == Counts(same=3)
    assert content(store) == before


@ON_SQLITE
@pytest.mark.parametrize("poorer", POORER)
def test_a_poorer_dump_removes_nothing(poorer: str, store: Engine, tmp_path: Path) -> None:
    dump(store, tmp_path / "full.psv", text(FULL))
    before = content(store)
    report = dump(store, tmp_path / "poor.psv", poorer)
    assert report.ingested.attempts == Counts(same=3)
    assert content(store) == before


@ON_SQLITE
@pytest.mark.parametrize("poorer", POORER)
def test_a_richer_dump_completes_a_poor_one(poorer: str, store: Engine, tmp_path: Path) -> None:
    dump(store, tmp_path / "poor.psv", poorer)
    assert dump(store, tmp_path / "full.psv", text(FULL)).ingested.attempts == Counts(changed=3)
    rich = open_store(f"sqlite:///{tmp_path}/rich.db", create=True)
    dump(rich, tmp_path / "full.psv", text(FULL))
    assert content(store) == content(rich)
    rich.dispose()


@ON_SQLITE
@pytest.mark.parametrize("order", [1, -1])
def test_dumps_that_each_lack_something_complete_each_other(
    order: int, store: Engine, tmp_path: Path
) -> None:
    nameless = text(FULL, without("JobName", "Partition"))
    first_step = [step(JobIDRaw="1.batch", JobID="1.batch", MaxRSS="1")]
    named = text([job(JobIDRaw="1", JobID="1"), *first_step, *JOBS_ALONE[1:]])
    for written in (nameless, named)[::order]:
        dump(store, tmp_path / "dump.psv", written)
    stored = read_attempts(store)
    assert [(one.row.job_name, one.row.partition) for one in stored] == [("align", "main")] * 3
    assert [one.use.memory_quality for one in stored] == ["sampled"] * 3
    assert steps_in(store) == 4


@ON_SQLITE
def test_what_a_dump_reports_differently_is_taken(store: Engine, tmp_path: Path) -> None:
    dump(store, tmp_path / "dump.psv", text(FULL))
    mended = [{**row, "JobName": "mended", "MaxRSS": row["MaxRSS"] and "209715200"} for row in FULL]
    assert dump(store, tmp_path / "dump.psv", text(mended)).ingested.attempts == Counts(changed=3)
    assert {one.row.job_name for one in read_attempts(store)} == {"mended"}
    with store.connect() as connection:
        assert set(connection.scalars(select(schema.steps.c.mem_max_task_mib))) == {200.0}


@ON_SQLITE
def test_the_array_of_a_task_stays_known(store: Engine, tmp_path: Path) -> None:
    task = [job(JobIDRaw="101", JobID="100_1"), step(JobIDRaw="101.0", JobID="100_1.0")]
    dump(store, tmp_path / "full.psv", text(task))
    dump(store, tmp_path / "poor.psv", text(task, without("JobID")))
    assert [one.row.display_id for one in read_attempts(store)] == ["100_1"]


@ON_SQLITE
@pytest.mark.parametrize("block_bytes", [700, 10**6])
def test_a_dump_that_contains_a_job_twice_completes_itself(
    block_bytes: int, store: Engine, tmp_path: Path
) -> None:
    settings = msgspec.structs.replace(SETTINGS, block_bytes=block_bytes)
    dump(store, tmp_path / "both.psv", text(FULL + JOBS_ALONE), settings)
    assert [one.use.memory_quality for one in read_attempts(store)] == ["sampled"] * 3
    assert steps_in(store) == 3


def live(store: Engine, tmp_path: Path, **settings: Any) -> None:
    """Ingest what sacct reports of two jobs, the first of which passed the hook."""
    rows = [
        job_line(1, T0 + DAY_S, AdminComment=format_token(decision(id="made"))),
        step_line(1, start_s=T0 + DAY_S),
        *recorded(jobs=1)[:2],
    ]
    asked = msgspec.structs.replace(settings_of(FakeSacct(tmp_path / "slurm", rows), tmp_path), **settings)
    ingest(store, asked, NOW_S)


def as_dump(
    attempt: Attempt, columns: tuple[str, ...] = COLUMNS, steps: Sequence[dict[str, str]] = ()
) -> str:
    """Return a dump of a stored attempt with these steps; it says nothing of how the attempt was measured."""
    row = attempt.row
    told = job(
        JobIDRaw=str(row.job_id), JobID=row.display_id, Cluster=row.cluster, User=row.user, Submit=str(row.submit_s),
        Start=str(row.start_s), End=str(row.end_s), ElapsedRaw=str(row.elapsed_s), AdminComment=row.admin_comment,
    )  # fmt: skip
    return text([told, *steps], columns)


@ON_SQLITE
@pytest.mark.parametrize("columns", [COLUMNS, without("AdminComment"), FEW])
def test_what_live_sacct_reported_is_left_as_it_is(
    columns: tuple[str, ...], store: Engine, tmp_path: Path
) -> None:
    metering = Metering(release="24.11", gather="jobacct_gather/cgroup cgroup/v2")
    live(store, tmp_path, metering=metering)
    before, attempt = content(store), read_attempts(store, 1)[0]
    assert (attempt.decision_id, attempt.slurm_release) == ("made", "24.11")
    report = dump(store, tmp_path / "dump.psv", as_dump(attempt, columns))
    assert report.ingested.attempts == Counts(same=1)
    assert content(store) == before


@ON_SQLITE
def test_live_sacct_replaces_what_a_dump_reported(store: Engine, tmp_path: Path) -> None:
    live(store, tmp_path)
    attempts = read_attempts(store)
    other = open_store(f"sqlite:///{tmp_path}/other.db", create=True)
    dump(other, tmp_path / "dump.psv", as_dump(attempts[0]))
    live(other, tmp_path)
    assert read_attempts(other) == attempts
    other.dispose()


@ON_SQLITE
def test_a_dump_brings_steps_that_slurm_has_purged_since(store: Engine, tmp_path: Path) -> None:
    rows = [job_line(1, T0 + DAY_S), step_line(1, "0", T0 + DAY_S)]
    told = FakeSacct(tmp_path / "slurm", rows[:1])
    ingest(store, settings_of(told, tmp_path), NOW_S)
    [purged] = read_attempts(store)
    assert purged.use.peak_mem_mib is None
    steps = [{name: rows[1].get(name, "") for name in COLUMNS}]
    written = as_dump(purged, steps=steps).replace("|align|", "|another|")
    assert dump(store, tmp_path / "dump.psv", written).ingested.attempts == Counts(changed=1)
    FakeSacct(tmp_path / "slurm", rows)
    whole = open_store(f"sqlite:///{tmp_path}/whole.db", create=True)
    ingest(whole, settings_of(told, tmp_path), NOW_S)
    [attempt], [expected] = read_attempts(store), read_attempts(whole)
    assert attempt == expected
    assert dump(store, tmp_path / "dump.psv", written).ingested.attempts == Counts(same=1)
    whole.dispose()


def aside(store: Engine) -> list[str]:
    """Return the ids of what is quarantined."""
    with store.connect() as connection:
        return sorted(line.split("|")[0] for line in connection.scalars(select(schema.quarantine.c.line)))


BROKEN = [job(State="WHAT")]


@ON_SQLITE
def test_a_file_of_the_same_name_elsewhere_does_not_touch_the_entries_of_another(
    store: Engine, tmp_path: Path
) -> None:
    dump(store, tmp_path / "d1" / "dump.psv", text(BROKEN))
    dump(store, tmp_path / "d2" / "dump.psv", text(numbered(7)))
    assert aside(store) == ["line 2: 100"]
    dump(store, tmp_path / "d2" / "dump.psv", text(BROKEN))
    assert len(aside(store)) == 2
    dump(store, tmp_path / "d2" / "dump.psv", text(numbered(100)))
    assert len(aside(store)) == 1


@ON_SQLITE
@pytest.mark.parametrize("path", [lambda file: file, lambda file: file.parent / ".." / "d1" / file.name])
def test_a_corrected_file_is_known_by_its_path_however_that_is_written(
    path: Callable[[Path], Path], store: Engine, tmp_path: Path
) -> None:
    file = tmp_path / "d1" / "dump.psv"
    for expected in (1, 0):
        assert dump(store, file, text([*BROKEN, *numbered(7)])).ingested.quarantined == expected
    dump(store, path(file), text(numbered(7)))
    assert aside(store) == []


@ON_SQLITE
def test_entries_that_an_earlier_release_kept_by_name_are_forgotten(store: Engine, tmp_path: Path) -> None:
    with writing(store) as connection:
        write_quarantine(connection, [Quarantined(line="line 2: 100|", reason="old", source="dump.psv")], T0)
    dump(store, tmp_path / "dump.psv", text(numbered(7)))
    assert aside(store) == []
