"""Records that reach slurmdbd hours after their jobs ended: some days are read again once a day."""

from pathlib import Path

import msgspec
import pytest
from sqlalchemy import Engine

from accounting.errors import SlurmError
from accounting.ingest.ingesting import SACCT, SLURM_BEGAN_S, ingest
from accounting.ingest.run import IngestSettings
from accounting.ingest.window_marks import late_since_s
from accounting.slurm.sacct_groups import LABELS
from accounting.slurm.windows import DAY_S, HOUR_S
from accounting.store.records import windows_read
from tests.accounting.ingest.recorded import NOW_S, settings_of
from tests.builders import FakeSacct, SacctRow, job_line

DAYS = 3


def site(tmp_path: Path, rows: list[SacctRow]) -> tuple[IngestSettings, FakeSacct]:
    fake = FakeSacct(tmp_path / "slurm", rows)
    return msgspec.structs.replace(settings_of(fake, tmp_path), late_days=DAYS), fake


def begun(store: Engine, settings: IngestSettings, fake: FakeSacct, now_s: int) -> int:
    """Ingest, and return how many hours before now the reading began."""
    fake.fail_at(None)
    ingest(store, settings, now_s)
    return (now_s - min(begin_s for begin_s, _ in fake.calls())) // HOUR_S


def test_a_record_that_comes_hours_late_is_read_within_a_day(store: Engine, tmp_path: Path) -> None:
    in_time, late = job_line(1, NOW_S - 1000), job_line(2, NOW_S - 10 * HOUR_S)
    settings, _ = site(tmp_path, [in_time])
    assert ingest(store, settings, NOW_S).attempts.new == 1
    # slurmctld passes on what it had kept.
    site(tmp_path, [in_time, late])
    assert ingest(store, settings, NOW_S + HOUR_S).attempts.new == 0
    assert ingest(store, settings, NOW_S + DAY_S).attempts.new == 1


def test_days_are_read_again_once_a_day(store: Engine, tmp_path: Path) -> None:
    settings, fake = site(tmp_path, [])
    assert begun(store, settings, fake, NOW_S) == settings.first_days * 24
    day = [begun(store, settings, fake, NOW_S + hours * HOUR_S) for hours in range(6, 54, 6)]
    assert day == [7, 7, 7, DAYS * 24, 7, 7, 7, DAYS * 24]


@pytest.mark.parametrize(("first_days", "since_s"), [(36_500, None), (30, 0), (30, -DAY_S)])
def test_nothing_is_asked_of_the_time_before_slurm(
    store: Engine, tmp_path: Path, first_days: int, since_s: int | None
) -> None:
    settings, fake = site(tmp_path, [job_line(1, SLURM_BEGAN_S + HOUR_S)])
    settings = msgspec.structs.replace(settings, first_days=first_days)
    assert ingest(store, settings, SLURM_BEGAN_S + DAY_S, since_s).attempts.new == 1
    assert min(begin_s for begin_s, _ in fake.calls()) == SLURM_BEGAN_S


def test_a_mark_of_a_clock_that_was_ahead_goes_back_with_it(store: Engine, tmp_path: Path) -> None:
    in_time, late = job_line(1, NOW_S - 10 * HOUR_S), job_line(2, NOW_S + 20 * HOUR_S)
    settings, _ = site(tmp_path, [in_time])
    settings = msgspec.structs.replace(settings, late_days=0)
    ingest(store, settings, NOW_S + 2 * DAY_S)
    site(tmp_path, [in_time, job_line(3, NOW_S - 5 * HOUR_S)])
    assert ingest(store, settings, NOW_S).attempts.new == 1, "all since the last end that is known"
    with store.connect() as connection:
        marks = [windows_read(connection, source) for source in (SACCT, LABELS)]
    assert [[*mark.values()] for mark in marks] == [[NOW_S], [NOW_S]]
    # Nobody reads until the time of the mark is over.
    site(tmp_path, [in_time, late])
    assert ingest(store, settings, NOW_S + 3 * DAY_S).attempts.new == 1


def test_a_mark_that_was_ahead_hides_nothing_after_reading_from_later_on(
    store: Engine, tmp_path: Path
) -> None:
    known = job_line(1, NOW_S - 10 * HOUR_S)
    settings, _ = site(tmp_path, [known])
    settings = msgspec.structs.replace(settings, late_days=0)
    ingest(store, settings, NOW_S + 2 * HOUR_S, since_s=NOW_S - 11 * HOUR_S)
    site(tmp_path, [known, job_line(2, NOW_S - 6 * HOUR_S), job_line(3, NOW_S - 1800)])
    assert ingest(store, settings, NOW_S, since_s=NOW_S - HOUR_S).attempts.new == 1
    assert ingest(store, settings, NOW_S + HOUR_S).attempts.new == 1


def test_an_end_ahead_of_the_clock_or_of_another_cluster_is_not_where_reading_goes_on(
    store: Engine, tmp_path: Path
) -> None:
    known, ahead, unread, others = (
        {**job_line(number, NOW_S + hours * HOUR_S), "Cluster": cluster}
        for number, hours, cluster in ((1, -10, "alpha"), (2, 1, "alpha"), (3, -5, "alpha"), (4, -1, "beta"))
    )
    settings, _ = site(tmp_path, [known, ahead])
    alpha, beta = (
        msgspec.structs.replace(settings, late_days=0, cluster=name, first_days=1)
        for name in ("alpha", "beta")
    )
    ingest(store, alpha, NOW_S + 2 * HOUR_S)
    site(tmp_path, [others])
    ingest(store, beta, NOW_S)
    site(tmp_path, [known, unread])
    assert ingest(store, alpha, NOW_S).attempts.new == 1


def test_reading_again_stays_due_where_it_failed(store: Engine, tmp_path: Path) -> None:
    settings, fake = site(tmp_path, [])
    ingest(store, settings, NOW_S)
    fake.fail_at(2)
    with pytest.raises(SlurmError):
        ingest(store, settings, NOW_S + DAY_S)
    assert begun(store, settings, fake, NOW_S + DAY_S + HOUR_S) == DAYS * 24
    assert begun(store, settings, fake, NOW_S + DAY_S + 2 * HOUR_S) == 2


def test_a_run_with_a_given_beginning_reads_from_there(store: Engine, tmp_path: Path) -> None:
    settings, fake = site(tmp_path, [])
    ingest(store, settings, NOW_S)
    fake.fail_at(None)
    ingest(store, settings, NOW_S + 2 * DAY_S, since_s=NOW_S + DAY_S)
    assert min(begin_s for begin_s, _ in fake.calls()) == NOW_S + DAY_S
    assert begun(store, settings, fake, NOW_S + 2 * DAY_S) == DAYS * 24


@pytest.mark.parametrize(
    ("late_s", "days", "expected"),
    [
        (None, 3, NOW_S - 3 * DAY_S),
        (NOW_S - DAY_S, 3, NOW_S - 3 * DAY_S),
        (NOW_S - DAY_S + 1, 3, None),
        (NOW_S, 3, None),
        (NOW_S + 1, 3, NOW_S - 3 * DAY_S),  # the clock was ahead
        (None, 0, None),
        (NOW_S - 9 * DAY_S, 0, None),
    ],
)
def test_late_records_are_due_once_a_day(late_s: int | None, days: int, expected: int | None) -> None:
    assert late_since_s(days, NOW_S, late_s) == expected
