"""slurmdbd purges steps long before their jobs (PurgeStepAfter); steps in the store stay."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from accounting.ingest.ingesting import ingest, source_of
from accounting.ingest.retry import retry
from accounting.ingest.run import IngestReport, Run
from accounting.slurm import sacct_groups
from accounting.store.records import Counts, read_attempts
from tests.accounting.ingest.recorded import NOW_S, content, recorded, settings_of
from tests.builders import T0, FakeSacct, SacctRow, job_line, step_line

LARGE = {
    "MaxRSS": str(5 * 1024**3),
    **dict.fromkeys(("TRESUsageInMax", "TRESUsageInTot"), f"cpu=02:00:00,mem={5 * 1024**3}"),
}


def is_step(row: SacctRow) -> bool:
    return "." in row["JobIDRaw"]


def asked(store: Engine, tmp_path: Path, rows: list[SacctRow]) -> IngestReport:
    """Ingest the whole time of a slurmdbd that holds these rows."""
    return ingest(store, settings_of(FakeSacct(tmp_path / "slurm", rows), tmp_path), NOW_S, since_s=T0)


def in_turn() -> list[SacctRow]:
    """A job whose first step needed most."""
    return [
        job_line(1, T0, 10_800, ConsumedEnergyRaw="7200000"),
        step_line(1, "0", T0, 3600, ConsumedEnergyRaw="6000000", **LARGE),
        step_line(1, "1", T0 + 7200, 3600, ConsumedEnergyRaw="1200000"),
    ]


def test_a_job_whose_steps_were_purged_stays_as_it_was_measured(store: Engine, tmp_path: Path) -> None:
    rows = recorded()
    asked(store, tmp_path, rows)
    attempts, steps = read_attempts(store), content(store)["steps"]
    purged = [row for row in rows if not is_step(row)]
    # Only the digest of the record changes, by which the record is then known again.
    for counts in (Counts(changed=72), Counts(same=72)):
        assert asked(store, tmp_path, purged).attempts == counts
    assert (read_attempts(store), content(store)["steps"]) == (attempts, steps)


def test_one_step_of_many_may_be_purged(store: Engine, tmp_path: Path) -> None:
    rows = in_turn()
    asked(store, tmp_path, rows)
    [before] = read_attempts(store)
    assert before.use.peak_mem_mib == 5 * 1024
    # A job's energy is the sum of the steps that are left.
    asked(store, tmp_path, [{**rows[0], "ConsumedEnergyRaw": "0"}, rows[2]])
    assert read_attempts(store) == [before]


def test_what_slurm_reports_differently_of_a_purged_job_is_taken(store: Engine, tmp_path: Path) -> None:
    rows = in_turn()
    asked(store, tmp_path, rows)
    renamed = {**rows[0], "Comment": "corrected"}
    asked(store, tmp_path, [renamed, {**rows[2], "MaxRSS": str(1024**3)}])
    [attempt] = read_attempts(store)
    assert (attempt.row.comment, attempt.use.peak_mem_mib) == ("corrected", 5 * 1024)


def test_changed_labels_are_derived_from_purged_steps_too(
    store: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an upgrade, with `ingest --since`."""
    rows = in_turn()
    asked(store, tmp_path, rows)
    [before] = read_attempts(store)
    monkeypatch.setattr(sacct_groups, "LABELS", "labels-next")
    assert asked(store, tmp_path, rows[:1]).steps == Counts(same=2)
    assert read_attempts(store) == [before]


def test_another_attempt_of_the_job_keeps_its_own_steps(store: Engine, tmp_path: Path) -> None:
    first = [job_line(1, T0, 50, State="REQUEUED"), step_line(1, "batch", T0, 50, **LARGE)]
    asked(store, tmp_path, first)
    second = [job_line(1, T0 + 1000, 50), step_line(1, "batch", T0 + 1000, 50)]
    asked(store, tmp_path, [first[0], *second])
    peaks: list[Any] = [one.use.peak_mem_mib for one in read_attempts(store)]
    assert sorted(peaks) == [200, 5 * 1024]


def test_quarantined_jobs_that_are_tried_again_lose_no_step(store: Engine, tmp_path: Path) -> None:
    rows = in_turn()
    asked(store, tmp_path, rows)
    [before] = read_attempts(store)
    asked(store, tmp_path, [{**rows[0], "State": "LAUNCH_FAILED"}, *rows[1:]])
    settings = settings_of(FakeSacct(tmp_path / "slurm", rows[:1]), tmp_path)
    run = Run(settings, NOW_S)
    assert retry(store, run, source_of(settings, NOW_S)) == 1
    assert read_attempts(store) == [before]
