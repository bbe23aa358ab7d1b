"""Which decision a direct job's client carried out: forged, foreign and stale ones do not count."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from accounting.decisions.by_clients import CLOCKS_DIFFER_S, LEAD_S, first_request
from accounting.decisions.decision import Decision, encode_decision
from accounting.decisions.originals import client_decision_ids
from accounting.decisions.token import carried_word, format_token
from accounting.ingest.ingesting import ingest
from accounting.ingest.run import IngestSettings
from accounting.records import JobRow
from accounting.request import Grant
from accounting.store.database import open_store
from accounting.store.records import read_attempts
from tests.builders import T0, FakeSacct, decision, job_line, job_row, records_of, request, step_line

ID = "0123456789ab"
MADE = decision(
    id=ID,
    time_s=T0 - 1.0,
    applied=True,
    request=request(cpus_per_task=8, mem_per_node_mib=8000, script_signature="abc"),
    grant=Grant(cpus_per_task=2, mem_per_node_mib=512),
)


def seen(via: str = ID, **amounts: Any) -> str:
    """The token for what slurmctld saw: the lowered request, unless changed."""
    asked = request(**({"cpus_per_task": 2, "mem_per_node_mib": 512} | amounts))
    return format_token(decision(id="d2", via=via, request=asked))


def row_of(token: str | None = None, **changes: Any) -> JobRow:
    return job_row(**{"admin_comment": seen() if token is None else token, "submit_s": T0} | changes)


def test_a_job_names_its_clients_decision_in_its_token_or_in_its_comment() -> None:
    rows = [
        row_of(),
        row_of(token="", comment=f"mine {carried_word(ID)}"),
        row_of(token=seen(via=""), comment=carried_word(ID)),
        row_of(token=""),
    ]
    assert client_decision_ids(records_of((row, []) for row in rows).jobs) == {0: ID, 1: ID}


@pytest.mark.parametrize(
    ("made", "row"),
    [
        (MADE, row_of(user="mallory")),
        (MADE, row_of(submit_s=T0 + LEAD_S + 5)),
        (MADE, row_of(submit_s=T0 - CLOCKS_DIFFER_S - 5)),
        (MADE, row_of(token=seen(cpus_per_task=4))),
        (MADE, row_of(token=seen(mem_per_node_mib=None))),
        (msgspec.structs.replace(MADE, applied=False), row_of()),
        (MADE, row_of(token="", req_cpus=4, req_mem_mib=512)),
        (MADE, row_of(token="", req_cpus=2, req_mem_mib=512, req_gpus=1)),
    ],
)
def test_a_decision_that_does_not_match_its_job_does_not_count(made: Decision, row: JobRow) -> None:
    assert first_request(made, row) is None


def test_a_decision_that_matches_its_job_counts() -> None:
    assert first_request(MADE, row_of()) == MADE.request
    assert first_request(MADE, row_of(token="", req_cpus=2, req_mem_mib=512)) == MADE.request
    unchanged = msgspec.structs.replace(MADE, applied=False)
    whole = row_of(token=seen(cpus_per_task=8, mem_per_node_mib=8000))
    assert first_request(unchanged, whole) == MADE.request


def test_amounts_that_were_filled_in_after_the_client_asked_are_kept() -> None:
    row = row_of(token=seen(gpus_per_node=1, num_tasks=4))
    first = first_request(MADE, row)
    assert first == msgspec.structs.replace(MADE.request, gpus_per_node=1, num_tasks=4)


def test_a_client_that_asked_for_more_than_slurm_can_hold_does_not_stop_ingest(tmp_path: Path) -> None:
    """Anybody may ask the clients' service for any numbers, and submit what it grants."""
    journal = tmp_path / "journal"
    journal.mkdir()
    endless = decision(
        id=ID,
        time_s=T0 + 9.0,
        applied=True,
        request=request(cpus_per_task=2**53, mem_per_cpu_mib=2**53, mem_per_node_mib=None),
        grant=Grant(cpus_per_task=2, mem_per_cpu_mib=256),
    )
    (journal / "decisions-clients-login1-20231114.jsonl").write_bytes(encode_decision(endless))
    token = seen(mem_per_node_mib=None, mem_per_cpu_mib=256)
    jobs = [job_line(1, T0 + 10, AdminComment=token, ReqTRES="cpu=2,mem=512M"), job_line(2)]
    settings = IngestSettings(
        sacct=FakeSacct(tmp_path / "slurm", jobs).command,
        overlap_s=60,
        first_days=1,
        gpu_spool=tmp_path / "spool",
        journal=journal,
    )
    store = open_store(f"sqlite:///{tmp_path}/store.db", create=True)
    ingest(store, settings, T0 + 3600, since_s=T0 - 3600)
    asked = {one.row.job_id: (one.asked_cpus, one.asked_mem_mib) for one in read_attempts(store)}
    assert asked == {1: (2, 512), 2: (8, 8000)}
    store.dispose()


@pytest.mark.parametrize("comes_late", [False, True])
@pytest.mark.parametrize(("user", "asked"), [("alice", 8), ("mallory", 2)])
def test_ingest_takes_the_first_request_only_from_a_decision_of_the_same_user(
    user: str, asked: int, comes_late: bool, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    journal.mkdir()
    owned = msgspec.structs.replace(MADE, request=msgspec.structs.replace(MADE.request, user=user))
    job = job_line(1, T0 + 10, AdminComment=seen(), ReqTRES="cpu=2,mem=512M")
    fake = FakeSacct(tmp_path / "slurm", [job, step_line(1, start_s=T0 + 10), job_line(2)])
    settings = IngestSettings(
        sacct=fake.command, overlap_s=60, first_days=1, gpu_spool=tmp_path / "spool", journal=journal
    )
    store = open_store(f"sqlite:///{tmp_path}/store.db", create=True)
    if comes_late:  # from a login node, through a shared folder or by an ingest of its own
        ingest(store, settings, T0 + 3600, since_s=T0 - 3600)
        assert read_attempts(store, 1)[0].asked_cpus == 2
    (journal / "decisions-clients-login1-20231114.jsonl").write_bytes(encode_decision(owned))
    for _ in range(2):
        ingest(store, settings, T0 + 3600, since_s=T0 - 3600)
        [attempt] = read_attempts(store, 1)
        assert attempt.asked_cpus == asked
        assert attempt.decision_id == (ID if user == "alice" else "d2")
        assert (attempt.script_signature == "abc") is (user == "alice")
        assert read_attempts(store, 2)[0].asked_cpus == 8
    store.dispose()


def test_the_input_size_of_a_job_comes_with_its_decision_however_late(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    journal.mkdir()
    made = decision(id="d2", time_s=T0 - 1.0, request=request(input_mib=700.0))
    fake = FakeSacct(tmp_path / "slurm", [job_line(1, T0 + 10, AdminComment=format_token(made))])
    settings = IngestSettings(
        sacct=fake.command, overlap_s=60, first_days=1, gpu_spool=tmp_path / "spool", journal=journal
    )
    store = open_store(f"sqlite:///{tmp_path}/store.db", create=True)
    ingest(store, settings, T0 + 3600, since_s=T0 - 3600)
    (journal / "decisions-controller2-20231114.jsonl").write_bytes(encode_decision(made))
    ingest(store, settings, T0 + 3600, since_s=T0 - 3600)
    assert [one.input_mib for one in read_attempts(store)] == [700.0]
    store.dispose()
