"""Which brake is pulled on the evidence of which jobs."""

import math
import sys

import msgspec
import pytest

from accounting.request import JobRequest
from models.past.trials import Trial
from models.sequential import ALONE, COMPARED, Range, Wealth, beginning
from slurm_plugin.brakes import evidence
from slurm_plugin.brakes.evidence import Evidence, Ledger
from slurm_plugin.brakes.judging import is_enough, reason_of
from slurm_plugin.brakes.pools import PORTION_S
from slurm_plugin.brakes.tallies import Counts, Tally
from slurm_plugin.policy.braked import ALL, Brake, family_brake, partition_brake

KILLED = Trial(shrunk=True, failed=True, wanted="out_of_memory")
CRASHED = Trial(shrunk=True, failed=True)
FINE = Trial(shrunk=True)
FEWER_CPUS = Trial(shrunk=True, memory_whole=True)
WHOLE = Trial()
NONE: frozenset[Brake] = frozenset()
GPU = partition_brake("gpu")
MOST = 50


def job(user: str = "ann", name: str = "fit-1", partition: str = "gpu") -> JobRequest:
    return JobRequest(user=user, job_name=name, partition=partition)


def ledger() -> Ledger:
    return Ledger(Evidence(), 0.02)


def add(to: Ledger, trial: Trial, times: int = 1, now_s: float = 0.0, **who: str) -> None:
    for _ in range(times):
        to.add(job(**who), trial, now_s, NONE)


def test_a_family_is_stopped_by_its_own_jobs_alone() -> None:
    known = ledger()
    add(known, KILLED, 4)
    add(known, FINE, 4, name="other")
    assert is_enough(family_brake("ann", "fit-77"), known)
    assert not is_enough(family_brake("ann", "other"), known)
    assert not is_enough(family_brake("bob", "fit-1"), known)


def test_jobs_with_their_whole_memory_do_not_dilute_kills_for_memory() -> None:
    known = ledger()
    for trial in (KILLED, FEWER_CPUS, KILLED, FEWER_CPUS, KILLED, KILLED):
        add(known, trial, 1 if trial is KILLED else 100)
    assert is_enough(family_brake("ann", "fit-1"), known)
    assert known.tally(family_brake("ann", "fit-1")).counts == Counts(
        shrunk=204, failed=4, wanted=4, memory_whole=200
    )
    add(known, KILLED, 2, name="other")
    add(known, FINE, 200, name="other")
    add(known, KILLED, 2, name="other")
    assert not is_enough(family_brake("ann", "other"), known)


def test_jobs_with_their_whole_memory_do_not_dilute_kills_in_a_partition_either() -> None:
    known = ledger()
    for portion in range(40):
        for user in range(8):
            who = {"user": f"u{user}", "now_s": portion * PORTION_S}
            add(known, KILLED if portion % 10 == 0 else FEWER_CPUS, **who)  # type: ignore[arg-type]
        known.close_portions(portion * PORTION_S)
    known.close_portions(50 * PORTION_S)
    assert is_enough(GPU, known)


def wealth_of(odds: float, ranges: tuple[Range, ...]) -> Wealth:
    judged = tuple((math.log(odds),) * len(bets) for bets in beginning(ranges).judged)
    return msgspec.structs.replace(beginning(ranges), judged=judged)


@pytest.mark.parametrize(
    ("kills", "fails", "said"),
    [
        (29_000, 1, ""),
        (31_000, 1, "cut jobs were killed"),
        (1, 1_900, ""),
        (1, 2_100, "cut jobs failed"),
        (29_000, 2_100, "cut jobs failed"),
    ],
)
def test_kills_need_more_evidence_than_a_comparison_with_uncut_jobs(
    kills: float, fails: float, said: str
) -> None:
    tally = Tally(kills=wealth_of(kills, ALONE), fails=wealth_of(fails, COMPARED))
    known = Ledger(Evidence(families={"ann\0fit": tally}), 0.02)
    assert is_enough(family_brake("ann", "fit"), known) is bool(said)
    assert not said or reason_of(tally).startswith(said)
    assert known.against(family_brake("ann", "fit")) == tally


def test_evidence_beyond_any_float_is_still_reported() -> None:
    kills = Wealth(((1000.0, 0.0, 0.0),), beginning(ALONE).others)
    assert reason_of(Tally(kills=kills)).startswith("cut jobs were killed for memory; evidence 1e+304 to 1;")


def test_crashes_count_only_in_comparison_with_uncut_jobs() -> None:
    known = ledger()
    add(known, CRASHED, 30)
    assert not is_enough(family_brake("ann", "fit"), known)
    known = ledger()
    add(known, WHOLE, 50, name="fit")
    add(known, CRASHED, 12, name="fit")
    assert is_enough(family_brake("ann", "fit"), known)


