"""Families that less CPU or memory slows, by the names that reports use for them."""

from typing import Any

import msgspec
import pytest

from accounting.report.usage import Slowed
from models.demand.slowed_families import slowed_families
from models.past.attempts import past_job
from models.past.beside import TELLS_S
from models.past.families import Family
from models.past.jobs import PastJob
from tests.builders import attempt

FIT: Family = ("user+name", "ann", "fit")


def jobs(number: int, tasks: int = 1, **changes: Any) -> list[PastJob]:
    told = {"num_tasks": tasks, "asked_cpus": 8 * tasks, "given_cpus": 8 * tasks, "cores_per_task": 1.7}
    told |= {"asked_mem_mib": 4000, "given_mem_mib": 4000}
    return [msgspec.structs.replace(past_job(attempt()), **(told | changes)) for _ in range(number)]


WHOLE, CUT = jobs(3), jobs(5, given_cpus=2, cores_per_task=1.3)
LESS_MEMORY = jobs(5, given_mem_mib=400, cores_per_task=0.5)


@pytest.mark.parametrize(
    ("family", "past", "beside", "found"),
    [
        (FIT, WHOLE + CUT, [], {("ann", "fit"): Slowed(cores=4)}),
        (FIT, CUT, WHOLE, {("ann", "fit"): Slowed(cores=4)}),
        (FIT, WHOLE, CUT, {("ann", "fit"): Slowed(cores=4)}),
        (FIT, [msgspec.structs.replace(WHOLE[0], end_s=CUT[0].end_s + TELLS_S)] * 3, CUT, {}),
        (FIT, WHOLE + LESS_MEMORY, [], {("ann", "fit"): Slowed(memory=True)}),
        # Jobs of two tasks each.
        (FIT, jobs(3, 2) + jobs(5, 2, given_cpus=4, cores_per_task=1.3), [], {("ann", "fit"): Slowed(cores=8)}),
        # Jobs of one task say nothing of those of two.
        (FIT, jobs(3, 2) + CUT, [], {}),
        # Twice the CPUs that slow them are more than were requested.
        (FIT, WHOLE + jobs(5, given_cpus=5, cores_per_task=1.3), [], {("ann", "fit"): Slowed(cores=8)}),
        (FIT, WHOLE + WHOLE, [], {}),
        (("user", "ann"), WHOLE + CUT, [], {}),
        (("user+name+script", "ann", "fit", "abc"), WHOLE + CUT, [], {("ann", "fit"): Slowed(cores=4)}),
        (("user+name+script", "ann", "wrap", "abc"), WHOLE + CUT, [], {("ann", "wrap (abc)"): Slowed(cores=4)}),
    ],
    ids=[
        "recent", "whole_beside", "cut_beside", "too_old", "memory", "tasks", "other_tasks", "asked", "nobody_cut",
        "user", "script", "generic_name",
    ],
)  # fmt: skip
def test_families_slowed_by_less_are_found_by_name(
    family: Family, past: list[PastJob], beside: list[PastJob], found: dict[tuple[str, str], Slowed]
) -> None:
    assert slowed_families([(family, past, beside)], 0.0) == found


def test_a_slowdown_that_the_site_tolerates_counts_as_none() -> None:
    assert slowed_families([(FIT, WHOLE + CUT, ())], 0.5) == {}


def test_of_a_name_with_several_scripts_the_largest_counts() -> None:
    more = WHOLE + jobs(5, given_cpus=4, cores_per_task=1.3)
    scripts: list[Family] = [("user+name+script", "ann", "fit", script) for script in ("a", "b")]
    assert slowed_families([(scripts[0], more, ()), (scripts[1], WHOLE + CUT, ())], 0.0) == {
        ("ann", "fit"): Slowed(cores=8)
    }
