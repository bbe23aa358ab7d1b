"""In which order each policy wants jobs: its keys, the least first, worked out by hand."""

from __future__ import annotations

import numpy
import pytest

from models.planning.orders import ORDERS, columns_of
from models.planning.problem import Problem
from tests.models.planning.problems import job, machine

# Of 16 cores: one has waited for 1,000 s and takes 100 s on one; one for 100 s, and takes 1,000 s on 8.
SMALL = job(1, run_s=100.0, waited_s=1000.0, deadline_s=5000.0)
LARGE = job(2, cpus=8, run_s=1000.0, waited_s=100.0)


@pytest.mark.parametrize(
    ("order", "small", "large"),
    [
        ("as it is", 0.0, 1.0),
        ("aged shortest first", 20 * 100 - 1000, 20 * 1000 - 100),
        ("shortest first", 100, 1000),
        ("smallest area first", 100 / 16, 1000 / 2),
        ("expansion factor", -11, -1.1),
        ("WFP3", -1000, -0.008),
        ("UNICEF", -1000 / (1 * 100), -100 / (3 * 1000)),
        # The longest wait is the moment from which submit times count; a second is the least of them.
        ("F1", 2 * 1 + 0, 3 * 8 + 870 * numpy.log10(900)),
        ("earliest deadline", 5000, numpy.inf),
        ("largest first", -1 / 16, -1 / 2),
    ],
)
def test_the_keys_of_each_order(order: str, small: float, large: float) -> None:
    problem = Problem(machines=(machine(16),), pending=(SMALL, LARGE), running=())
    columns = columns_of(problem, numpy.array([0.0, 1.0]), seed=1)
    assert ORDERS[order](columns).tolist() == pytest.approx([small, large])


def test_a_job_that_asks_for_less_than_a_core_has_a_key_in_every_order() -> None:
    none = job(1, cpus=0, run_s=100.0, waited_s=1000.0, deadline_s=9.0)
    columns = columns_of(
        Problem(machines=(machine(16),), pending=(none,), running=()), numpy.zeros(1), seed=1
    )
    assert all(numpy.isfinite(keys(columns)).all() for keys in ORDERS.values())
