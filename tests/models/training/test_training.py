"""What training makes of bounds, and how it calibrates."""

import dataclasses
from functools import partial
from pathlib import Path
from statistics import NormalDist
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.records import Attempt
from accounting.store import records
from accounting.store.batches import read_batches
from accounting.store.database import open_store
from accounting.store.records import read_attempt_columns
from models.demand.features import FEATURES
from models.past.attempts import past_job
from models.past.columns import COLUMNS, columns_of, columns_of_attempts
from models.past.evidence import past_use
from models.past.history import habit_of
from models.past.kills import KILLED_BUMP
from models.training import training
from models.training.calibration import CALIBRATED, offsets_of
from models.training.growth_rows import build_matrices
from models.training.matrix import Matrix, need_of
from models.training.quantile import QUANTILE, fit_quantile, predict, raised, trees_for
from tests.builders import attempt, past
from tests.stores import write_attempts

EXCESS = st.lists(st.tuples(st.integers(-50, 50), st.booleans()), max_size=300)


@given(EXCESS)
def test_offsets_cover_all_jobs_but_the_given_share(excess: list[tuple[int, bool]]) -> None:
    values = np.array([value for value, _ in excess], np.float64)
    bounded = np.array([bound for _, bound in excess], np.bool_)
    found = offsets_of(values, bounded)
    assert [offset.failures for offset in found] == sorted(offset.failures for offset in found)
    known = values[~bounded]
    for failures in CALIBRATED:
        offset = next((one.log_growth for one in found if one.failures == failures), None)
        fit = [candidate for candidate in known if suffices(candidate, values, bounded, failures)]
        assert offset == (min(fit) if fit else None)


def suffices(offset: float, values: Any, bounded: Any, failures: float) -> bool:
    """Whether the next job fails with at most this probability: the same condition for a single offset."""
    failed = int(np.sum(bounded & (values >= offset)))
    jobs = int(np.sum(~bounded)) + failed
    # The job whose excess is the offset has just enough; the next job may lie on either side of it.
    return int(np.sum(~bounded & (values > offset))) + failed + 1 <= failures * (jobs + 1)


def test_a_bound_above_an_offset_counts_as_a_failure_and_one_below_says_nothing() -> None:
    values = np.arange(200, dtype=np.float64)
    none = offsets_of(values, np.zeros(200, np.bool_))
    low = offsets_of(np.append(values, [-1.0] * 50), np.append(np.zeros(200), np.ones(50)).astype(np.bool_))
    high = offsets_of(np.append(values, [500.0]), np.append(np.zeros(200), [1]).astype(np.bool_))
    assert low == none
    assert [(one.failures, one.log_growth) for one in none] == [
        (0.005, 199.0),
        (0.01, 198.0),
        (0.02, 196.0),
        (0.05, 190.0),
    ]
    # A job that no offset covers is by itself one in two hundred, so nothing is known of half a per cent any more.
    assert [(one.failures, one.log_growth) for one in high] == [(0.01, 199.0), (0.02, 197.0), (0.05, 191.0)]


def noisy(jobs: int, limit: float, seed: int) -> tuple[Matrix, Any]:
    """Jobs whose growth is drawn from one distribution and cut off at a limit; and what they really needed."""
    draw = np.random.default_rng(seed)
    need = draw.normal(0, 0.3, jobs)
    inputs = draw.random((jobs, len(FEATURES))).astype(np.float32)
    bounded = need > limit
    return Matrix(inputs, np.minimum(need, limit), np.ones(jobs, np.bool_), bounded), need


def test_the_trees_converge_to_the_quantile() -> None:
    draw = np.random.default_rng(4)
    inputs = draw.random((5_000, len(FEATURES))).astype(np.float32)
    need = 2 * inputs[:, 0] + draw.normal(0, 0.3, 5_000)
    matrix = Matrix(inputs, need, np.ones(5_000, np.bool_), np.zeros(5_000, np.bool_))
    expected = predict(fit_quantile(matrix), inputs)
    quantile = 2 * inputs[:, 0] + 0.3 * NormalDist().inv_cdf(QUANTILE)
    assert np.mean(np.abs(expected - quantile)) < 0.15
    assert np.mean(need <= expected) == pytest.approx(QUANTILE, abs=0.015)


@pytest.mark.parametrize(("rows", "trees"), [(0, 16), (20_000, 16), (80_000, 4), (320_001, 1), (10**7, 1)])
def test_a_round_has_more_trees_the_fewer_rows_there_are(rows: int, trees: int) -> None:
    assert trees_for(rows) == trees


def test_bounds_are_learned_as_bounds() -> None:
    matrix, need = noisy(20_000, 0.45, 5)
    values = Matrix(matrix.inputs, matrix.targets, matrix.settled, np.zeros_like(matrix.bounded))

    def covered(part: Matrix) -> float:
        return float(np.mean(need <= predict(fit_quantile(part), matrix.inputs)))

    left_out, as_bounds = covered(matrix.part(~matrix.bounded)), covered(matrix)
    # All jobs that were cut off lie at one limit: whether the trees end at it or slightly above is chance.
    assert left_out + 0.01 < covered(values) <= as_bounds + 0.001
    assert as_bounds == pytest.approx(QUANTILE, abs=0.05)


