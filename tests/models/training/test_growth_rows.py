"""Training rows computed in columns are those of the replay, job by job; so is the history that they leave."""

import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from accounting.records import Attempt
from models.demand.chain import is_settled
from models.demand.features import FEATURES, features
from models.past.attempts import past_job
from models.past.columns import columns_of_attempts
from models.past.history import History
from models.past.jobs import LEARNED, Learned
from models.past.loading import history_of
from models.training.growth_rows import build_matrices
from models.training.matrix import Matrix, Row, matrix_of, need_of
from models.training.windows import SUBMISSIONS_A_PART
from models.versions.artefact import StoredFamily
from tests.builders import T0, attempt, replay

Told = dict[Learned, list[tuple[str, int]]]


def replayed(attempts: list[Attempt], recent_jobs: int) -> tuple[History, dict[Learned, Matrix | None], Told]:
    """The history, training rows, and users and submit times of the rows, computed job by job."""
    history = History(recent_jobs)
    rows: dict[Learned, list[Row]] = {dimension: [] for dimension in LEARNED}
    told: Told = {dimension: [] for dimension in LEARNED}
    for one, request in replay(attempts, history):
        evidence = history.evidence(request, enough=1)
        if evidence is None:
            continue
        habit = history.user_habit(request)
        for dimension in LEARNED:
            past, need = evidence.use(dimension), need_of(past_job(one), dimension)
            if past is not None and need is not None:
                inputs = features(request, evidence, habit, dimension)
                rows[dimension].append(
                    Row(inputs, need.log - past.highest_log, is_settled(past), need.bounded, request.user)
                )
                told[dimension].append((request.user, one.row.submit_s))
    matrices = {dimension: matrix_of(found) if found else None for dimension, found in rows.items()}
    return history, matrices, told


def stored(history: History) -> tuple[Any, ...]:
    families = tuple(
        StoredFamily(family, tuple(jobs), history.beside(family)) for family, jobs in history.items()
    )
    return {dimension: users.held().users for dimension, users in history.held.items()}, families


