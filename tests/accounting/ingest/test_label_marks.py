"""Labels stay those of an earlier release until their jobs are read again; the store knows up to when."""

from pathlib import Path

import pytest
from sqlalchemy import Engine

from accounting.ingest.ingesting import SACCT, fetched_answer, ingest
from accounting.ingest.label_marks import OUTDATED, outdated_until_s, still_outdated_s
from accounting.ingest.run import IngestReport, IngestSettings
from accounting.slurm import sacct_groups
from accounting.slurm.sacct_records import Metering
from accounting.slurm.windows import Fetched
from accounting.store.records import windows_read
from tests.builders import DAY_S, T0, answer_of, job_line

# One job ended on each of three days.
ROWS = [job_line(day + 1, T0 + day * DAY_S, 100) for day in range(3)]
NOW_S = T0 + 3 * DAY_S


@pytest.mark.parametrize(
    ("read_s", "labelled_s", "marked_s", "outdated_s"),
    [
        (None, None, None, None),
        (50, 50, None, None),
        (50, 50, 0, None),
        (50, None, None, 50),  # read by a release that kept no such mark, or with other labels
        (50, 40, None, 50),  # … or by one to which the site went back for a while
        (50, 50, 30, 30),
        (50, None, 30, 50),
    ],
)
def test_jobs_read_by_an_earlier_release_are_outdated(
    read_s: int | None, labelled_s: int | None, marked_s: int | None, outdated_s: int | None
) -> None:
    assert outdated_until_s(read_s, labelled_s, marked_s) == outdated_s


@pytest.mark.parametrize(
    ("begin_s", "end_s", "earliest_s", "left_s"),
    [
        (20, 49, 20, 50),  # the windows have not come that far
        (20, 50, 20, 0),
        (20, 90, 10, 20),
        (60, 90, 10, 50),
        (20, 50, None, 0),
    ],
)
def test_jobs_read_again_are_no_longer_outdated(
    begin_s: int, end_s: int, earliest_s: int | None, left_s: int
) -> None:
    assert still_outdated_s(50, begin_s, end_s, earliest_s) == left_s


def run(store: Engine, now_s: int, since_s: int | None = None, most_windows: int = 99) -> IngestReport:
    """Ingest what has ended by then, in so many windows at most."""
    asked = list[int]()

    def source(begin_s: int, end_s: int) -> Fetched:
        asked.append(begin_s)
        rows = [row for day, row in enumerate(ROWS) if T0 + day * DAY_S + 100 >= begin_s]
        return fetched_answer(answer_of(rows), end_s, Metering())

    settings = IngestSettings(sacct="", overlap_s=3600, first_days=3, gpu_spool=Path(), journal=Path())
    return ingest(store, settings, now_s, since_s, source=source, stopped=lambda: len(asked) == most_windows)


def outdated_s(store: Engine) -> int | None:
    with store.connect() as connection:
        marks = (windows_read(connection, name).get("") for name in (SACCT, sacct_groups.LABELS, OUTDATED))
        return outdated_until_s(*marks)


@pytest.fixture
def upgraded(store: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """A store of which two days were read by an earlier release."""
    run(store, T0 + 2 * DAY_S)
    assert outdated_s(store) is None
    for module in ("slurm.sacct_groups", "ingest.ingesting"):
        monkeypatch.setattr(f"accounting.{module}.LABELS", "labels-of-later")
    assert outdated_s(store) == T0 + 2 * DAY_S
    return store


def test_a_plain_run_after_an_upgrade_leaves_what_it_did_not_read_outdated(upgraded: Engine) -> None:
    for _ in range(2):
        run(upgraded, NOW_S)
        assert outdated_s(upgraded) == T0 + 2 * DAY_S - 3600


def test_everything_is_read_again_once_and_nothing_stays_outdated(upgraded: Engine) -> None:
    run(upgraded, NOW_S)
    run(upgraded, NOW_S, T0 + DAY_S)
    assert outdated_s(upgraded) == T0 + DAY_S
    run(upgraded, NOW_S, T0)
    assert outdated_s(upgraded) is None
    run(upgraded, NOW_S + 60)
    assert outdated_s(upgraded) is None


def test_a_run_that_was_cut_off_leaves_the_days_outdated(upgraded: Engine) -> None:
    run(upgraded, NOW_S, T0, most_windows=1)
    assert outdated_s(upgraded) == T0 + 2 * DAY_S


def test_a_run_that_leaves_a_gap_marks_nothing(upgraded: Engine) -> None:
    run(upgraded, NOW_S, NOW_S - 60)
    assert outdated_s(upgraded) == T0 + 2 * DAY_S
