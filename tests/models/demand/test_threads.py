"""Which jobs say that more CPUs would not have been used."""

from typing import Any

import msgspec
import pytest

from models.demand.threads import had_more
from models.past.attempts import past_job
from models.past.jobs import PastJob
from tests.builders import attempt


def job(**changes: Any) -> PastJob:
    """A job of one task that had asked for eight CPUs, was left two, and kept both busy."""
    told = {"asked_cpus": 8, "given_cpus": 2, "cores_per_task": 2.0, "num_tasks": 1}
    return msgspec.structs.replace(past_job(attempt()), **(told | changes))


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
