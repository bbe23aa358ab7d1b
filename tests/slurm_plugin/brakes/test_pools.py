"""Which users' jobs stop a partition and everything: never those of one or two users alone, but those of more."""

import random

import pytest

from accounting.request import JobRequest
from models.past.trials import Trial
from models.sequential import evidence_log
from slurm_plugin.brakes import pools
from slurm_plugin.brakes.evidence import Evidence, Ledger
from slurm_plugin.brakes.judging import is_enough, reason_of
from slurm_plugin.brakes.pools import PORTION_S, Outcome, Wholes
from slurm_plugin.policy.braked import ALL, Brake

KILLED = Trial(shrunk=True, failed=True, wanted="out_of_memory")
CRASHED = Trial(shrunk=True, failed=True)
DAY_PORTIONS = 144
NONE: frozenset[Brake] = frozenset()


def add(known: Ledger, user: str, name: str, trial: Trial, now_s: float) -> None:
    known.add(JobRequest(user=user, partition="main", job_name=name), trial, now_s, NONE)


def stopped_after(
    portions: int,
    honest: int,
    hostile: int = 0,
    bad: int = 0,
    worst: Trial = KILLED,
    seed: int = 7,
    look_after: int = 1,
) -> int | None:
    """Return after how many portions everything is stopped; None if it is not.

    Of the honest users' jobs, cut or uncut, 3 % fail, and cutting kills another 1 %; but of the first `bad` users all
    cut jobs do. In each portion each hostile user has one cut job that fails, under ever new names, and an uncut one
    that does not, as an example of how well uncut jobs do.
    """
    draw, known = random.Random(seed), Ledger(Evidence(), 0.02)
    for number in range(portions):
        now_s = number * PORTION_S
        for user in range(honest):
            if draw.random() < 0.5:
                kills, fails = draw.random() < 0.01, draw.random() < 0.03
                ordinary = KILLED if kills else Trial(shrunk=True, failed=fails)
                add(known, f"u{user}", "fit", worst if user < bad else ordinary, now_s)
            if draw.random() < 0.5:
                add(known, f"u{user}", "sim", Trial(failed=draw.random() < 0.03), now_s)
        for user in range(hostile):
            add(known, f"mallory{user}", f"x{chr(97 + number % 26)}", worst, now_s)
            add(known, f"mallory{user}", "good", Trial(), now_s)
        known.close_portions(now_s + PORTION_S)
        if (number + 1) % look_after == 0 and is_enough(ALL, known):
            return number + 1
    return None


@pytest.mark.parametrize("hostile", [1, 2])
@pytest.mark.parametrize("honest", [3, 5, 20, 50])
def test_one_or_two_users_never_stop_everything(honest: int, hostile: int) -> None:
    assert stopped_after(10 * DAY_PORTIONS, honest, hostile, look_after=6) is None


@pytest.mark.parametrize("hostile", [1, 2])
def test_one_or_two_users_never_stop_everything_by_other_failures_either(hostile: int) -> None:
    assert stopped_after(2 * DAY_PORTIONS, 5, hostile, worst=CRASHED) is None


@pytest.mark.parametrize(
    ("honest", "bad", "most_portions"), [(3, 3, 24), (5, 5, 8), (20, 20, 2), (50, 50, 1), (20, 5, 24)]
)
def test_a_bad_model_that_hits_more_users_stops_everything(honest: int, bad: int, most_portions: int) -> None:
    for seed in range(5):
        assert stopped_after(most_portions, honest, bad=bad, seed=seed) is not None


def test_failures_without_a_named_cause_count_too_if_they_hit_many_users() -> None:
    assert stopped_after(DAY_PORTIONS, 8, bad=8, worst=CRASHED) is not None


def test_the_evidence_leaves_out_the_two_users_with_the_most_other_failures_too() -> None:
    known = Ledger(Evidence(), 0.02)
    for number in range(60):
        for user in ("ann", "bob", "cid", "dan"):
            for trial in (CRASHED, Trial()):
                add(known, user, "fit", trial, number * PORTION_S)
        known.close_portions((number + 1) * PORTION_S)
    assert is_enough(ALL, known)
    assert evidence_log(known.tally(ALL).fails) > evidence_log(known.against(ALL).fails) > 7


def test_the_share_of_failures_in_a_portion_counts() -> None:
    one, many = (Ledger(Evidence(), 0.02) for _ in range(2))
    for known, times in ((one, 1), (many, 5)):
        for trial in (CRASHED, Trial(shrunk=True), Trial(failed=True), Trial()) * times:
            add(known, "ann", "fit", trial, 0.0)
        known.close_portions(PORTION_S)
    assert many.tally(ALL).fails == one.tally(ALL).fails
    assert (many.evidence.of_all.outcomes, many.evidence.of_all.wholes) == (
        (Outcome("ann", 0.5, 0.0),),
        {"ann": Wholes(1, 0.5)},
    )


def test_the_reason_leaves_out_the_jobs_of_two_users_too() -> None:
    known = Ledger(Evidence(), 0.02)
    for number in range(40):
        for user in ("ann", "bob", *("cid",) * (number > 34)):
            add(known, user, "fit", KILLED, number * PORTION_S)
        known.close_portions((number + 1) * PORTION_S)
    everybody, counted = reason_of(known.tally(ALL)), reason_of(known.against(ALL))
    assert everybody != counted
    assert counted.endswith(everybody.partition("; of ")[2])


def test_a_wrong_clock_that_is_set_back_does_not_keep_jobs_from_counting() -> None:
    """For example on a machine that started in 2038: otherwise nothing of these users would count for years."""
    known = Ledger(Evidence(), 0.02)
    for user in range(20):
        add(known, f"u{user}", "fit", KILLED, 2e9)
    now_s = 1.7e9
    assert ALL in known.close_portions(now_s)
    for number in range(10):
        for user in range(20):
            add(known, f"u{user}", "fit", KILLED, now_s + number * PORTION_S)
        known.close_portions(now_s + (number + 1) * PORTION_S)
    assert is_enough(ALL, known)


def test_a_pool_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "MOST_OUTCOMES", 20)
    monkeypatch.setattr(pools, "MOST_USERS", 10)
    known = Ledger(Evidence(), 0.02)
    for number in range(30):
        for trial in (KILLED, Trial()):
            add(known, f"u{number}", "fit", trial, number * PORTION_S)
        add(known, "u0", "fit", Trial(), number * PORTION_S)
        known.close_portions((number + 1) * PORTION_S)
    pool = known.evidence.of_all
    assert [one.user for one in pool.outcomes] == [f"u{number}" for number in range(10, 30)]
    assert sorted(pool.wholes) == sorted(["u0", *(f"u{number}" for number in range(21, 30))])
    assert pool.wholes["u0"].portions == 30
