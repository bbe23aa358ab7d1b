"""No user dominates the growth models, and no other user's jobs enter a family's history."""

import random
from collections import Counter

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.records import Attempt
from models.demand.prediction import ChainSettings, Predictor
from models.past.attempts import past_job, request_of
from models.past.columns import columns_of_attempts
from models.past.history import History
from models.training.calibration import CALIBRATED, offsets_of
from models.training.growth_rows import build_matrices
from models.training.training import MIN_ROWS, train
from models.training.weights import MOST_OF_EQUAL, MOST_USER_SHARE, heaviest, row_weights, users_apart
from tests.builders import T0, attempt

SETTINGS = ChainSettings()


@given(st.lists(st.integers(0, 12), min_size=1, max_size=400))
def test_no_user_weighs_more_than_the_bound(numbers: list[int]) -> None:
    users = numpy.array(numbers)
    weights = row_weights(users).tolist()
    assert all(0 < weight <= 1 for weight in weights)
    totals: Counter[int] = Counter()
    for user, weight in zip(numbers, weights, strict=True):
        totals[user] += weight
    bound = max(MOST_USER_SHARE, MOST_OF_EQUAL / len(totals))
    assert max(totals.values()) <= bound * sum(totals.values()) * (1 + 1e-9) or bound >= 1


@given(st.lists(st.integers(1, 1000), min_size=200, max_size=300))
def test_with_many_users_none_weighs_more_than_one_per_cent(counts: list[int]) -> None:
    most = heaviest(sorted(counts, reverse=True))
    assert most <= MOST_USER_SHARE * sum(min(count, most) for count in counts) * (1 + 1e-9)


def test_equal_users_weigh_the_same() -> None:
    assert row_weights(numpy.array([0, 1, 2, 0, 1, 2])).tolist() == [1.0] * 6
    assert row_weights(numpy.array([7] * 5)).tolist() == [1.0] * 5
    assert row_weights(numpy.zeros(0, numpy.int64)).tolist() == []


def test_a_user_unlike_all_others_is_set_apart() -> None:
    odd = 50
    users = numpy.append(numpy.arange(2000) % odd, [odd] * 200)
    growth = numpy.random.default_rng(3).normal(0, 0.1, len(users))
    assert users_apart(users, growth, MIN_ROWS) == frozenset()
    for far in (2.0, -2.0):
        changed = numpy.where((users == odd) & (numpy.arange(len(users)) % 5 > 0), far, growth)
        assert users_apart(users, changed, MIN_ROWS) == {odd}
    two = numpy.array([0, 1] * 200)
    assert users_apart(two, numpy.where(two == 0, 2.0, 0.0), MIN_ROWS) == frozenset()
    few = numpy.array([0] * 10 + [1] * (MIN_ROWS - 1))
    assert users_apart(few, numpy.where(few == 0, 2.0, 0.0), MIN_ROWS) == frozenset()
    assert users_apart(users[:0], growth[:0], MIN_ROWS) == frozenset()


def test_a_matrix_without_some_users_keeps_the_rows_of_all_others() -> None:
    attempts = honest_jobs()[: 3 * USERS]
    matrix = build_matrices(columns_of_attempts(attempts), 50)["memory"]
    assert {matrix.names[user] for user in matrix.users} == {one.row.user for one in attempts}
    rest = matrix.without({"u1", "u2", "nobody"})
    owners = [matrix.names[user] for user in rest.users]
    assert set(owners) == {matrix.names[user] for user in matrix.users} - {"u1", "u2"}
    kept = [matrix.names[user] not in ("u1", "u2") for user in matrix.users]
    for name in ("inputs", "targets", "settled", "bounded", "users", "submit_s"):
        numpy.testing.assert_array_equal(getattr(rest, name), getattr(matrix, name)[kept])
    assert matrix.without(()) is matrix


@given(st.lists(st.floats(-3, 3), max_size=300), st.floats(0.01, 1))
def test_equal_weights_calibrate_as_no_weights_do(excess: list[float], weight: float) -> None:
    values, no_bounds = numpy.array(excess, float), numpy.zeros(len(excess), numpy.bool_)
    found = offsets_of(values, no_bounds)
    assert offsets_of(values, no_bounds, numpy.full(len(excess), weight)) == found
    falling = sorted(excess, reverse=True)
    for offset in found:
        assert offset.log_growth == falling[int(offset.failures * (len(falling) + 1)) - 1]


