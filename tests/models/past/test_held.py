"""What the site's mean job holds: no user makes it their own by submitting many tiny jobs."""

from __future__ import annotations

import msgspec
import pytest

from models.past.attempts import past_job
from models.past.held import HeldByUsers
from models.past.jobs import held_by
from tests.builders import attempt


@pytest.mark.parametrize("tiny_jobs", [300, 30_000])
def test_a_users_tiny_jobs_hardly_lower_what_the_mean_job_of_others_holds(tiny_jobs: int) -> None:
    users = HeldByUsers()
    for number in range(20):
        users.add(f"user{number}", 30 * 1000.0, 30)
    assert users.held().mean == 1000
    users.add("many", tiny_jobs * 1.0, tiny_jobs)
    assert users.held().mean == pytest.approx((600 * 1000 + 100 * 1) / 700)
    users.add("large", 1000 * 9000.0, 1000)
    everything = users.held()
    assert everything.mean == max(everything.amount / everything.jobs, everything.bounded)


def test_with_one_user_the_mean_is_that_of_this_users_jobs() -> None:
    users = HeldByUsers()
    for number in range(500):
        users.add("ann", float(number))
    assert users.held().mean == pytest.approx(499 / 2)
    assert HeldByUsers().held().mean == 0


def test_a_job_holds_what_it_requested_for_as_long_as_it_ran() -> None:
    job = msgspec.structs.replace(past_job(attempt()), asked_mem_mib=2000, asked_cpus=8, wall_s=60)
    assert (held_by(job, "memory"), held_by(job, "cores"), held_by(job, "wall")) == (120_000, 480, 60)
    used = msgspec.structs.replace(job, asked_mem_mib=None, mem_mib=500.0, wall_s=0)
    assert held_by(used, "memory") == 500
    metered = msgspec.structs.replace(job, gpu_mem_mib=50.0)
    assert (held_by(metered, "gpu_mem"), held_by(job, "gpu_mem")) == (3000, 0)
