"""What the site's mean job holds: nobody makes it theirs by many tiny jobs."""

from __future__ import annotations

import pytest

from models.past.history import HeldByUsers


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


def test_what_one_user_alone_held_is_his_mean_job() -> None:
    users = HeldByUsers()
    for number in range(500):
        users.add("ann", float(number))
    assert users.held().mean == pytest.approx(499 / 2)
    assert HeldByUsers().held().mean == 0