@given(
    st.lists(st.tuples(st.integers(-9, 9), st.booleans(), st.sampled_from([0.25, 0.5, 1.0])), max_size=300)
)
def test_weighted_offsets_and_bounds_follow_their_definition(
    rows: list[tuple[int, bool, float]],
) -> None:
    values, bounded, weights = (numpy.array([row[part] for row in rows], float) for part in range(3))
    found = {one.failures: one.log_growth for one in offsets_of(values, bounded > 0, weights)}
    known = sorted((row for row in rows if not row[1]), key=lambda row: -row[0])
    heaviest = max((weight for *_, weight in rows), default=0.0)
    for failures in CALIBRATED:
        enough, spent = [], 0.0
        for value, _, weight in known:
            spent += weight
            failed = sum(one[2] for one in rows if one[1] and one[0] >= value)
            counted = sum(one[2] for one in known) + failed + heaviest
            if spent + failed <= failures * counted * (1 + 1e-12):
                enough.append(value)
        assert found.get(failures) == (enough[-1] if enough else None)


USERS, JOBS_EACH = 60, 40
NEAR = ("stays just inside", "falls")


def honest_jobs() -> list[Attempt]:
    """Jobs of sixty users in turn, one a minute, each around a need of the user's own."""
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
    """A tenth of all jobs, from one user: a need that jumps, creeps up, shrinks to almost nothing, or is less odd."""
    draw, count = random.Random(4), honest // 9
    jobs = []
    for number in range(count):
        turn = number // 4
        if kind == "jumps":
            mem_mib = 100 * (1 + turn * 0.02) * (30 if turn % 10 == 9 else draw.uniform(0.8, 1))
        elif kind == "blends in":
            mem_mib = 300 * draw.lognormvariate(0, 0.1)
        elif kind == "stays just inside":
            mem_mib = 300 * (1.3 if draw.random() < 0.15 else draw.uniform(0.9, 1))
        elif kind == "falls":
            mem_mib = 400 * 0.985 ** (number % 24) * draw.uniform(0.98, 1.02)
        elif kind == "creeps":
            mem_mib = 100 * 1.15 ** (turn % 30)
        else:
            mem_mib = 6000.0 if turn % 25 == 0 else 100.0
        # To surprise without being set apart from all others, a user has to begin new families all the time.
        name = f"m{number % 4}-{number // 24}" if kind in NEAR else f"m{number % 4}"
        jobs.append(one_job(900_000 + number, "mallory", 60 * honest * number // count, mem_mib, name))
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
@pytest.mark.parametrize("kind", ["jumps", "shrinks", "creeps", "blends in", *NEAR])
def test_a_hostile_user_moves_no_other_users_prediction_by_more_than_a_twentieth(kind: str) -> None:
    honest = honest_jobs()
    everyone = honest[-USERS:]
    alone = predicted(honest, everyone)
    beside = predicted([*honest, *hostile_jobs(kind, len(honest))], everyone)
    moved = [after / before for before, after in zip(alone, beside, strict=True)]
    assert max(moved) <= 1.05
    assert min(moved) >= 0.95


@given(st.lists(st.tuples(st.sampled_from(["alice", "bob"]), st.floats(10, 5000)), min_size=1, max_size=20))
def test_no_other_users_jobs_enter_a_familys_history(jobs: list[tuple[str, float]]) -> None:
    history = History(50)
    for number, (user, mem_mib) in enumerate(jobs):
        one = one_job(number, user, 60 * number, mem_mib, "same")
        history.add(request_of(one), past_job(one))
    for user in ("alice", "bob"):
        evidence = history.evidence(request_of(one_job(99, user, 0, 1.0, "same")), 1)
        own = [mem_mib for owner, mem_mib in jobs if owner == user]
        seen = [] if evidence is None else [job.mem_mib for job in evidence.jobs]
        assert seen == pytest.approx(own)
