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
