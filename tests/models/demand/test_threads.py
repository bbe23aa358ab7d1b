"""Which jobs show that more CPUs would not have been used."""

from typing import Any

import pytest

from models.demand.threads import had_more
from tests.models.demand.cut_jobs import job


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
def test_three_jobs_that_ended_with_more_cpus_show_that_more_is_not_used(
    changes: dict[str, Any], more: bool
) -> None:
    assert had_more([job(), job(), job(**changes)], 1) is more
    assert not had_more([job(), job()], 1)
