"""The journal of what was done about failed jobs: one writer at a time, one file for each day, and entries in words."""

import fcntl
import os
import threading
import time
from pathlib import Path

import msgspec

from slurm_plugin.recovery.journal import LAST_ROUND, LOCK, Entry, Journal, told

DAY_S = 86400
ENTRY = Entry(job_id=7, restarts=0, what="begun", time_s=1e9, cause="killed", user="ann", decision_id="d1")


def test_recovery_waits_until_another_one_is_done(tmp_path: Path) -> None:
    """As a watcher waits for slurmctld's epilog."""
    said: list[str] = []
    with (tmp_path / LOCK).open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)

        def let_go() -> None:
            said.append("the other one is done")
            fcntl.flock(other, fcntl.LOCK_UN)

        later = threading.Timer(0.2, let_go)
        later.start()
        with Journal(tmp_path).alone():
            said.append("it begins")
        later.join()
    assert said == ["the other one is done", "it begins"]


def test_the_last_entry_of_a_run_counts_and_so_does_that_of_its_day(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(ENTRY)
    assert [one.what for one in journal.newest(ENTRY.time_s).values()] == ["begun"]
    journal.append(msgspec.structs.replace(ENTRY, what="requeued", time_s=ENTRY.time_s + DAY_S))
    assert [one.what for one in journal.newest().values()] == ["requeued"]


def test_every_round_of_the_watcher_is_noted(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "new")
    journal.note_round()
    os.utime(tmp_path / "new" / LAST_ROUND, (0, 0))
    journal.note_round()
    assert (tmp_path / "new" / LAST_ROUND).stat().st_mtime > time.time() - DAY_S


def test_an_entry_is_put_into_words() -> None:
    assert told(msgspec.structs.replace(ENTRY, what="requeued"), "7").endswith(
        "; it was requeued with its original request"
    )
