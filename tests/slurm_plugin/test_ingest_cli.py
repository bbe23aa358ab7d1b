"""`rightsizer ingest`: dumps, what was not taken, trying again, forgetting, pseudonyms."""

import gzip
import json
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from accounting.decisions import encode_decision
from accounting.records import Attempt
from accounting.store.database import open_store
from accounting.store.records import read_attempts
from tests.builders import DAY_S, FakeSacct, SacctRow, decision, job_line, step_line
from tests.conftest import Site
from tests.slurm_plugin.conftest import Run

DUMP = """\
JobID|User|Account|Partition|QOS|JobName|State|Submit|Start|End|ReqTRES|AllocTRES|MaxRSS|TotalCPU|NNodes
7|alice|phys|main|normal|fit|COMPLETED|2025-01-10T10:00:00|2025-01-10T10:00:05|2025-01-10T10:02:05|cpu=8,mem=8000M|cpu=8,mem=8000M|||1
7.batch||phys|||batch|COMPLETED|2025-01-10T10:00:05|2025-01-10T10:00:05|2025-01-10T10:02:05||cpu=8,mem=8000M|204800K|01:30.000|1
8|bob|phys|main|normal|a|b|COMPLETED|2025-01-10T10:00:00|2025-01-10T10:00:05|2025-01-10T10:02:05|cpu=8|cpu=8|||1
"""


def recent(numbers: Iterable[int] = range(1, 6)) -> list[SacctRow]:
    """Jobs that ended yesterday."""
    first_s = int(time.time()) - DAY_S
    return [
        row
        for number in numbers
        for row in (
            job_line(number, first_s + 100 * number),
            step_line(number, start_s=first_s + 100 * number),
        )
    ]


def stored(site: Site) -> list[Attempt]:
    engine = open_store(site.config.store.url)
    try:
        return read_attempts(engine)
    finally:
        engine.dispose()


def counts(out: str) -> dict[str, dict[str, int]]:
    return {row["what"]: row for row in json.loads(out)}


@pytest.mark.parametrize("packed", [False, True])
def test_a_dump_comes_in_and_says_what_it_lacks(packed: bool, run: Run, site: Site) -> None:
    file = site.folder / ("dump.psv.gz" if packed else "dump.psv")
    file.write_bytes(gzip.compress(DUMP.encode()) if packed else DUMP.encode())
    first = run("ingest", "--from-file", str(file), "--zone", "UTC", "--cluster", "alpha", "--format", "json")
    assert first.code == 0, first.err
    assert counts(first.out)["attempts"]["new"] == 1
    assert "lacks" in first.err
    assert "1 entries were not understood; `rightsizer ingest --quarantined` shows them" in first.err
    again = run("ingest", "--from-file", str(file), "--zone", "UTC", "--cluster", "alpha", "--format", "json")
    assert counts(again.out)["attempts"] == {"what": "attempts", "new": 0, "changed": 0, "same": 1}
    [attempt] = stored(site)
    assert (attempt.row.job_id, attempt.row.cluster, attempt.row.start_s) == (7, "alpha", 1736503205)
    assert (attempt.use.peak_mem_mib, attempt.asked_cpus) == (200.0, 8)
    [shown] = json.loads(run("ingest", "--quarantined", "--format", "json").out)
    assert (shown["source"], shown["entries"]) == (file.name, 1)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty|no heading|no dump"),
        (b"State|Nothing\nCOMPLETED|1\n", "Submit"),
        (gzip.compress(DUMP.encode())[:-20], "cut off|not whole|truncated|damaged"),
        (DUMP.encode("utf-16"), "UTF-16"),
    ],
)
def test_a_file_that_is_no_dump_is_one_line(content: bytes, said: str, run: Run, site: Site) -> None:
    import re

    file = site.folder / "dump.psv.gz"
    file.write_bytes(content)
    ran = run("ingest", "--from-file", str(file), "--zone", "UTC")
    if ran.code == 0:  # what came before a cut is kept
        [shown] = json.loads(run("ingest", "--quarantined", "--format", "json").out)
        assert re.search(said, shown["reason"])
    else:
        assert ran.code == 1
        assert re.search(said, ran.err)
        assert "Traceback" not in ran.err


