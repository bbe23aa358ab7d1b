"""Runs that failed because of us: written to the store once, read as credits, and deleted when they are old."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import Engine

from accounting.decisions.token import format_token, mark_recovery
from accounting.ingest.ingesting import ingest
from accounting.ingest.run import IngestSettings
from accounting.journal.recoveries import Recovered
from accounting.pseudonyms import Pseudonyms
from accounting.records import Attempt
from accounting.report.recoveries import Credit, hours_owed
from accounting.request import Grant
from accounting.store.audit import newest_links, read_recoveries_of, write_links
from accounting.store.database import open_store
from accounting.store.records import read_attempts
from accounting.store.retention import prune
from models.past.trials import Trial, trial_of
from slurm_plugin.recovery.journal import Entry, Journal
from slurm_plugin.service.journal import Journal as DecisionJournal
from slurm_plugin.slurm.queue import GiveBack, Requeue
from tests.accounting.ingest.recorded import NOW_S, settings_of
from tests.builders import DEEP, T0, FakeSacct, decision, job_line
from tests.stores import content

REQUEUE = Requeue(
    change=GiveBack(job_id=7, uid=1, num_tasks=1, reason="x", admin_comment="x"), before="y", restarts=0
)
BEGUN = Entry(
    job_id=7,
    restarts=0,
    what="begun",
    time_s=T0,
    cause="out_of_memory",
    user="ann",
    account="phys",
    decision_id="d1",
    cpu_hours=1.5,
    mem_gib_hours=4.0,
    requeue=REQUEUE,
)
DONE = msgspec.structs.replace(BEGUN, what="requeued", time_s=T0 + 5, requeue=None)
LOST = msgspec.structs.replace(
    DONE, job_id=8, what="lost", time_s=T0 + 90, why="no script", user="bob", cpu_hours=2.0
)


def stored(entry: Entry) -> Recovered:
    return msgspec.convert(msgspec.to_builtins(entry), Recovered)


def site(tmp_path: Path) -> IngestSettings:
    settings = settings_of(FakeSacct(tmp_path / "slurm", []), tmp_path)
    return msgspec.structs.replace(settings, recovery=tmp_path / "recovery")


def test_each_line_is_read_once_and_the_last_one_of_a_run_counts(store: Engine, tmp_path: Path) -> None:
    settings, journal = site(tmp_path), Journal(tmp_path / "recovery")
    brought = []
    for entry in (BEGUN, DONE, LOST, None):
        if entry is not None:
            journal.append(entry)
        brought.append(ingest(store, settings, NOW_S).recoveries)
    assert [(count.new, count.changed) for count in brought] == [(1, 0), (0, 1), (1, 0), (0, 0)]
    [file] = (tmp_path / "recovery").glob("recoveries-*.jsonl")
    file.write_bytes(file.read_bytes() + b"rubbish\n" + DEEP + b'\n{"job_id":9')
    assert ingest(store, settings, NOW_S).quarantined == 2
    with store.connect() as connection:
        found = read_recoveries_of(connection, [7, 8, 9])
    assert found == {7: [stored(DONE)], 8: [stored(LOST)]}
    before = content(store)
    assert ingest(store, settings, NOW_S).quarantined == 0
    assert content(store) == before


@pytest.mark.parametrize(("changes", "outcome"), [({}, "timeout"), ({"decision_id": "d2"}, "cut_short")])
def test_a_run_out_of_time_that_recovery_requeued_counts_as_a_timeout(
    changes: dict[str, Any], outcome: str, tmp_path: Path
) -> None:
    """22.05 records such a run as REQUEUED, with the requeue as its end."""
    made = decision(id="d1", applied=True, grant=Grant(cpus_per_task=2))
    token = format_token(made)
    rows = [
        # A run that the user requeued was not out of time.
        job_line(7, T0, 8, State="REQUEUED", AdminComment=token, TimelimitRaw="2"),
        job_line(
            7,
            T0 + 10,
            100,
            State="REQUEUED",
            AdminComment=token,
            TimelimitRaw="2",
            AllocTRES="cpu=2,mem=8000M",
        ),
        # Recovery requeues a job once: whoever requeues it after that, it was not us.
        job_line(
            7,
            T0 + 110,
            80,
            State="REQUEUED",
            AdminComment=mark_recovery(token, "timeout", 0),
            TimelimitRaw="2",
        ),
        job_line(7, T0 + 190, 5, AdminComment=mark_recovery(token, "timeout", 0)),
        job_line(9, T0 + 1, 100, State="REQUEUED", TimelimitRaw="2"),
    ]
    told: list[Attempt] = []
    settings = msgspec.structs.replace(
        settings_of(FakeSacct(tmp_path / "slurm", rows), tmp_path),
        recovery=tmp_path / "recovery",
        hand_on=lambda new, _: told.extend(new),
    )
    late = msgspec.structs.replace(DONE, cause="timeout", time_s=T0 + 111.5)
    Journal(tmp_path / "recovery").append(msgspec.structs.replace(late, **changes))
    engine = open_store(f"sqlite:///{tmp_path}/store.db", create=True)
    ingest(engine, settings, T0 + 200)
    assert {one.row.start_s: one.use.outcome for one in read_attempts(engine)} == {
        T0: "cut_short",
        T0 + 10: outcome,
        T0 + 110: "cut_short",
        T0 + 190: "completed",
        T0 + 1: "cut_short",
    }
    engine.dispose()
    [first] = [one for one in told if one.row.start_s == T0 + 10]
    counts = Trial(shrunk=True, failed=True, wanted="timeout")
    assert trial_of(first) == (counts if outcome == "timeout" else None)


def test_lines_of_the_previous_release_are_read(store: Engine, tmp_path: Path) -> None:
    settings = site(tmp_path)
    line = msgspec.json.encode(msgspec.structs.replace(LOST, account=""))
    assert b"account" not in line
    (tmp_path / "recovery").mkdir()
    (tmp_path / "recovery" / "recoveries-20231114.jsonl").write_bytes(line + b"\n")
    assert ingest(store, settings, NOW_S).recoveries.new == 1


def test_hours_are_owed_to_the_users_who_lost_them(store: Engine, tmp_path: Path) -> None:
    settings, journal = site(tmp_path), Journal(tmp_path / "recovery")
    for entry in (DONE, LOST, msgspec.structs.replace(DONE, restarts=1, decision_id="d2")):
        journal.append(entry)
    ingest(store, settings, NOW_S)
    ann = Credit(name="ann", requeued=2, lost=0, cpu_hours=3.0, mem_gib_hours=8.0)
    bob = Credit(name="bob", requeued=0, lost=1, cpu_hours=2.0, mem_gib_hours=4.0)
    with store.connect() as connection:
        assert hours_owed(connection, "user") == [ann, bob]
        assert hours_owed(connection, "user", T0 + 50) == [bob]
        [phys] = hours_owed(connection, "account")
        assert (phys.name, phys.requeued, phys.lost, phys.cpu_hours) == ("phys", 2, 1, 5.0)
        assert hours_owed(connection, "user", NOW_S) == []


def test_a_line_with_a_number_beyond_what_a_store_holds_is_quarantined(store: Engine, tmp_path: Path) -> None:
    settings = site(tmp_path)
    journal = Journal(tmp_path / "recovery")
    damaged: list[dict[str, Any]] = [{"job_id": 2**63}, {"restarts": 2**31}, {"array_job_id": 2**64}]
    for change in damaged:
        journal.append(msgspec.structs.replace(DONE, **change))
    journal.append(DONE)
    report = ingest(store, settings, NOW_S)
    assert (report.recoveries.new, report.quarantined) == (1, len(damaged))


def test_names_are_hidden_where_the_site_wants_it(store: Engine, tmp_path: Path) -> None:
    hidden = Pseudonyms(b"0123456789abcdef" * 4)
    Journal(tmp_path / "recovery").append(DONE)
    ingest(store, msgspec.structs.replace(site(tmp_path), pseudonyms=hidden), NOW_S)
    with store.connect() as connection:
        [[found]] = read_recoveries_of(connection, [7]).values()
    assert (found.user, found.account) == (hidden.user("ann"), hidden.account("phys"))


def test_old_entries_go_except_for_the_newest_link_of_each_chain(store: Engine, tmp_path: Path) -> None:
    settings, journal = site(tmp_path), Journal(tmp_path / "recovery")
    journal.append(DONE)
    journal.append(LOST)
    for name in ("decisions", "decisions-advisor"):
        own = DecisionJournal(settings.journal, name)
        for number in range(4):
            own.append(decision(id=f"{name}{number}", time_s=T0 + number))
        own.close()
    ingest(store, settings, NOW_S)
    pruned = prune(store, T0 + 50)
    assert (pruned.recoveries, pruned.journal_links, pruned.decisions) == (1, 6, 8)
    with store.begin() as connection:
        assert {one.chain: one.number for one in newest_links(connection)} == {
            "decisions": 4,
            "decisions-advisor": 4,
        }
        assert write_links(connection, []).new == 0
    assert prune(store, T0 + 50).rows == 0
