"""What the doctor says of the store, the journal of decisions, and recovery."""

import os
import pwd
import time
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from accounting.ingest.ingesting import SACCT
from accounting.ingest.label_marks import OUTDATED
from accounting.key_file import make_key, read_key
from accounting.records import Attempt
from accounting.slurm.sacct_groups import LABELS
from accounting.store import schema
from accounting.store.database import open_store
from accounting.store.records import WEEK_S, write_decisions, write_mark, write_rows
from slurm_plugin.doctor.audit_checks import LEAST_SILENT_S
from slurm_plugin.doctor.store_checks import INGEST_LAG_S, NEWEST_JOB_AGE_S, UNREAD_BYTES
from slurm_plugin.recovery.journal import LAST_ROUND, Entry
from slurm_plugin.recovery.journal import Journal as RecoveryJournal
from slurm_plugin.service.journal import Journal
from tests.builders import attempt, decision, executable, without_memory
from tests.slurm_plugin.doctor.installation import HOUR_S, Installation
from tests.stores import write_attempts


def test_a_store_that_cannot_be_read_is_a_problem(whole: Installation) -> None:
    (whole.site.folder / "store.db").write_text("no database " * 500)
    whole.expect("store", "problem", "not a database")
    rows, _ = whole.found()
    assert [rows[name]["state"] for name in ("ingest", "newest-job", "journal")] == [
        "unknown",
        "unknown",
        "ok",
    ]


def test_a_store_of_an_older_version_is_left_as_it_is(whole: Installation) -> None:
    engine = open_store(whole.site.config.store.url)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0002'")
    engine.dispose()
    for _ in range(2):
        whole.expect("store", "problem", "schema of an older version", "rightsizer ingest")


@pytest.mark.parametrize(
    ("store", "check", "state", "said"),
    [
        ({"read_ago_s": INGEST_LAG_S + HOUR_S}, "ingest", "warning", "read until 3 hours ago"),
        ({"read_ago_s": -HOUR_S}, "ingest", "warning", "read until in 60 minutes"),
        ({"read_ago_s": None}, "ingest", "unknown", "never filled"),
        ({"ended_ago_s": NEWEST_JOB_AGE_S + HOUR_S}, "newest-job", "warning", "ended 4 days ago"),
        ({"ended_ago_s": None}, "newest-job", "warning", "has no job"),
    ],
    ids=str,
)
def test_a_store_that_is_behind_is_reported(
    whole: Installation, store: dict[str, float | None], check: str, state: str, said: str
) -> None:
    whole.store(**store)
    whole.expect(check, state, said)


def test_labels_of_an_earlier_release_are_reported_until_their_jobs_are_read_again(
    whole: Installation,
) -> None:
    whole.expect("labels", "ok", "all labels follow the rules of this release")
    engine, now_s = open_store(whole.site.config.store.url), int(time.time())
    with engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM windows WHERE source = ?", (LABELS,))
    day = datetime.fromtimestamp(now_s - 600).astimezone().strftime("%Y-%m-%d")
    whole.expect("labels", "warning", "rules of an earlier release", f"--since {day}")
    with engine.begin() as connection:
        for source, read_s in ((LABELS, now_s), (OUTDATED, now_s - 700)):  # before the only job ended
            mark = {"source": source, "cluster": "", "read_until_s": read_s}
            write_rows(connection, schema.windows, [mark])
    engine.dispose()
    whole.expect("labels", "ok", "all labels follow the rules of this release")


@pytest.mark.parametrize(("without", "state"), [(12, "ok"), (13, "warning")])
def test_a_site_that_no_longer_measures_is_reported(whole: Installation, without: int, state: str) -> None:
    whole.expect("measured", "ok", "1 job ran long enough")
    start_s = int(time.time()) - 700
    ended = [attempt(job_id=number, submit_s=start_s, start_s=start_s) for number in range(10, 59)]
    engine = open_store(whole.site.config.store.url)
    with engine.begin() as connection:
        write_attempts(connection, [without_memory(one) for one in ended[:without]] + ended[without:])
    engine.dispose()
    day = datetime.fromtimestamp(start_s + 100 - WEEK_S).astimezone().strftime("%Y-%m-%d")
    fix = f"report quality --since {day}" if state == "warning" else ""
    whole.expect("measured", state, f"for {without / 50:.0%} of the newest 50 jobs", fix)


