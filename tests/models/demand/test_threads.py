"""Which jobs say that CPUs were too few, and which that more would not have been used."""

from typing import Any

import msgspec
import pytest

from models.demand.threads import had_more, too_few, was_filled
from models.past.attempts import past_job
from models.past.jobs import PastJob
from models.past.kills import KILLED_BUMP
from tests.builders import attempt


def job(**changes: Any) -> PastJob:
    """A job of one task that had asked for eight CPUs, was left two, and kept both busy."""
    told = {"asked_cpus": 8, "given_cpus": 2, "cores_per_task": 2.0, "num_tasks": 1}
    return msgspec.structs.replace(past_job(attempt()), **(told | changes))


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
def test_cpus_were_too_few_for_who_was_late_and_busy_with_all_that_he_was_left(
    jobs: list[PastJob], cpus: int
) -> None:
    assert too_few(jobs) == pytest.approx(KILLED_BUMP * cpus)


def stopped(**changes: Any) -> PastJob:
    """A job that failed with the two CPUs that it was left."""
    return job(**{"complete": False, "cores_per_task": 0.1, "job_id": 7, **changes})


def idle(**changes: Any) -> PastJob:
    """A job that waited until its time was over; as accounting has it, its need is complete."""
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
    ],
    ids=[
        "nobody_knows", "ran_again_with_all", "by_task", "waited_and_ran_again", "another", "late_again", "cut_again",
        "had_all", "killed_for_memory", "used_more_memory_then", "had_fewer_gpus", "nine_others", "ten_others",
        "others_had_more", "waited_where_others_end", "two_are_too_few", "its_family_runs_until_its_limit", "no_number",
        "ten_others_did_not_wait",
    ],
)  # fmt: skip
def test_cpus_were_too_few_for_who_was_stopped_and_ended_well_with_all(
    jobs: list[PastJob], cpus: int
) -> None:
    assert too_few(jobs) == cpus


@pytest.mark.parametrize(("busy", "filled"), [(1.79, False), (1.8, True), (2.0, True)])
def test_nine_tenths_of_what_it_was_left_are_all(busy: float, filled: bool) -> None:
    assert was_filled(job(cores_per_task=busy)) is filled
    assert was_filled(job(cores_per_task=busy, num_tasks=2, given_cpus=4)) is filled


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({}, True),
        ({"given_cpus": 1}, False),
        ({"given_cpus": None}, True),
        ({"given_cpus": None, "asked_cpus": None}, False),
        ({"num_tasks": 2}, False),
        ({"num_tasks": 2, "given_cpus": 3}, True),
        ({"complete": False}, False),
        ({"cores_per_task": None}, False),
    ],
)
def test_three_that_ended_with_more_show_that_it_is_not_used(changes: dict[str, Any], more: bool) -> None:
    assert had_more([job(), job(), job(**changes)], 1) is more
    assert not had_more([job(), job()], 1)
