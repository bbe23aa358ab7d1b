"""`rightsizer ingest`: quarantine, retries, pruning and pseudonyms."""

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from accounting.decisions.decision import encode_decision
from accounting.records import Attempt
from accounting.store.database import open_store
from accounting.store.records import read_attempts, read_marks
from tests.builders import DAY_S, FakeSacct, SacctRow, decision, job_line, step_line
from tests.conftest import Site
from tests.slurm_plugin.conftest import Run


def recent(numbers: Iterable[int] = range(1, 6)) -> list[SacctRow]:
    """Return jobs that ended yesterday."""
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


def test_quarantined_entries_are_tried_again(run: Run, site: Site) -> None:
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
    assert "0 entries of the quarantine are understood now" in still.err
    FakeSacct(site.folder / "slurm", rows)
    mended = run("ingest", "--retry", "--format", "json")
    assert "1 entries of the quarantine are understood now" in mended.err
    assert counts(mended.out)["attempts"]["new"] == 1
    assert [one.row.job_id for one in stored(site)] == [1, 2]
    [left] = json.loads(run("ingest", "--quarantined", "--format", "json").out)
    assert left["source"] == "journal"


def test_jobs_that_ended_long_ago_are_pruned(run: Run, site: Site) -> None:
    old_s = int(time.time()) - 20 * DAY_S
    rows = [job_line(9, old_s), step_line(9, start_s=old_s), *recent([1])]
    site.configure(accounting={"sacct": FakeSacct(site.folder / "slurm", rows).command})
    run("ingest")
    assert [one.row.job_id for one in stored(site)] == [9, 1]
    ran = run("ingest", "--prune", "10", "--format", "json")
    forgotten = {row["what"]: row["forgotten"] for row in json.loads(ran.out)}
    assert (forgotten["attempts"], forgotten["steps"]) == (1, 1)
    assert [one.row.job_id for one in stored(site)] == [1]


def test_prune_follows_the_settings_of_the_site_and_never_goes_below(run: Run, site: Site) -> None:
    old_s = int(time.time()) - 20 * DAY_S
    rows = [job_line(9, old_s), step_line(9, start_s=old_s), *recent([1])]
    site.configure(accounting={"sacct": FakeSacct(site.folder / "slurm", rows).command})
    run("ingest")
    kept = run("ingest", "--prune")
    assert (kept.code, kept.out) == (0, "")
    assert "nothing was removed: store.keep_days is 0" in kept.err
    site.configure(store={"keep_days": 10})
    forgotten = {
        row["what"]: row["forgotten"] for row in json.loads(run("ingest", "--prune", "--format", "json").out)
    }
    assert forgotten["attempts"] == 1
    assert [one.row.job_id for one in stored(site)] == [1]
    for wrong in ("0", "-1", "ten", "36501", "999999999999", "99999999999999999999"):
        refused = run("ingest", "--prune", wrong)
        assert (refused.code, refused.out) == (2, ""), wrong
    assert run("ingest", "--prune", "36500").code == 0
    site.configure(store={"keep_days": 36_500})
    assert run("ingest", "--prune").code == 0
    assert [one.row.job_id for one in stored(site)] == [1]


@pytest.mark.usefixtures("site")
def test_a_pause_of_zero_or_without_end_is_a_usage_error(run: Run) -> None:
    for wrong in ("0", "86401", "99999999999999999999"):
        refused = run("ingest", "--watch", wrong)
        assert (refused.code, "--watch" in refused.err) == (2, True)


def marked(site: Site) -> list[str]:
    engine = open_store(site.config.store.url)
    try:
        with engine.connect() as connection:
            return sorted(key.partition("#")[0] for key in read_marks(connection))
    finally:
        engine.dispose()


def test_spool_files_that_were_read_are_pruned_too(run: Run, site: Site) -> None:
    site.configure(accounting={"sacct": FakeSacct(site.folder / "slurm", []).command})
    spool = Path(site.config.accounting.gpu_spool)
    spool.mkdir()
    old, new, unread = (spool / f"{name}.jsonl" for name in ("old", "new", "unread"))
    sample = (
        '{"job_id":7,"node":"n1","time_s":1700000000,"gpu":0,"util_pct":90,"mem_mib":2000,"source":"nvml"}\n'
    )
    for file in (old, new):
        file.write_text(sample)
    assert run("ingest").code == 0
    unread.write_text(sample)
    for file in (old, unread):
        os.utime(file, (1700000000, 1700000000))
    assert "removed 1 file of the GPU spool, ingested before" in run("ingest", "--prune", "10").err
    assert sorted(file.name for file in spool.iterdir()) == ["new.jsonl", "unread.jsonl"]
    # No marks are kept of files that are gone either: each round of `ingest --watch` reads all of them.
    assert marked(site) == ["gpu-spool/new.jsonl"]


@pytest.mark.parametrize("configured", [False, True])
def test_names_are_replaced_by_pseudonyms_before_they_reach_the_store(
    configured: bool, run: Run, site: Site
) -> None:
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


def test_a_store_with_pseudonyms_takes_neither_names_nor_pseudonyms_of_another_key(
    run: Run, site: Site
) -> None:
    keys = [site.folder / name for name in ("first.key", "second.key")]
    for key in keys:
        assert run("config", "pseudonym-key", str(key)).code == 0
    site.configure(accounting={"sacct": FakeSacct(site.folder / "slurm", recent()).command})
    assert run("ingest", "--pseudonymise", str(keys[0])).code == 0
    before = stored(site)
    dump = site.folder / "dump.psv"
    dump.write_text("User|JobID|Submit|Start|End|State\nann|7|1700000000|1700000001|1700000002|COMPLETED\n")
    for options, why in (
        ((), "no key was given, so real names would be stored; give the key"),
        (("--from-file", str(dump), "--zone", "UTC"), "no key was given"),
        (("--pseudonymise", str(keys[1])), "another key was given; give the key with which it was filled"),
    ):
        ran = run("ingest", *options)
        assert ran.code == 1
        assert f"this store holds pseudonyms, but {why}" in ran.err
    assert stored(site) == before
    assert run("ingest", "--pseudonymise", str(keys[0])).code == 0


def test_a_store_that_had_names_before_its_first_pseudonym_takes_both(run: Run, site: Site) -> None:
    key = site.folder / "pseudonym.key"
    assert run("config", "pseudonym-key", str(key)).code == 0
    site.configure(accounting={"sacct": FakeSacct(site.folder / "slurm", recent()).command})
    for options in ((), ("--pseudonymise", str(key)), ()):
        assert run("ingest", *options).code == 0


def test_the_quality_of_the_labels_is_shown_on_request(run: Run, site: Site) -> None:
    site.configure(accounting={"sacct": FakeSacct(site.folder / "slurm", recent()).command})
    ran = run("ingest", "--report")
    assert "memory" in ran.out
    assert "sampled" in ran.out
    assert "attempts: 5 new" in ran.err