def test_many_tasks_of_two_users_stop_no_partition_but_those_of_a_third_do() -> None:
    known = ledger()
    for hour in range(20):
        for user in ("ann", "bob"):
            add(known, KILLED, 200, now_s=hour * 3600.0, user=user)
        known.close_portions(hour * 3600.0 + PORTION_S)
    assert not is_enough(GPU, known)
    assert not is_enough(ALL, known)
    for number in range(4):
        now_s = 72_000.0 + number * PORTION_S
        assert not is_enough(GPU, known)
        add(known, KILLED, 1, now_s=now_s, user="cid")
        assert known.close_portions(now_s) == known.close_portions(now_s + 1) == []
        assert set(known.close_portions(now_s + PORTION_S)) == {GPU, ALL}
    assert is_enough(GPU, known)
    assert is_enough(ALL, known)
    assert not is_enough(partition_brake("main"), known)
    known.begin_anew(GPU)
    assert not is_enough(GPU, known)


def test_a_partition_where_all_goes_well_is_not_stopped_with_the_bad_one() -> None:
    known = ledger()
    for number in range(100):
        for user in ("ann", "bob", "cid", "dan"):
            add(known, FINE, 5, number * 3600.0, user=user, partition="main")
        for user in ("ann", "bob", "cid"):
            add(known, KILLED if number > 90 else FINE, 1, number * 3600.0, user=user)
        known.close_portions(number * 3600.0 + PORTION_S)
    assert is_enough(GPU, known)
    assert not is_enough(partition_brake("main"), known)


def test_a_stopped_brake_ignores_jobs_cut_before_and_still_counts_uncut_ones() -> None:
    for stopped in (family_brake("ann", "fit-1"), GPU, ALL):
        known = ledger()
        assert known.add(job(), KILLED, 0.0, frozenset({stopped})) == []
        known.add(job(), WHOLE, 0.0, frozenset({stopped}))
        assert known.tally(family_brake("ann", "fit-1")).counts == Counts(whole=1)


def test_a_released_brake_starts_anew_but_keeps_what_is_known_of_uncut_jobs() -> None:
    known = ledger()
    add(known, WHOLE, 9)
    add(known, KILLED, 4)
    brake = family_brake("ann", "fit-1")
    known.begin_anew(brake)
    assert not is_enough(brake, known)
    assert known.tally(brake).counts == Counts(whole=9)
    add(known, KILLED, 4)
    assert is_enough(brake, known)


def test_a_released_brake_pulled_for_other_failures_starts_anew_too() -> None:
    known, brake = ledger(), family_brake("ann", "fit-1")
    add(known, WHOLE, 50)
    add(known, CRASHED, 12)
    assert is_enough(brake, known)
    known.begin_anew(brake)
    assert not is_enough(brake, known)


def test_evidence_survives_being_stored_as_text() -> None:
    known = ledger()
    add(known, KILLED, 3, user="ann\x01")
    add(known, WHOLE, 3, now_s=5.0)
    known.close_portions(PORTION_S)
    add(known, KILLED, 1, now_s=900.0)
    text = msgspec.json.encode(known.evidence)
    again = Ledger(msgspec.json.decode(text, type=Evidence), 0.02)
    assert again.evidence == known.evidence
    assert set(again.evidence.by_partition) == {"gpu"}
    assert again.tally(GPU) != Tally()


def test_the_families_seen_least_recently_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "MOST_FAMILIES", MOST)
    known = ledger()
    add(known, WHOLE, 1, user="first")
    for number in range(MOST):
        add(known, WHOLE, 1, user=f"u{number}")
        if number == 9:
            add(known, WHOLE, 1, user="u0")
    assert known.tally(family_brake("first", "fit-1")) == Tally()
    assert known.tally(family_brake("u0", "fit-1")).counts == Counts(whole=2)
    assert known.tally(family_brake(f"u{MOST - 1}", "fit-1")).counts == Counts(whole=1)


def test_the_least_recently_seen_families_of_one_user_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "MOST_OF_A_USER", 3)
    known = ledger()
    for name in "abcad":
        add(known, WHOLE, 1, name=name)
    assert set(known.evidence.families) == {"ann\0c", "ann\0a", "ann\0d"}


