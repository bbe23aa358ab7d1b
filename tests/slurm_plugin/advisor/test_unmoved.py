"""Which parts of a snapshot become records of the queue as it would be without us."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from slurm_plugin.advisor.problem import problem_of
from slurm_plugin.advisor.run_time import RunTime, by_limit
from slurm_plugin.advisor.unmoved import seen_of, unmoved
from slurm_plugin.slurm.snapshot import QueuedJob, Snapshot
from tests.slurm_plugin.slurm.queued import NOW_S, running, snapshot, waiting


def expect(job: QueuedJob) -> RunTime:
    return by_limit(job, "a test")


def known_of(of: Snapshot) -> dict[int, tuple[str, float, float, int]]:
    problem = problem_of(of, expect)
    return {one.job_id: (one.phase, one.came_s, one.ran_s, one.tasks) for one in seen_of(of, problem, {50})}


def test_pending_and_running_jobs_become_records_but_tasks_of_an_array_do_not() -> None:
    of = snapshot(
        running(1),
        running(51, array_job_id=50),
        running(61, array_job_id=60),
        waiting(50, array_job_id=50, array_tasks="2-9", tasks=8),
    )
    assert known_of(of) == {
        1: ("runs", NOW_S - 600, 600.0, 1),
        61: ("runs", NOW_S - 600, 600.0, 1),
        50: ("waits", NOW_S - 60, 0.0, 8),
    }


@pytest.mark.parametrize(
    ("fields", "came_s"),
    [
        ({"submit_s": NOW_S - 900, "eligible_s": NOW_S - 800}, NOW_S - 800),
        ({"submit_s": NOW_S - 900, "eligible_s": 0.0}, NOW_S - 900),
        # It was requeued, and Slurm tells when.
        ({"submit_s": NOW_S - 60, "eligible_s": NOW_S - 60}, NOW_S - 600),
        ({"submit_s": 0.0, "eligible_s": 0.0}, NOW_S - 600),
    ],
)
def test_a_running_job_came_when_it_could_first_start(fields: dict[str, float], came_s: float) -> None:
    assert known_of(snapshot(running(1, **fields))) == {1: ("runs", came_s, 600.0, 1)}


@pytest.mark.parametrize(
    ("submit_s", "eligible_s", "came_s"),
    [
        (NOW_S - 900, NOW_S - 60, NOW_S - 60),
        (NOW_S - 900, NOW_S, NOW_S),
        (NOW_S - 900, 0.0, NOW_S - 900),
        (NOW_S - 900, NOW_S + 60, NOW_S - 900),
        (NOW_S + 1, NOW_S + 1, NOW_S),  # as the queue was read
    ],
)
def test_a_pending_job_came_when_it_could_first_start(
    submit_s: float, eligible_s: float, came_s: float
) -> None:
    job = waiting(1, submit_s=submit_s, eligible_s=eligible_s)
    assert known_of(snapshot(job)) == {1: ("waits", came_s, 0.0, 1)}


def test_tasks_of_an_array_that_was_to_begin_later_are_no_records_of_their_own() -> None:
    array: dict[str, Any] = {"array_job_id": 50, "eligible_s": NOW_S + 30}
    first = snapshot(waiting(50, array_tasks="1-3", tasks=3, **array))
    begun = unmoved(None, first, problem_of(first, expect), 86_400.0)
    later = snapshot(
        running(51, **{**array, "start_s": NOW_S + 40}),
        waiting(50, array_tasks="2-3", tasks=2, **array),
        time_s=NOW_S + 60,
    )
    found = unmoved(begun.shadow, later, problem_of(later, expect), 86_400.0).shadow
    known = {one.job_id for one in (*found.waiting, *found.came)}
    assert known | {task.job_id for task in found.running} == {50}


def test_the_machines_of_the_queue_without_us_are_the_nodes_that_are_there() -> None:
    there = snapshot(waiting(1))
    away = tuple(replace(node, away=node.name == "n1") for node in there.nodes)
    of = snapshot(waiting(1), nodes=away)
    assert unmoved(None, of, problem_of(of, expect), 86_400.0).shadow.nodes == ("n2",)


def test_an_array_with_started_tasks_is_measured_by_its_next_task() -> None:
    first = snapshot(waiting(50, array_job_id=50, array_tasks="1-3", tasks=3, cpus=8, limit_s=100), nodes=1)
    begun = unmoved(None, first, problem_of(first, expect), 86_400.0)
    task = running(51, array_job_id=50, cpus=8, limit_s=100, start_s=NOW_S)
    left = waiting(50, array_job_id=50, array_tasks="2-3", tasks=2, cpus=8, limit_s=100)
    later = snapshot(task, left, nodes=1, time_s=NOW_S + 60)
    found = unmoved(begun.shadow, later, problem_of(later, expect), 86_400.0)
    assert [job.unmoved_start_s for job in found.problem.pending] == [40.0]


def test_other_partitions_start_the_queue_without_us_anew() -> None:
    of = snapshot(waiting(1), waiting(2))
    kept = unmoved(None, of, problem_of(of, expect), 86_400.0).shadow
    other = snapshot(waiting(1, partitions=("other",)), time_s=NOW_S + 60)
    found = unmoved(kept, other, problem_of(other, expect), 86_400.0)
    assert found.shadow.time_s == NOW_S + 60
    assert [one.job_id for one in found.shadow.waiting] == [1]
