"""What steps that requested a part of their job held at one time, as 22.05, 24.11 and 26.05 record such steps."""

from typing import Any

import pytest

from accounting.decisions.token import format_token
from tests.builders import T0, Step, decision, job_row, label_attempt, request, srun

CPUS, MEM_MIB = 8, 4000


def part(
    number: int, cpus: int, mem_mib: int = MEM_MIB, *, start_s: int = 0, end_s: int = 9, **told: Any
) -> Step:
    return srun(number, start_s, end_s, 1, alloc_cpus=cpus, alloc_mem_mib=mem_mib, **told)


def held(
    *steps: Step, num_tasks: int = 1, node_mib: int | None = None, **changes: Any
) -> tuple[int | None, int | None]:
    asked = request(num_tasks=num_tasks, cpus_per_task=CPUS // num_tasks, mem_per_node_mib=node_mib)
    token = format_token(decision(request=asked))
    amounts = {"alloc_cpus": CPUS, "alloc_mem_mib": MEM_MIB, "admin_comment": token}
    use = label_attempt(job_row(**{**amounts, **changes}), steps).use
    return use.step_cpus, use.step_mem_mib


@pytest.mark.parametrize(
    ("steps", "cpus"),
    [
        ([], None),
        ([part(0, CPUS)], None),
        ([part(0, CPUS), part(1, CPUS, start_s=9, end_s=20)], None),
        ([part(number, 1) for number in range(6)], 6),
        ([part(0, 3), part(1, 2, start_s=9, end_s=20)], 3),
        ([part(0, CPUS, tasks=8)], CPUS),
        ([part(0, CPUS, tasks=8)] * 2, CPUS),
        ([part(number, 1, end_s=0) for number in range(6)], None),
        ([part(number, 1, end_s=-T0) for number in range(6)], 6),
    ],
    ids=[
        "no_step",
        "all",
        "one_after_the_other",
        "at_once",
        "in_turn",
        "more_tasks",
        "overlapping",
        "in_no_time",
        "lost_with_their_node",
    ],
)
def test_the_cpus_that_steps_requested_are_those_held_at_one_time(
    steps: list[Step], cpus: int | None
) -> None:
    assert held(*steps)[0] == cpus


def test_a_step_of_as_many_tasks_as_its_job_requested_nothing_else() -> None:
    assert held(part(0, CPUS, tasks=4), num_tasks=4)[0] is None
    assert held(part(0, CPUS, tasks=4), admin_comment="")[0] is None, "nobody knows what the job asked for"
    assert held(part(0, CPUS, tasks=2, nodes=2), nodes=2)[0] is None, "a task on each node"


def test_a_step_on_one_of_two_nodes_has_all_that_the_job_has_there() -> None:
    assert held(part(0, CPUS // 2, MEM_MIB // 2), nodes=2) == (None, None)
    assert held(part(0, 1, 100), nodes=2) == (1, 100)
    on_both = part(0, CPUS, MEM_MIB // 2, nodes=2)
    assert held(on_both, nodes=2, node_mib=MEM_MIB // 2) == (None, MEM_MIB // 2)


def test_each_component_of_a_step_has_its_own_part() -> None:
    """`srun -N1 -c2 --mem=100 a : -N1 -c3 --mem=200 b`, as 22.05 records it."""
    parts = [part(0, 2, 100, step_id="0+0"), part(0, 3, 200, step_id="0+1")]
    assert held(*parts, num_tasks=2, nodes=2) == (5, 300)


@pytest.mark.parametrize(
    ("steps", "job"),
    [
        ([part(number, 2, 1000) for number in range(4)], {"num_tasks": 4}),
        ([part(0, 3)], {"req_cpus": 3, "alloc_cpus": 4}),
        ([part(0, 9, 3600, tasks=3)], {"num_tasks": 3, "req_cpus": 9, "alloc_cpus": 10}),
        ([part(n, 6, 2000) for n in range(2)], {"num_tasks": 2, "req_cpus": 6, "alloc_cpus": 12}),
        ([part(0, 2, MEM_MIB, tasks=2, nodes=2)], {"num_tasks": 8, "nodes": 2}),
    ],
    ids=["side_by_side", "odd_on_two_threads_a_core", "tasks_on_them", "one_thread_a_core", "a_launcher"],
)
def test_a_step_with_as_many_cpus_a_task_as_its_job_asked_for_nothing(
    steps: list[Step], job: dict[str, Any]
) -> None:
    """From 24.11 on srun takes them from the job, as it does by SRUN_CPUS_PER_TASK before: they follow a cut."""
    assert held(*steps, **{"req_cpus": CPUS, **job}) == (None, None)


def test_a_step_with_fewer_cpus_a_task_asked_and_one_with_more_but_not_all() -> None:
    assert held(*[part(number, 1) for number in range(8)], num_tasks=4)[0] == 8
    assert held(part(0, 4), num_tasks=4)[0] == 4


@pytest.mark.parametrize("cpus", [4, 8])
def test_a_step_on_one_of_uneven_nodes_asked_for_nothing(cpus: int) -> None:
    """Of `-N2 -n3 -c4` one node has eight CPUs and the other four."""
    uneven = {"num_tasks": 3, "nodes": 2, "req_cpus": 12, "alloc_cpus": 12}
    assert held(part(0, cpus, MEM_MIB // 2), **uneven) == (None, None)
    assert held(part(0, 3, MEM_MIB // 2), **uneven) == (3, None)


def test_an_equal_part_of_memory_was_asked_for_if_memory_does_not_come_with_cpus_or_gpus() -> None:
    parts = [part(number, 1, MEM_MIB // CPUS) for number in range(8)]
    assert held(*parts, node_mib=MEM_MIB)[1] == MEM_MIB
    assert held(*parts)[1] is None
    assert held(part(0, CPUS, MEM_MIB // 4), alloc_gpus=4)[1] is None
    assert held(part(0, CPUS, MEM_MIB // 4), alloc_gpus=4, node_mib=MEM_MIB)[1] == MEM_MIB // 4


@pytest.mark.parametrize(
    ("steps", "mem_mib"),
    [
        ([part(0, CPUS, 200), part(1, CPUS, 300)], 500),
        ([part(0, CPUS, 200), part(1, CPUS, 300, start_s=9, end_s=20)], 300),
        ([part(number, 1, MEM_MIB // CPUS) for number in range(8)], None),
        ([part(0, 2, MEM_MIB // 2)], MEM_MIB // 2),
        ([part(0, 1)], None),
    ],
    ids=["at_once", "in_turn", "as_comes_with_their_cpus", "more_than_comes_with_their_cpus", "all"],
)
def test_the_memory_that_steps_requested_is_that_held_at_one_time(
    steps: list[Step], mem_mib: int | None
) -> None:
    assert held(*steps)[1] == mem_mib


def test_nothing_is_known_of_a_step_whose_part_was_not_recorded() -> None:
    assert held(srun(0, 0, 9, 1)) == (None, None)
    assert held(part(0, 1, 100), alloc_cpus=None, alloc_mem_mib=None) == (None, None)
