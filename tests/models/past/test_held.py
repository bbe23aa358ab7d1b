"""What the site's mean job holds: no user makes it their own, by many tiny jobs or by large ones."""

from __future__ import annotations

import msgspec
import pytest

from models.past.attempts import past_job
from models.past.held import Held, HeldByUsers
from models.past.jobs import held_by
from tests.builders import attempt

ALIKE = 20


def site_of_users_alike() -> HeldByUsers:
    """What users hold who have 30 jobs of 1000 each."""
    users = HeldByUsers()
    for number in range(ALIKE):
        users.add(f"user{number}", 30 * 1000.0, 30)
    return users


@pytest.mark.parametrize("tiny_jobs", [300, 30_000])
def test_a_users_tiny_jobs_hardly_lower_what_the_mean_job_of_others_holds(tiny_jobs: int) -> None:
    users = site_of_users_alike()
    assert users.mean_for("user1", 1000) == 1000
    users.add("many", tiny_jobs * 1.0, tiny_jobs)
    assert users.mean_for("user1", 1000) == pytest.approx((600 * 1000 + 100 * 1) / 700)


@pytest.mark.parametrize("large", [10_000.0, 1e12])
def test_how_much_others_ask_for_raises_no_ones_mean_job(large: float) -> None:
    users = site_of_users_alike()
    users.add("large", 67 * large, 67)
    assert users.mean_for("user1", 500) == pytest.approx(1000)
    assert users.mean_for("user1", 3000) == pytest.approx((600 * 1000 + 67 * 3000) / 667)
    # Nothing bounds it for who asks for as much, or was not known at the training.
    everybody = pytest.approx((600 * 1000 + 67 * large) / 667)
    assert users.mean_for("large", 1) == users.mean_for("new", 1000) == everybody


@pytest.mark.parametrize("amount", [0.0, 1.0])
def test_a_family_among_its_users_tiny_jobs_weighs_as_it_would_among_others(amount: float) -> None:
    users = site_of_users_alike()
    users.add("ann", amount * 300, 300)
    assert 1000 / users.mean_for("ann", 1000) == pytest.approx(7 / 6, abs=0.01)
    assert 10_000 / users.mean_for("ann", 10_000) == pytest.approx(70 / 6, abs=0.02)


def test_with_one_user_the_mean_is_that_of_this_users_jobs() -> None:
    users = HeldByUsers()
    for number in range(500):
        users.add("ann", float(number))
    assert users.mean_for("ann", 700) == pytest.approx(499 / 2)
    assert HeldByUsers().mean_for("ann", 700) == 0


def test_what_a_model_holds_is_read_as_it_was_written() -> None:
    users = site_of_users_alike()
    users.add("many", 500 * 1.0, 500)
    stored = msgspec.json.encode(users.held())
    read = HeldByUsers(msgspec.json.decode(stored, type=Held))
    assert [read.mean_for(user, 2000) for user in ("user1", "many", "new")] == [
        users.mean_for(user, 2000) for user in ("user1", "many", "new")
    ]
    assert read.held() == users.held()


@pytest.mark.parametrize("bounded", [2.0, 7.0])
def test_a_model_of_before_that_names_no_users_has_one_mean_for_all(bounded: float) -> None:
    old = msgspec.json.decode(b'{"amount": 30.0, "jobs": 6, "bounded": %.1f}' % bounded, type=Held)
    assert HeldByUsers(old).mean_for("ann", 1) == max(5.0, bounded)


def test_a_job_holds_what_it_requested_for_as_long_as_it_ran() -> None:
    job = msgspec.structs.replace(past_job(attempt()), asked_mem_mib=2000, asked_cpus=8, wall_s=60)
    assert (held_by(job, "memory"), held_by(job, "cores"), held_by(job, "wall")) == (120_000, 480, 60)
    used = msgspec.structs.replace(job, asked_mem_mib=None, mem_mib=500.0, wall_s=0)
    assert held_by(used, "memory") == 500
    metered = msgspec.structs.replace(job, gpu_mem_mib=50.0)
    assert (held_by(metered, "gpu_mem"), held_by(job, "gpu_mem")) == (3000, 0)
