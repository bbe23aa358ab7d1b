"""Plans with GPUs of several types: rows after CPUs, memory and GPUs count the GPUs of each type."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.errors import ModelError
from models.planning.cells import cells_of, slurm_order
from models.planning.checks import check
from models.planning.forward import Until
from models.planning.futures import likely_future, look_ahead
from models.planning.planning import plan
from models.planning.problem import Bounds, Holding, Machine, Pending, Problem, Yields
from models.planning.rollout import expected_starts, places_of
from models.scheduling.backfill import Ending, Promise
from models.scheduling.room import PLAIN, Amounts
from tests.models.planning.problems import POOL, holding, job, problems

CPU = 1000
A100, H100 = (CPU, 1, 1000, 1000, 0), (CPU, 1, 1000, 0, 1000)
ANY = (CPU, 1, 1000, 0, 0)


def node(*types: int) -> Machine:
    return Machine(amounts=(64_000, 64, 1000 * sum(types), *(1000 * count for count in types)), pools=POOL)


def times(number: int, demand: Amounts) -> Amounts:
    return tuple(number * amount for amount in demand)


def runs(machine: int, amounts: Amounts, left_s: float) -> Holding:
    return msgspec.structs.replace(holding(machine, 1, left_s), parts=((machine, amounts),))


def starts(
    machines: Sequence[Machine], pending: Sequence[Pending], running: Sequence[Holding] = ()
) -> list[float]:
    problem = Problem(machines=tuple(machines), pending=tuple(pending), running=tuple(running))
    return [span.start_s for span in expected_starts(problem, samples=0)]


def test_a_job_waits_for_its_own_type_where_another_is_free() -> None:
    held = [runs(0, times(4, A100), 100.0), runs(1, times(2, H100), 50.0)]
    asked = [job(1, demand=times(4, H100)), job(2, demand=A100), job(3, demand=ANY)]
    # The last job could have the two free GPUs if it were over before the first needs them.
    assert starts([node(4, 0), node(0, 4)], asked, held) == [50.0, 100.0, 100.0]


def test_a_preempting_job_ends_jobs_that_have_its_type() -> None:
    yields = Yields(above=1)
    held = [
        msgspec.structs.replace(runs(0, times(2, kind), 100.0), job_id=number, yields=yields)
        for number, kind in enumerate((A100, H100), 100)
    ]
    high, low = job(1, demand=times(2, H100), tier=2, run_s=500.0), job(2, demand=A100)
    assert starts([node(2, 2)], [high, low], held) == [0.0, 100.0]


def test_a_type_that_is_taken_is_not_available_on_a_node_of_several_types() -> None:
    held = [runs(0, times(2, A100), 100.0)]
    assert starts([node(2, 2)], [job(1, demand=A100), job(2, demand=H100)], held) == [100.0, 0.0]


def test_gpus_of_any_type_are_taken_from_the_first_type_that_is_free() -> None:
    asked = [job(1, demand=times(3, ANY)), job(2, demand=H100), job(3, demand=A100)]
    assert starts([node(2, 2)], asked) == [0.0, 0.0, 60.0]


def test_equal_jobs_go_on_to_the_next_type_of_a_node() -> None:
    array = job(1, demand=times(2, ANY), tasks=2)
    assert starts([node(2, 2)], [array, job(2, demand=H100)]) == [0.0, 60.0]


def test_equal_jobs_go_on_to_the_next_type_also_where_they_pass_a_waiting_job() -> None:
    held = [runs(0, (CPU, 1, 0, 0, 0), 1000.0)]
    whole = job(1, demand=(64 * CPU, 1, 0, 0, 0))
    array = job(2, demand=times(2, ANY), tasks=2)
    assert starts([node(2, 2)], [whole, array, job(3, demand=H100)], held) == [1000.0, 0.0, 60.0]


@pytest.mark.parametrize("seed", range(6))
def test_a_promise_that_is_kept_equals_one_worked_out_anew(seed: int) -> None:
    draw = numpy.random.default_rng(seed)
    pending = []
    for number in range(60):
        gpus = int(draw.integers(1, 5))
        kind = (ANY, ANY, A100, H100)[int(draw.integers(0, 4))]
        run_s = float(draw.integers(1, 60) * 60)
        limit_s = run_s * float(draw.uniform(1, 4))
        pending.append(job(number, demand=times(gpus, kind), run_s=run_s, limit_s=limit_s))
    machines = [node(4, 0), node(0, 4), node(2, 2), node(2, 2)]
    holds, seen = Promise.holds, set[tuple[bool, bool]]()

    def watched(promise: Promise, ending: Ending, end_s: float) -> bool:
        before = promise.beside.free.copy()
        is_kept = holds(promise, ending, end_s)
        seen.add((is_kept, bool((promise.beside.free != before)[PLAIN:].any())))
        return is_kept

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Promise, "holds", watched)
        kept = starts(machines, pending)
        patch.setattr(Promise, "holds", lambda *_: False)
        assert starts(machines, pending) == kept
    # Promises were kept, also while GPUs of a type became free beside them, and others were not.
    assert seen >= {(True, True), (True, False), (False, False)}


def test_a_job_on_several_nodes_needs_its_type_on_each() -> None:
    held = [runs(2, times(2, H100), 30.0)]
    both = job(1, demand=times(4, H100), nodes=2)
    assert starts([node(4, 0), node(0, 2), node(0, 2)], [both], held) == [30.0]


def test_no_start_is_foreseen_where_no_machine_has_enough_of_a_type() -> None:
    assert starts([node(4, 2)], [job(1, demand=times(4, H100))]) == [float("inf")]


def test_starts_without_a_plan_wait_for_the_requested_type() -> None:
    held = [runs(0, times(2, A100), 3000.0)]
    long = job(1, demand=times(2, A100), run_s=3000.0)
    short = job(2, demand=A100, run_s=60.0)
    found = plan(Problem(machines=(node(2, 2),), pending=(long, short), running=tuple(held)), Bounds())
    assert {one.job_id: one.base_start_s for one in found.jobs} == {1: 3000.0, 2: 6000.0}


def test_amounts_of_different_resources_make_no_problem() -> None:
    with pytest.raises(ModelError, match="different resources"):
        check(Problem(machines=(node(4, 0),), pending=(job(1),), running=()))


@given(problems())
@settings(deadline=None)
def test_a_single_type_that_covers_all_gpus_changes_no_start(problem: Problem) -> None:
    def doubled(amounts: Amounts) -> Amounts:
        # GPUs are as scarce as memory, and one type covers all of them.
        return (*amounts[:2], amounts[1] * 1000, amounts[1] * 1000)

    def with_gpus(amounts: Amounts) -> Amounts:
        return doubled(amounts)[:3]

    plain, typed = (
        msgspec.structs.replace(
            problem,
            machines=tuple(
                msgspec.structs.replace(one, amounts=told(one.amounts)) for one in problem.machines
            ),
            pending=tuple(msgspec.structs.replace(one, demand=told(one.demand)) for one in problem.pending),
            running=tuple(
                msgspec.structs.replace(
                    one, parts=tuple((machine, told(amounts)) for machine, amounts in one.parts)
                )
                for one in problem.running
            ),
            windows=tuple(msgspec.structs.replace(one, amounts=told(one.amounts)) for one in problem.windows),
        )
        for told in (with_gpus, doubled)
    )
    assert expected_starts(plain, 2) == expected_starts(typed, 2)


demands = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)).filter(any)


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=3),
    st.lists(st.tuples(demands, st.sampled_from([1, 1, 2]), st.integers(1, 5)), min_size=1, max_size=12),
)
@settings(deadline=None)
def test_no_gpu_of_a_type_is_given_twice(
    has: list[tuple[int, int]], asked: list[tuple[tuple[int, int, int], int, int]]
) -> None:
    machines = tuple(node(*types) for types in has)
    pending = tuple(
        job(
            number,
            demand=times(nodes, (0, 0, 1000 * sum(counts), 1000 * counts[0], 1000 * counts[1])),
            nodes=nodes,
            run_s=60.0 * minutes,
        )
        for number, (counts, nodes, minutes) in enumerate(asked)
    )
    problem = Problem(machines=machines, pending=pending, running=())
    cells = cells_of(problem)
    future = likely_future(problem, cells)
    found = look_ahead(cells, places_of(slurm_order(pending)), future, [Until()] * len(cells))
    (rolled,) = found.rolled
    spans = [
        (start_s, start_s + pending[number].likely_s, parts)
        for number, start_s, parts in zip(rolled.numbers, rolled.starts_s, rolled.parts, strict=True)
    ]
    for at_s, _, _ in spans:
        for machine, one in enumerate(machines):
            held = [
                amounts
                for from_s, to_s, parts in spans
                for place, amounts in parts
                if place == machine and from_s <= at_s < to_s
            ]
            # Every GPU is of one of the types here, so each GPU that is held belongs to a type.
            assert all(sum(amounts[3:]) == amounts[2] for amounts in held)
            for resource, most in enumerate(one.amounts):
                assert sum(amounts[resource] for amounts in held) <= most
