"""No user makes the growth models theirs, and nobody else's jobs are in anybody's history."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.records import Attempt
from models.demand.prediction import ChainSettings, Predictor
from models.demand.training import MIN_ROWS, offsets_of, train
from models.demand.weights import MOST_OF_EQUAL, MOST_USER_SHARE, heaviest, row_weights, users_apart
from models.history import History, past_job, request_of
from tests.builders import T0, attempt

SETTINGS = ChainSettings()


@given(st.lists(st.integers(0, 12), min_size=1, max_size=400))
def test_no_user_weighs_more_than_the_bound(numbers: list[int]) -> None:
    users = [f"u{number}" for number in numbers]
    weights = row_weights(users)
    assert all(0 < weight <= 1 for weight in weights)
    totals: Counter[str] = Counter()
    for user, weight in zip(users, weights, strict=True):
        totals[user] += weight  # type: ignore[assignment]
    bound = max(MOST_USER_SHARE, MOST_OF_EQUAL / len(totals))
    assert max(totals.values()) <= bound * sum(totals.values()) * (1 + 1e-9) or bound >= 1


@given(st.lists(st.integers(1, 1000), min_size=200, max_size=300))
def test_with_many_users_nobody_weighs_more_than_one_per_cent(counts: list[int]) -> None:
    most = heaviest(sorted(counts, reverse=True))
    assert most <= MOST_USER_SHARE * sum(min(count, most) for count in counts) * (1 + 1e-9)


def test_equal_users_weigh_the_same() -> None:
    assert row_weights(["a", "b", "c", "a", "b", "c"]) == [1.0] * 6
    assert row_weights(["alone"] * 5) == [1.0] * 5
    assert row_weights([]) == []


def test_who_is_unlike_all_others_is_apart() -> None:
    users = [f"u{number % 50}" for number in range(2000)] + ["odd"] * 200
    draw = random.Random(3)
    growth = [draw.gauss(0, 0.1) for _ in users]
    assert users_apart(users, growth, MIN_ROWS) == frozenset()
    for far in (2.0, -2.0):
        changed = [
            far if user == "odd" and n % 5 else value
            for n, (user, value) in enumerate(zip(users, growth, strict=True))
        ]
        assert users_apart(users, changed, MIN_ROWS) == {"odd"}
    two = ["a", "b"] * 200
    assert users_apart(two, [2.0 if user == "a" else 0.0 for user in two], MIN_ROWS) == frozenset()
    few = ["a"] * 10 + ["b"] * (MIN_ROWS - 1)
    assert users_apart(few, [2.0 if user == "a" else 0.0 for user in few], MIN_ROWS) == frozenset()


@given(st.lists(st.floats(-3, 3), max_size=300), st.floats(0.01, 1))
def test_the_same_weight_for_all_calibrates_as_none_does(excess: list[float], weight: float) -> None:
    assert offsets_of(excess, [weight] * len(excess)) == offsets_of(excess)
    places = {offset.failures: offset.log_growth for offset in offsets_of(excess)}
    falling = sorted(excess, reverse=True)
    for failures, log_growth in places.items():
        assert log_growth == falling[int(failures * (len(falling) + 1)) - 1]


USERS, JOBS_EACH = 60, 40


def honest_jobs() -> list[Attempt]:
    """Sixty users, one job a minute in turn, each around a need of their own."""
    draw = random.Random(3)
    return [
        one_job(
            number,
            f"u{number % USERS}",
            60 * number,
            (100 + 40 * (number % USERS % 7)) * draw.lognormvariate(0, 0.05 + 0.02 * (number % 5)),
        )
        for number in range(USERS * JOBS_EACH)
    ]


def hostile_jobs(kind: str, honest: int) -> list[Attempt]:
    """A tenth of all jobs, of one user: a need that jumps, that creeps up, or that is nothing beside what it was."""
    draw, count = random.Random(4), honest // 9
    jobs = []
    for number in range(count):
        turn = number // 4
        if kind == "jumps":
            mem_mib = 100 * (1 + turn * 0.02) * (30 if turn % 10 == 9 else draw.uniform(0.8, 1))
        elif kind == "blends in":
            mem_mib = 300 * draw.lognormvariate(0, 0.1)
        elif kind == "creeps":
            mem_mib = 100 * 1.15 ** (turn % 30)
        else:
            mem_mib = 6000.0 if turn % 25 == 0 else 100.0
        jobs.append(
            one_job(900_000 + number, "mallory", 60 * honest * number // count, mem_mib, f"m{number % 4}")
        )
    return jobs


def one_job(job_id: int, user: str, after_s: int, mem_mib: float, job_name: str = "work") -> Attempt:
    return attempt(
        job_id=job_id,
        user=user,
        job_name=job_name,
        submit_s=T0 + after_s,
        start_s=T0 + after_s + 10,
        elapsed_s=40,
        req_mem_mib=8000,
        mem_mib=min(mem_mib, 7900.0),
    )


def predicted(attempts: list[Attempt], asked_by: list[Attempt]) -> list[float]:
    trained = train(attempts, 50)
    predictor = Predictor("trained", trained.history, trained.growth(SETTINGS.most_failures), SETTINGS)
    uppers = []
    for one in asked_by:
        memory = predictor.predict(request_of(one)).memory
        assert memory is not None
        uppers.append(memory.upper)
    return uppers


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["jumps", "shrinks", "creeps", "blends in"])
def test_a_hostile_user_moves_nobody_elses_prediction_by_more_than_a_twentieth(kind: str) -> None:
    honest = honest_jobs()
    everyone = honest[-USERS:]
    alone = predicted(honest, everyone)
    beside = predicted([*honest, *hostile_jobs(kind, len(honest))], everyone)
    moved = [after / before for before, after in zip(alone, beside, strict=True)]
    assert max(moved) <= 1.05
    assert min(moved) >= 0.95


@given(st.lists(st.tuples(st.sampled_from(["alice", "bob"]), st.floats(10, 5000)), min_size=1, max_size=20))
def test_nobody_elses_jobs_enter_a_familys_history(jobs: list[tuple[str, float]]) -> None:
    history = History(50)
    for number, (user, mem_mib) in enumerate(jobs):
        one = one_job(number, user, 60 * number, mem_mib, "same")
        history.add(request_of(one), past_job(one))
    for user in ("alice", "bob"):
        evidence = history.evidence(request_of(one_job(99, user, 0, 1.0, "same")), 1)
        own = [mem_mib for owner, mem_mib in jobs if owner == user]
        seen = [] if evidence is None else [job.mem_mib for job in evidence.jobs]
        assert seen == pytest.approx(own)