def assert_same(attempts: list[Attempt], recent_jobs: int) -> dict[Learned, Matrix]:
    history, expected, told = replayed(attempts, recent_jobs)
    columns = columns_of_attempts(attempts)
    whole = history_of(columns, recent_jobs)
    assert stored(whole) == stored(history)
    found = build_matrices(columns, recent_jobs)
    for dimension, matrix in found.items():
        right = expected[dimension]
        if right is None:
            assert len(matrix) == 0
            continue
        assert matrix.inputs.shape == right.inputs.shape
        assert (matrix.inputs.dtype.name, matrix.inputs.shape[1]) == ("float32", len(FEATURES))
        np.testing.assert_allclose(matrix.inputs, right.inputs, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(matrix.targets, right.targets, rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(matrix.settled, right.settled)
        np.testing.assert_array_equal(matrix.bounded, right.bounded)
        users = [matrix.names[user] for user in matrix.users]
        assert [right.names[user] for user in right.users] == users
        assert list(zip(users, matrix.submit_s.tolist(), strict=True)) == told[dimension]
    return found


OUTCOMES = ("completed", "timeout", "out_of_memory", "cut_short")
KNOWN = [0.0, 0.5, 100.0, 101.0, 103.0, 250.0, 1e5, math.nan, math.inf]
INPUTS = [0.5, 1.0, 2.0, 4.0, 4.1, 16.0, 1e6]
AMOUNTS = st.none() | st.sampled_from(KNOWN) | st.floats(0, 1e6)


@st.composite
def any_attempt(draw: st.DrawFn) -> Attempt:
    made = attempt(job_id=draw(st.integers(1, 9)))
    submit_s = T0 + draw(st.integers(0, 12))
    start_s = draw(st.just(0) | st.integers(submit_s, submit_s + 6))
    wall_s = draw(st.integers(0, 8))
    row = msgspec.structs.replace(
        made.row,
        user=draw(st.sampled_from(["alice", "bob"])),
        account=draw(st.sampled_from(["", "phys", "\udce9"])),
        partition=draw(st.sampled_from(["main", "gpu"])),
        job_name=draw(st.sampled_from(["fit-1", "fit-2", "wrap", "", "plot"])),
        submit_s=submit_s,
        start_s=start_s,
        end_s=max(start_s, submit_s) + wall_s,
        limit_s=draw(st.sampled_from([None, 0, 60, 3600])),
        alloc_cpus=draw(st.sampled_from([None, 1, 8])),
        alloc_gpus=draw(st.sampled_from([None, 0, 1, 4])),
    )
    use = msgspec.structs.replace(
        made.use,
        outcome=draw(st.sampled_from(OUTCOMES)),
        peak_mem_mib=draw(AMOUNTS),
        memory_quality=draw(st.sampled_from(["exact", "sampled", "short", "censored", "absent"])),
        cores_per_task=draw(AMOUNTS),
        wall_s=wall_s,
        gpus=draw(st.none() | st.integers(0, 4)),
        gpu_source=draw(st.sampled_from(["", "nvml"])),
        gpu_mem_mib=draw(AMOUNTS),
        gpu_quality=draw(st.sampled_from(["sampled", "short", "censored", "absent"])),
    )
    return msgspec.structs.replace(
        made,
        input_mib=draw(st.none() | st.sampled_from(INPUTS)),
        row=row,
        use=use,
        num_tasks=draw(st.sampled_from([1, 1, 1, 4])),
        asked_cpus=draw(st.sampled_from([None, 1, 2, 8])),
        asked_mem_mib=draw(st.sampled_from([None, 0, 100, 200, 4000])),
        asked_gpus=draw(st.sampled_from([None, 0, 1, 4])),
        script_signature=draw(st.sampled_from(["", "a", "b", "c", "d"])),
    )


@settings(max_examples=400, deadline=None)
@given(st.lists(any_attempt(), min_size=1, max_size=40), st.sampled_from([1, 2, 3, 50]))
@example([attempt()], 50)
def test_rows_and_history_equal_those_of_the_replay(attempts: list[Attempt], recent_jobs: int) -> None:
    assert_same(attempts, recent_jobs)


def long_past(jobs: int, seed: int) -> list[Attempt]:
    """One busy family with streaks and ties, and others."""
    draw = np.random.default_rng(seed)
    made = attempt()
    attempts = []
    for number in range(jobs):
        family = int(draw.integers(0, 3)) if number % 4 else 0
        submit_s, wall_s = T0 + number // 2, int(draw.integers(1, 60))
        killed = draw.random() < 0.1
        row = msgspec.structs.replace(
            made.row,
            job_name=f"fit{'abc'[family]}",
            submit_s=submit_s,
            start_s=submit_s,
            end_s=submit_s + wall_s,
        )
        use = msgspec.structs.replace(
            made.use,
            peak_mem_mib=float(np.round(draw.lognormal(5, 0.4))),
            memory_quality="censored" if killed else "sampled",
            outcome="out_of_memory" if killed else OUTCOMES[int(draw.choice([0, 0, 0, 1, 3]))],
            cores_per_task=float(draw.random()),
            wall_s=wall_s,
        )
        attempts.append(msgspec.structs.replace(made, row=row, use=use))
    return attempts


@pytest.mark.parametrize("seed", range(3))
def test_full_windows_and_settled_families_equal_those_of_the_replay(seed: int) -> None:
    found = assert_same(long_past(400, seed), 50)
    for dimension in ("memory", "wall"):
        matrix = found[dimension]
        assert 0 < matrix.bounded.sum() < len(matrix)
        assert 0 < matrix.settled.sum() < len(matrix)
        assert matrix.inputs[:, 0].max() > 40


def test_full_windows_with_few_known_inputs_equal_those_of_the_replay() -> None:
    draw = np.random.default_rng(5)
    sizes_mib = [None, None, None, None, 1.0, 3.0, 20.0]
    attempts = [
        msgspec.structs.replace(one, input_mib=sizes_mib[int(draw.integers(len(sizes_mib)))])
        for one in long_past(300, 4)
    ]
    assert_same(attempts, 20)


def test_rows_do_not_depend_on_how_many_submissions_are_taken_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempts = long_past(300, 9)
    whole = build_matrices(columns_of_attempts(attempts), 20)
    assert len(attempts) < SUBMISSIONS_A_PART
    monkeypatch.setattr("models.training.windows.SUBMISSIONS_A_PART", 7)
    for dimension, matrix in build_matrices(columns_of_attempts(attempts), 20).items():
        np.testing.assert_array_equal(matrix.inputs, whole[dimension].inputs)


def test_a_bound_is_what_was_seen_and_a_value_what_was_needed() -> None:
    first = attempt(job_id=1, mem_mib=100.0)
    killed = attempt(job_id=2, mem_mib=200.0, submit_s=T0 + 500, start_s=T0 + 510, state="OUT_OF_MEMORY")
    matrix = build_matrices(columns_of_attempts([first, killed]), 50)["memory"]
    peak_mib = killed.use.peak_mem_mib
    assert peak_mib is not None
    assert matrix.targets.tolist() == pytest.approx([math.log(peak_mib / 100)])
    assert matrix.bounded.tolist() == [True]