def test_the_user_with_the_most_families_loses_one_until_another_has_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evidence, "MOST_FAMILIES", 6)
    known = ledger()
    for user, name in [*(("eve", name) for name in "abcd"), *(("bob", name) for name in "wxyz")]:
        add(known, WHOLE, 1, user=user, name=name)
    assert set(known.evidence.families) == {"eve\0b", "eve\0c", "eve\0d", "bob\0x", "bob\0y", "bob\0z"}


def calls_for_a_new_family(users: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many function calls a job of one more user costs, if so many users fill the table of families."""
    monkeypatch.setattr(evidence, "MOST_FAMILIES", users)
    known = ledger()
    for number in range(users):
        add(known, WHOLE, 1, user=f"u{number}")
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        known.add(job("one more"), WHOLE, 0.0, NONE)
    finally:
        sys.setprofile(None)
    return calls


def test_a_new_family_costs_no_more_if_there_are_many_users(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (calls_for_a_new_family(users, monkeypatch) for users in (20, 500))
    assert many <= few + 20


def test_a_user_with_many_job_names_loses_only_their_own_families_and_no_stopped_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evidence, "MOST_FAMILIES", MOST)
    known, held = ledger(), family_brake("eve", "held")
    add(known, WHOLE, 3, user="bob", name="fit")
    add(known, WHOLE, 3, user="eve", name="held")
    for number in range(10 * MOST):
        known.add(job("eve", f"x{chr(0x4E00 + number)}"), WHOLE, 0.0, frozenset({held}))
    assert len(known.evidence.families) == MOST
    assert known.tally(family_brake("bob", "fit")).counts == Counts(whole=3)
    assert known.tally(held).counts == Counts(whole=3)
    assert len(Ledger(known.evidence, 0.02).evidence.families) == MOST


def test_names_of_another_user_between_two_failures_of_a_family_hide_neither(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evidence, "MOST_FAMILIES", MOST)
    known, number = ledger(), 0
    for _ in range(4):
        add(known, KILLED)
        for _ in range(2 * MOST):
            number += 1
            known.add(job("eve", f"x{chr(0x4E00 + number)}"), KILLED, 0.0, NONE)
    assert is_enough(family_brake("ann", "fit-1"), known)
    assert len(known.evidence.families) == MOST


def test_among_families_of_a_user_failed_ones_are_forgotten_last_and_stopped_ones_never(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evidence, "MOST_OF_A_USER", 3)
    known, held = ledger(), frozenset(family_brake("ann", name) for name in "pqr")

    def kept() -> set[str]:
        return {key.partition("\0")[2] for key in known.evidence.families}

    add(known, KILLED, 1, name="a")
    for name in "bcd":
        add(known, FINE, 1, name=name)
    assert kept() == {"a", "c", "d"}
    for name in "ef":
        add(known, KILLED, 1, name=name)
    assert kept() == {"a", "e", "f"}
    add(known, KILLED, 1, name="g")
    assert kept() == {"e", "f", "g"}
    for name in "pqrs":
        known.add(job(name=name), WHOLE, 0.0, held)
    assert kept() == {"p", "q", "r"}, "a new one goes before one that is stopped"
    for name in "pzyx":
        known.add(job(user="bob", name=name), WHOLE, 0.0, held)
    assert kept() == {"p", "q", "r", "z", "y", "x"}, "what is stopped is his who is stopped"
    known.add(job(name="o"), WHOLE, 0.0, held | {family_brake("ann", "o")})
    assert {"o", "p", "q", "r"} < kept(), "all of them are stopped"


def test_runs_of_a_workflow_engine_are_counted_together_whatever_names_it_gives_them() -> None:
    known = ledger()
    for uuid in ("fb315e06-46eb-480f-ae1d-c3d14c698bea", "00c05bdd-39af-40ab-ac80-8c1bc8a7ccc4"):
        add(known, KILLED, 2, name=f"atlas_{uuid}")
    assert is_enough(family_brake("ann", "atlas_0b1d8f52-7a3c-4c55-9f2e-5d0c6a4f1e11"), known)


def test_counts_under_an_older_family_name_count_for_the_name_of_today() -> None:
    tally = Tally(counts=Counts(whole=7))
    known = Ledger(Evidence(families={"ann\0nf-bwa_(s#)": tally}), 0.02)
    assert known.tally(family_brake("ann", "nf-bwa_(WT)")) == tally


def test_tasks_that_still_run_count_as_not_failed() -> None:
    known, family = ledger(), family_brake("ann", "fit-1")
    add(known, KILLED, 5)
    assert is_enough(family, known)
    assert is_enough(family, known, running=5)
    assert not is_enough(family, known, running=200), "five of 205 are no more than the bound"
    add(known, KILLED, 25)
    assert is_enough(family, known, running=200), "thirty are"