def test_a_limit_that_cuts_many_jobs_off_hides_no_differences() -> None:
    draw = np.random.default_rng(8)
    inputs = draw.random((2_000, len(FEATURES))).astype(np.float32)
    need, limit = 2 * inputs[:, 0] + draw.normal(0, 0.1, 2_000), 1.7
    bounded = need >= limit
    assert bounded.mean() > 1 - QUANTILE
    matrix = Matrix(inputs, np.minimum(need, limit), np.ones(2_000, np.bool_), bounded)
    low = inputs[:, 0] < 0.2
    assert predict(fit_quantile(matrix), inputs)[low].max() < 1.0


def test_without_bounds_nothing_is_raised() -> None:
    matrix, _ = noisy(500, 9.0, 6)
    assert not matrix.bounded.any()
    np.testing.assert_array_equal(raised(matrix, np.full(500, 9.0, np.float32)), matrix.targets)


def test_a_raised_bound_is_never_below_what_was_seen() -> None:
    matrix, _ = noisy(500, 0.1, 7)
    expected = np.linspace(-1, 1, 500).astype(np.float32)
    targets = raised(matrix, expected)
    assert (targets >= matrix.targets).all()
    assert (targets[matrix.bounded] >= expected[matrix.bounded]).all()
    np.testing.assert_array_equal(targets[~matrix.bounded], matrix.targets[~matrix.bounded])


def short(mem_mib: float) -> Attempt:
    """A job that ended before its memory had been sampled twice."""
    made = attempt(mem_mib=mem_mib)
    return msgspec.structs.replace(made, use=msgspec.structs.replace(made.use, memory_quality="short"))


def test_memory_sampled_too_early_may_raise_but_is_no_evidence() -> None:
    seen, low, high = past_job(attempt(mem_mib=100.0)), past_job(short(50.0)), past_job(short(300.0))
    alone = past_use([high], "memory")
    assert alone is not None
    assert (alone.needed, alone.complete) == ((300.0,), 0)
    both = past_use([seen, low, high], "memory")
    assert both is not None
    assert (both.needed, both.complete) == ((100.0, 300.0), 1)
    assert need_of(high, "memory") is None
    assert need_of(high, "cores") is not None
    assert habit_of([seen, high]).memory == habit_of([seen]).memory


def test_a_killed_job_teaches_a_bound() -> None:
    killed = past_job(attempt(mem_mib=100.0, state="OUT_OF_MEMORY"))
    need = need_of(killed, "memory")
    assert need is not None
    assert need.bounded
    assert need_of(killed, "cores") is need_of(killed, "wall") is None
    late = need_of(past_job(attempt(state="TIMEOUT")), "wall")
    assert late is not None
    assert late.bounded
    use = past_use([killed], "memory")
    assert use is not None
    assert use.needed == (killed.mem_mib * KILLED_BUMP,)  # type: ignore[operator]


def test_columns_from_the_store_equal_those_of_its_attempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come in the order of submission, in whatever order they were stored and however many are read at a time."""
    monkeypatch.setattr(records, "read_batches", partial(read_batches, rows=7))
    attempts = past(30)
    engine = open_store(f"sqlite:///{tmp_path}/store.db", create=True)
    for some in (attempts[1::2][::-1], attempts[::2]):
        with engine.begin() as connection:
            write_attempts(connection, some)
    stored = columns_of(read_attempt_columns(engine, COLUMNS))
    engine.dispose()
    assert len(attempts) > 14
    np.testing.assert_equal(dataclasses.asdict(stored), dataclasses.asdict(columns_of_attempts(attempts)))
    left, right = training.train_columns(stored, 50), training.train(attempts, 50)
    assert left.seen == right.seen
    assert list(left.history.items()) == list(right.history.items())
    for dimension, matrix in left.matrices.items():
        np.testing.assert_array_equal(matrix.inputs, right.matrices[dimension].inputs)


def test_an_empty_store_has_no_columns(tmp_path: Path) -> None:
    engine = open_store(f"sqlite:///{tmp_path}/store.db", create=True)
    assert len(columns_of(read_attempt_columns(engine, COLUMNS))) == 0
    assert len(columns_of_attempts([])) == 0
    engine.dispose()


def test_rows_of_some_users_do_not_need_other_users_jobs() -> None:
    """So rows can be built user by user, on any host (docs/decisions/0026)."""
    attempts = [
        attempt(
            job_id=number + 1,
            user=f"user{number % 7}",
            account=f"account{number % 2}",
            job_name=f"job{number % 3}",
            submit_s=1_700_000_000 + 50 * (number // 2),
            start_s=1_700_000_010 + 50 * (number // 2),
            mem_mib=100.0 + number * 37 % 101,
        )
        for number in range(300)
    ]
    whole = columns_of_attempts(attempts)
    halves = [build_matrices(whole.part(whole.user.codes % 2 == half), 50) for half in range(2)]
    for dimension, matrix in build_matrices(whole, 50).items():
        assert len(matrix) > 200 or dimension == "gpu_mem", "nothing metered their GPUs"
        for half in range(2):
            mine = matrix.part(matrix.users % 2 == half)
            np.testing.assert_array_equal(mine.inputs, halves[half][dimension].inputs)
            np.testing.assert_array_equal(mine.targets, halves[half][dimension].targets)
