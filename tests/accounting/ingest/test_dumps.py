"""Several dumps in one command: a file that is not a dump hides nothing of the others."""

from __future__ import annotations

import json
from collections import Counter

import msgspec
import pytest
from sqlalchemy import Engine

from accounting.ingest.dumps import DumpReport, shifted_jobs
from accounting.records import JobRow
from accounting.slurm.windows import HOUR_S
from accounting.store.database import open_store
from accounting.store.records import read_attempts
from tests.accounting.dumps.table import numbered, text
from tests.builders import T0, attempt, job_row, records_of
from tests.conftest import PATIENCE_S, Site
from tests.stores import write_attempts

CUT_OFF = text([*numbered(3), *numbered(4)])[:-60]


def ingested(site: Site, **files: str) -> tuple[int, str, str]:
    """Ingest dumps by name in one command; return its status, and what it wrote to stdout and stderr."""
    options = list[str]()
    for name, written in files.items():
        file = site.folder / f"{name}.psv"
        file.write_text(written)
        options += ["--from-file", str(file)]
    command = site.start("ingest", *options, "--zone", "UTC", "--format", "json")
    out, err = command.communicate(timeout=PATIENCE_S)
    return command.returncode, out.decode(), err.decode()


@pytest.mark.parametrize(
    ("shifted", "differ"), [({}, False), ({3600: 1, 0: 1}, False), ({3600: 2, 0: 1}, True), ({0: 3}, False)]
)
def test_zones_differ_if_that_explains_most_of_the_shifted_jobs(
    shifted: dict[int, int], differ: bool
) -> None:
    assert DumpReport(shifted=Counter(shifted)).zones_differ is differ


def at(job_id: int, submit_s: int, waited_s: int | None = 10) -> JobRow:
    start_s = 0 if waited_s is None else submit_s + waited_s
    return job_row(job_id=job_id, submit_s=submit_s, start_s=start_s)


def test_a_job_counts_as_shifted_by_the_nearest_difference_of_time_zones(store: Engine) -> None:
    stored = [
        at(1, T0),
        at(2, T0 + HOUR_S),
        at(3, T0 + HOUR_S, None),
        *(at(4, T0 + shift_s) for shift_s in (-2 * HOUR_S, HOUR_S)),
        at(5, T0 + HOUR_S, 11),
        at(6, T0 + HOUR_S, None),
        at(7, T0 + HOUR_S + 1),
        at(8, T0 + 27 * HOUR_S),
    ]
    with store.begin() as connection:
        write_attempts(connection, [msgspec.structs.replace(attempt(), row=row) for row in stored])
        told = [at(number, T0, None if number == 3 else 10) for number in range(1, 10)]
        jobs = records_of((row, ()) for row in told).jobs
        assert shifted_jobs(connection, jobs) == {HOUR_S: 3, 0: 4}, "1 is the same, 9 is new"


@pytest.mark.parametrize("last", [text(numbered(2)), CUT_OFF])
def test_files_that_are_no_dumps_are_reported_and_the_others_read(last: str, site: Site) -> None:
    code, out, err = ingested(site, full=text(numbered(1)), empty="", headless="1|2\n", last=last)
    assert code == 1
    assert "empty.psv is empty; make the dump again" in err
    assert "headless.psv: the first line does not name columns" in err
    counts = {row["what"]: row["new"] for row in json.loads(out)}
    assert (counts["attempts"], counts["steps"]) == (2, 2)
    engine = open_store(site.config.store.url)
    assert [one.row.job_id for one in read_attempts(engine)] == [1, 3 if last == CUT_OFF else 2]
    engine.dispose()


def test_where_no_file_is_a_dump_each_is_reported(site: Site) -> None:
    code, out, err = ingested(site, empty="", headless="1|2\n")
    assert (code, out) == (1, "")
    assert "empty.psv is empty" in err
    assert "rightsizer: headless.psv: the first line does not name columns" in err


def test_a_single_dump_that_is_cut_off_is_a_problem_and_no_failure(site: Site) -> None:
    assert ingested(site, last=CUT_OFF)[0] == 3