@pytest.mark.parametrize(("replaced", "state"), [(12, "ok"), (13, "warning")])
def test_a_tool_that_replaces_the_admin_comment_is_reported(
    whole: Installation, replaced: int, state: str
) -> None:
    whole.expect("tokens", "ok", "0 jobs of the newest week")
    start_s = int(time.time()) - 700

    def ended(job_id: int, admin_comment: str, submit_s: int = start_s) -> Attempt:
        """Return an attempt with this admin comment; '': with our token."""
        return attempt(
            job_id=job_id,
            submit_s=submit_s,
            start_s=start_s,
            token=not admin_comment,
            admin_comment=admin_comment,
        )

    jobs = [ended(number, "JS1:H4sIAAAA" if number < replaced else "") for number in range(50)]
    engine = open_store(whole.site.config.store.url)
    with engine.begin() as connection:
        write_decisions(connection, [decision(time_s=start_s - 5)])
        # A job that came before the hook does not count.
        write_attempts(connection, [*jobs, ended(60, "JS1:H4sIAAAA", start_s - 5000)])
    engine.dispose()
    said = f"{replaced / 50:.0%} of the newest 50 jobs with an admin comment have lost their token"
    whole.expect("tokens", state, said, "find the tool" if state == "warning" else "")


def test_a_cluster_configured_in_capitals_is_found_in_the_store(whole: Installation) -> None:
    """As `rightsizer ingest` stores it, whatever the case."""
    whole.store(read_ago_s=None, ended_ago_s=None)
    engine, now_s = open_store(whole.site.config.store.url), int(time.time())
    with engine.begin() as connection:
        mark = {"cluster": "alpha", "read_until_s": now_s - 60}
        write_rows(connection, schema.windows, [{"source": name, **mark} for name in (SACCT, LABELS)])
        ended = attempt(cluster="alpha", submit_s=now_s - 700, start_s=now_s - 700, elapsed_s=100)
        write_attempts(connection, [ended])
    engine.dispose()
    whole.site.configure(accounting={"cluster": "Alpha"})
    whole.expect("ingest", "ok", "read until")
    whole.expect("newest-job", "ok", "ended 10 minutes ago")


def test_a_store_without_a_job_of_this_cluster_names_the_cluster_it_looked_for(whole: Installation) -> None:
    whole.site.configure(accounting={"cluster": "another"})
    whole.expect("newest-job", "warning", "no job of cluster another$", "accounting.cluster")


