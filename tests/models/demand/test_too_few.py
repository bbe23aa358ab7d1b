"""Which jobs show that CPUs, or GPUs, were too few."""

from typing import Any

import pytest

from models.demand.too_few import gpus_to_go_on, too_few, was_filled
from models.past.jobs import PastJob
from models.past.kills import KILLED_BUMP
from tests.models.demand.cut_jobs import job


def late(**changes: Any) -> PastJob:
    return job(wall_at_least=True, complete=False, **changes)


@pytest.mark.parametrize(
    ("jobs", "cpus"),
    [
        ([], 0),
        ([job()], 0),
        ([late()], 2),
        ([late(), job(given_cpus=5, cores_per_task=5.0), late(given_cpus=4, cores_per_task=4.0)], 4),
        ([late(num_tasks=2, given_cpus=6, cores_per_task=3.0)], 3),
        ([late(cores_per_task=1.0)], 0),
        ([late(), late(given_cpus=8, cores_per_task=8.0)], 0),
        ([late(), late(given_cpus=None, cores_per_task=8.0)], 0),
        ([late(), late(asked_cpus=None)], 0),
        ([late(cores_per_task=None)], 0),
    ],
    ids=[
        "none", "in_time", "late", "the_most_of_them", "by_task", "not_busy", "with_all_it_asked_for", "not_cut",
        "asked_for_none", "not_known",
    ],
)  # fmt: skip
def test_cpus_were_too_few_for_a_job_that_was_late_and_kept_all_its_cpus_busy(
    jobs: list[PastJob], cpus: int
) -> None:
    assert too_few(jobs) == pytest.approx(KILLED_BUMP * cpus)


def stopped(**changes: Any) -> PastJob:
    """A job that failed with the two CPUs that it was granted."""
    return job(**{"complete": False, "cores_per_task": 0.1, "job_id": 7, **changes})


def idle(**changes: Any) -> PastJob:
    """A job that waited until its time was over; according to accounting, its need is complete."""
    return job(**{"wall_at_least": True, "cores_per_task": 0.1, "job_id": 8, **changes})


def whole(**changes: Any) -> PastJob:
    return job(**{"given_cpus": 8, "job_id": 7, "given_mem_mib": 8000, "mem_mib": 200.0, **changes})


@pytest.mark.parametrize(
    ("jobs", "cpus"),
    [
        ([stopped()], 0),
        ([stopped(), whole()], 8),
        ([stopped(num_tasks=2), whole(num_tasks=2)], 4),
        ([idle(job_id=7), whole()], 8),
        ([stopped(), whole(job_id=9)], 0),
        ([stopped(), whole(wall_at_least=True)], 0),
        ([stopped(), whole(given_cpus=2)], 0),
        ([stopped(given_cpus=8), whole()], 0),
        ([stopped(mem_at_least=True), whole()], 0),
        ([stopped(given_mem_mib=100), whole()], 0),
        ([stopped(given_gpus=1, asked_gpus=2), whole()], 0),
        ([stopped(), whole(), *[job()] * 9], 8),
        ([stopped(), whole(), *[job()] * 10], 0),
        ([stopped(), whole(), *[job(given_cpus=3)] * 10], 8),
        ([idle(), *[whole()] * 3], 8),
        ([idle(), *[whole()] * 2], 0),
        ([idle(), *[whole()] * 3, whole(wall_at_least=True)], 0),
        ([stopped(job_id=0), *[whole(job_id=0)] * 3], 0),
        ([idle(), *[whole()] * 3, *[job()] * 10], 0),
        ([stopped(failed=True)] * 2, 0),
        ([stopped(failed=True)] * 3, 8),
        ([stopped(failed=True, given_cpus=8, asked_mem_mib=8000, given_mem_mib=600)] * 3, 0),
    ],
    ids=[
        "nobody_knows", "ran_again_with_all", "by_task", "waited_and_ran_again", "another", "late_again", "cut_again",
        "had_all", "killed_for_memory", "used_more_memory_then", "had_fewer_gpus", "nine_others", "ten_others",
        "others_had_more", "waited_where_others_end", "two_are_too_few", "its_family_runs_until_its_limit", "no_number",
        "ten_others_did_not_wait", "two_failed", "three_failed", "three_failed_with_less_memory",
    ],
)  # fmt: skip
def test_cpus_were_too_few_for_a_job_that_was_stopped_and_ended_well_with_all(
    jobs: list[PastJob], cpus: int
) -> None:
    assert too_few(jobs) == cpus


