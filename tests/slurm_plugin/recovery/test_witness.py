"""What the journal of decisions says of failed jobs' tokens; it is read once a round, whatever it says."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from accounting.decisions.decision import Decision, encode_decision
from accounting.errors import StoreError
from slurm_plugin.cli.recover import decisions_of
from slurm_plugin.recovery.journal import Journal
from slurm_plugin.recovery.rounds import Recoverer
from slurm_plugin.slurm.gateway import RecoveryGate
from tests.builders import decision
from tests.slurm_plugin.recovery.controller import Controller, assert_back, entries
from tests.slurm_plugin.recovery.test_judging import ASKED, GRANT, failed, token
from tests.slurm_plugin.recovery.test_refused import Cluster

Decisions = Callable[[Mapping[str, float]], Mapping[str, Decision]]


def decided_as(**fields: Any) -> Decisions:
    return lambda submit_s: dict.fromkeys(
        submit_s, decision(**{"request": ASKED, "grant": GRANT, "applied": True, **fields})
    )


def unreadable(submit_s: Mapping[str, float]) -> Mapping[str, Decision]:
    raise StoreError(f"cannot read the journal of {submit_s}")


@pytest.mark.parametrize(("decided", "hours"), [(decided_as(), 8.0), (lambda _: {}, 0.0), (unreadable, 0.0)])
def test_a_lost_journal_keeps_no_job_from_coming_back_but_no_hours_are_recorded(
    tmp_path: Path, decided: Decisions, hours: float
) -> None:
    gate = Controller(failed(cpus=4, mem_mib=2048, start_s=1000.0, end_s=8200.0))
    Recoverer(gate, Journal(tmp_path), apply=True, most=10, decided=decided).round()
    assert_back(gate)
    [entry] = entries(tmp_path)
    assert (entry.what, entry.cpu_hours) == ("requeued", hours)


@pytest.mark.parametrize(
    "fields",
    [
        {"request": msgspec.structs.replace(ASKED, user="bob")},
        {"request": msgspec.structs.replace(ASKED, cpus_per_task=4)},
        {"grant": msgspec.structs.replace(GRANT, mem_per_node_mib=700)},
        {"applied": False},
    ],
)
def test_a_token_that_differs_from_its_decision_brings_nothing_back(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    gate = Controller(failed())
    found = Recoverer(gate, Journal(tmp_path), apply=True, most=10, decided=decided_as(**fields)).round()
    assert (found, gate.writes, entries(tmp_path)) == ([], [], [])


@pytest.mark.parametrize(
    ("now", "then"), [("nobody", "ann"), ("1000", "ann"), ("ann", "1000"), ("nobody", "1000")]
)
def test_a_user_whose_name_was_not_known_loses_nothing(tmp_path: Path, now: str, then: str) -> None:
    gate = Controller(failed(user=now))
    decided = decided_as(request=msgspec.structs.replace(ASKED, user=then))
    Recoverer(gate, Journal(tmp_path), apply=True, most=10, decided=decided).round()
    assert_back(gate)


def test_another_users_number_is_not_taken_for_a_missing_name(tmp_path: Path) -> None:
    gate = Controller(failed())
    decided = decided_as(request=msgspec.structs.replace(ASKED, user="1001"))
    assert Recoverer(gate, Journal(tmp_path), apply=True, most=10, decided=decided).round() == []


def test_the_journal_is_read_once_for_all_jobs_of_a_round(tmp_path: Path) -> None:
    cluster = Cluster((1, 2, 3, 4))
    for number, name in {1: "d2", 2: "d1", 3: "d2", 4: "d1"}.items():
        run = failed(job_id=number, submit_s=9000.0 - 1000.0 * number, admin_comment=token(id=name))
        cluster.jobs[number].run = run
    asked: list[dict[str, float]] = []

    def decided(submit_s: Mapping[str, float]) -> Mapping[str, Decision]:
        asked.append(dict(submit_s))
        return decided_as()(submit_s)

    gate = RecoveryGate(cluster, apply=True)
    Recoverer(gate, Journal(tmp_path), apply=True, most=10, decided=decided).round()
    assert asked == [{"d1": 5000.0, "d2": 6000.0}]
    assert sorted(entry.job_id for entry in entries(tmp_path) if entry.what == "requeued") == [1, 2, 3, 4]


def test_the_submit_time_of_a_requeued_job_is_not_relied_on(tmp_path: Path) -> None:
    """A node powered up for it did not come up, days after its submission; then it ran, and failed because of us."""
    (tmp_path / "decisions-20260101.jsonl").write_bytes(
        encode_decision(decision(request=ASKED, grant=GRANT, applied=True))
    )
    fifth_s = 1_767_571_200.0
    gate = Controller(
        failed(cpus=4, mem_mib=2048, submit_s=fifth_s, start_s=fifth_s, end_s=fifth_s + 7200, restarts=1)
    )
    decided = partial(decisions_of, tmp_path)
    Recoverer(gate, Journal(tmp_path / "recovery"), apply=True, most=10, decided=decided).round()
    [entry] = entries(tmp_path / "recovery")
    assert (entry.what, entry.cpu_hours) == ("requeued", 8.0)


def test_a_decision_may_be_from_the_day_before_the_submission(tmp_path: Path) -> None:
    for day, name in (("20251231", "too early"), ("20260101", "a"), ("20260103", "b")):
        (tmp_path / f"decisions-{day}.jsonl").write_bytes(encode_decision(decision(id=name)))
    second_s = 1_767_312_000.0
    submit_s = {"too early": second_s + 86_400, "a": second_s, "b": second_s + 86_400}
    assert sorted(decisions_of(tmp_path, submit_s)) == ["a", "b"]
