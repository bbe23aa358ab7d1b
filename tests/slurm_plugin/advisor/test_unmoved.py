"""Which parts of a snapshot become records of the queue as it would be without us."""

from __future__ import annotations

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