def test_a_zone_that_is_none_is_a_wrong_use(run: Run, site: Site) -> None:
    file = site.folder / "dump.psv"
    file.write_text(DUMP)
    ran = run("ingest", "--from-file", str(file), "--zone", "Europe/Nowhere")
    assert ran.code == 2
    assert "write it as in Europe/Berlin" in ran.err


def test_what_was_not_taken_is_tried_again(run: Run, site: Site) -> None:
    rows = recent([1, 2])
    broken = [{**row, "Start": str(2**40)} if row["JobIDRaw"].startswith("2") else row for row in rows]
    site.configure(accounting={"sacct": FakeSacct(site.folder / "slurm", broken).command})
    journal = Path(site.config.service.journal)
    journal.mkdir()
    (journal / "decisions-20260101.jsonl").write_bytes(b"rubbish\n" + encode_decision(decision(id="a")))
    first = run("ingest", "--format", "json")
    assert (counts(first.out)["attempts"]["new"], counts(first.out)["decisions"]["new"]) == (1, 1)
    shown = json.loads(run("ingest", "--quarantined", "--format", "json").out)
    assert {(row["source"], row["entries"]) for row in shown} == {("sacct", 1), ("journal", 1)}
    still = run("ingest", "--retry", "--format", "json")
    assert "0 entries of the quarantine were understood this time" in still.err
    FakeSacct(site.folder / "slurm", rows)
    mended = run("ingest", "--retry", "--format", "json")
    assert "1 entries of the quarantine were understood this time" in mended.err
    assert counts(mended.out)["attempts"]["new"] == 1
    assert [one.row.job_id for one in stored(site)] == [1, 2]
    [left] = json.loads(run("ingest", "--quarantined", "--format", "json").out)
    assert left["source"] == "journal"


def test_what_ended_long_ago_is_forgotten(run: Run, site: Site) -> None:
    old_s = int(time.time()) - 20 * DAY_S
    rows = [job_line(9, old_s), step_line(9, start_s=old_s), *recent([1])]
    site.configure(accounting={"sacct": FakeSacct(site.folder / "slurm", rows).command})
    run("ingest")
    assert [one.row.job_id for one in stored(site)] == [9, 1]
    ran = run("ingest", "--prune", "10", "--format", "json")
    forgotten = {row["what"]: row["forgotten"] for row in json.loads(ran.out)}
    assert (forgotten["attempts"], forgotten["steps"]) == (1, 1)
    assert [one.row.job_id for one in stored(site)] == [1]


@pytest.mark.parametrize("configured", [False, True])
def test_pseudonyms_come_before_the_store(configured: bool, run: Run, site: Site) -> None:
    key = site.folder / "pseudonym.key"
    assert run("config", "pseudonym-key", str(key)).code == 0
    rows = [{**row, "JobName": "secret-42", "State": "CANCELLED by 4711"} for row in recent([1])]
    site.configure(
        accounting={
            "sacct": FakeSacct(site.folder / "slurm", rows).command,
            "pseudonym_key": str(key) if configured else "",
        }
    )
    assert run("ingest", *([] if configured else ["--pseudonymise", str(key)])).code == 0
    [attempt] = stored(site)
    assert attempt.row.user.startswith("user-")
    assert attempt.row.job_name.endswith("-42")
    content = b"".join(file.read_bytes() for file in site.folder.glob("store.db*"))
    for name in (b"alice", b"secret", b"phys", b"4711"):
        assert name not in content
    since = time.strftime("%Y-%m-%d", time.localtime(time.time() - 3 * DAY_S))
    again = run("ingest", "--since", since, "--format", "json", "--pseudonymise", str(key))
    assert counts(again.out)["attempts"] == {"what": "attempts", "new": 0, "changed": 0, "same": 1}


def test_the_labels_quality_follows_where_it_is_wanted(run: Run, site: Site) -> None:
    site.configure(accounting={"sacct": FakeSacct(site.folder / "slurm", recent()).command})
    ran = run("ingest", "--report")
    assert "memory" in ran.out
    assert "sampled" in ran.out
    assert "attempts: 5 new" in ran.err
