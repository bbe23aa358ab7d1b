"""Several dumps in one command: a file that is not a dump hides nothing of the others."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from accounting.ingest.dumps import DumpReport
from accounting.store.database import open_store
from accounting.store.records import read_attempts
from tests.accounting.dumps.table import numbered, text
from tests.conftest import PATIENCE_S, Site

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