@pytest.mark.parametrize(("busy", "filled"), [(1.79, False), (1.8, True), (2.0, True)])
def test_nine_tenths_of_the_granted_cpus_count_as_all(busy: float, filled: bool) -> None:
    assert was_filled(job(cores_per_task=busy)) is filled
    assert was_filled(job(cores_per_task=busy, num_tasks=2, given_cpus=4)) is filled


def on_gpus(**changes: Any) -> PastJob:
    """A job that had requested four GPUs, was granted one, and failed."""
    told = {"asked_gpus": 4, "given_gpus": 1, "gpus": 0, "complete": False, "job_id": 7, "given_cpus": 8}
    return job(**(told | changes))


def on_all(**changes: Any) -> PastJob:
    """The same job, run again with all of them."""
    told = {"given_gpus": 4, "gpus": 1, "complete": True, "given_mem_mib": 8000, "mem_mib": 200.0}
    return on_gpus(**(told | changes))


ON_ONE: dict[str, Any] = {"given_gpus": 1, "complete": True, "gpus": 1, "job_id": 9}


@pytest.mark.parametrize(
    ("jobs", "gpus"),
    [
        ([], 0),
        ([on_gpus()], 0),
        ([on_gpus(), on_all()], 4),
        ([on_gpus(wall_at_least=True, complete=True), on_all()], 4),
        ([on_gpus(given_cpus=2), on_all()], 4),
        ([on_gpus(), on_all(job_id=9)], 0),
        ([on_gpus(job_id=0), on_all(job_id=0)], 0),
        ([on_gpus(), on_all(wall_at_least=True)], 0),
        ([on_gpus(), on_all(given_gpus=2)], 0),
        ([on_gpus(), on_all(given_gpus=None)], 0),
        ([on_gpus(given_gpus=4), on_all()], 0),
        ([on_gpus(mem_at_least=True), on_all()], 0),
        ([on_gpus(given_mem_mib=100), on_all()], 0),
        ([on_gpus(), on_all(), *[on_gpus(**ON_ONE)] * 9], 4),
        ([on_gpus(), on_all(), *[on_gpus(**ON_ONE)] * 10], 0),
        ([on_gpus(), on_all(), *[on_gpus(**ON_ONE | {"given_gpus": 2})] * 10], 4),
        ([on_gpus(), on_all(), on_gpus(job_id=8, asked_gpus=8), on_all(job_id=8, asked_gpus=8, given_gpus=8)], 8),
        ([on_gpus(failed=True)] * 2, 0),
        ([on_gpus(failed=True)] * 3, 4),
    ],
    ids=[
        "none", "nobody_knows", "ran_again_with_all", "waited_and_ran_again", "gpus_before_cpus", "another",
        "no_number", "late_again", "cut_again", "not_known_then", "had_all", "killed_for_memory",
        "used_more_memory_then", "nine_others", "ten_others", "others_had_more", "the_most", "two_failed",
        "three_failed",
    ],
)  # fmt: skip
def test_gpus_were_too_few_for_a_job_that_was_stopped_and_ended_well_with_all(
    jobs: list[PastJob], gpus: int
) -> None:
    assert gpus_to_go_on(jobs) == gpus


@pytest.mark.parametrize("given", [1, None])
def test_a_job_with_fewer_or_unknown_gpus_says_nothing_of_cpus(given: int | None) -> None:
    assert too_few([on_gpus(given_cpus=2, given_gpus=given), on_all()]) == 0
    assert too_few([on_gpus(given_cpus=2, given_gpus=4), on_all()]) == 8