def test_a_user_who_is_shown_only_their_own_jobs_ingests_too_few(
    whole: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "SlurmDBD configuration:\nPrivateData = jobs\nSlurmUser = slurm(1)"
    executable(whole.site.folder / "tools" / "sacctmgr", f"#!/bin/sh\ncat <<END\n{said}\nEND\n")
    monkeypatch.setattr(os, "geteuid", lambda: pwd.getpwnam("nobody").pw_uid)
    whole.expect(
        "ingest", "warning", "hides other users' jobs from nobody, so they are not read$", "adminlevel"
    )
    # Then jobs come from elsewhere.
    whole.site.configure(accounting={"slurmdbd_url": "mysql+pymysql://reader@db/slurm_acct_db"})
    assert whole.found()[0]["ingest"]["state"] == "ok"


def test_a_journal_that_nobody_ingests_is_a_warning(whole: Installation) -> None:
    journal = whole.site.folder / "journal" / "decisions-20260101.jsonl"
    with journal.open("wb") as file:
        file.truncate(UNREAD_BYTES + 1)  # a hole, which takes no room
    whole.expect("journal", "warning", r"64\.0 MiB of .* are not ingested", "rightsizer ingest")
    engine = open_store(whole.site.config.store.url)
    with engine.begin() as connection:
        write_mark(connection, journal.name, journal, UNREAD_BYTES)
    engine.dispose()
    whole.expect("journal", "ok", r"^0\.0 MiB")


def test_a_missing_journal_is_a_warning(whole: Installation) -> None:
    (whole.site.folder / "journal").rmdir()
    whole.expect("journal", "warning", "does not exist", "start the service")


def journalled(whole: Installation, key: bytes = b"") -> Path:
    """Return the file of a journal of five lines."""
    journal = Journal(whole.site.folder / "journal", key=key)
    for number in range(5):
        journal.append(decision(id=f"d{number}", time_s=time.time()))
    journal.close()
    [file] = (whole.site.folder / "journal").iterdir()
    return file


def test_a_journal_that_was_changed_is_a_problem(whole: Installation) -> None:
    file = journalled(whole)
    whole.expect("journal-chain", "ok", r"^5 lines .* without a key")
    file.write_bytes(file.read_bytes().replace(b'"d2"', b'"d7"'))
    whole.expect(
        "journal-chain", "problem", r"1 line changed since .*: .*\.jsonl:3 changed", "rightsizer audit"
    )


def test_the_links_of_a_journal_that_cannot_be_listed_are_not_called_intact(whole: Installation) -> None:
    folder = whole.site.folder / "journal"
    folder.rmdir()
    folder.write_text("")
    row = whole.found()[0]["journal-chain"]
    assert (row["state"], row["saw"]) == ("problem", f"cannot read {folder}: Not a directory")


def test_a_journal_that_lacks_the_existing_key_is_a_warning(whole: Installation) -> None:
    key = whole.site.folder / "key"
    whole.site.configure(service={"journal_key": str(key)})
    rows, _ = whole.found()
    for name in ("configuration", "journal-chain"):
        assert rows[name]["state"] == "problem"
        assert rows[name]["saw"].startswith("cannot read the journal key")
    make_key(key, "journal")
    journalled(whole, read_key(key, "journal"))
    whole.expect("journal-chain", "ok", "^5 lines of the newest files are linked without a gap$")
    journalled(whole)
    whole.expect("journal-chain", "problem", r"5 lines changed since .* and 2 more", "rightsizer audit")


def test_lines_from_before_the_service_had_the_key_are_a_warning(whole: Installation) -> None:
    journalled(whole)
    key = whole.site.folder / "key"
    make_key(key, "journal")
    whole.site.configure(service={"journal_key": str(key)})
    whole.expect("journal-chain", "warning", "^5 lines .*, but without the key", "restart the services")


def test_recovery_that_does_not_run_is_a_warning_if_jobs_are_cut(whole: Installation) -> None:
    whole.expect("recovery", "ok", "no rule enforces")
    whole.site.configure(rules=[{"name": "pilot", "mode": "enforce"}])
    whole.expect("recovery", "warning", "no round of", "enable rightsizer-recover")
    folder = Path(whole.site.config.recovery.directory)
    RecoveryJournal(folder).note_round()
    whole.expect("recovery", "ok", "the last recovery round was 0 s ago")
    then_s = time.time() - LEAST_SILENT_S - 60
    os.utime(folder / LAST_ROUND, (then_s, then_s))
    whole.expect("recovery", "warning", "was 6 minutes ago", "systemctl status rightsizer-recover")
    RecoveryJournal(folder).note_round()
    begun = Entry(
        job_id=7,
        restarts=0,
        what="begun",
        time_s=time.time(),
        cause="out_of_memory",
        user="ann",
        decision_id="d",
    )
    RecoveryJournal(folder).append(begun)
    whole.expect("recovery", "ok", "the last recovery round was 0 s ago")
    RecoveryJournal(folder).append(msgspec.structs.replace(begun, time_s=then_s))
    whole.expect("recovery", "warning", "^1 job held", "slurm_job_modify")
    os.utime(folder / LAST_ROUND, (then_s, then_s))
    # What holds these jobs then is that nobody goes on with them.
    whole.expect("recovery", "warning", "was 6 minutes ago", "systemctl status rightsizer-recover")
    RecoveryJournal(folder).append(msgspec.structs.replace(begun, what="requeued"))
    whole.site.configure(rules=[])
    whole.expect("recovery", "ok", "was 6 minutes ago")
