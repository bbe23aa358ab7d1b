"""What each objective makes of tasks that start, worked out by hand."""

from __future__ import annotations

import math

import numpy
import pytest

from models.planning.objectives import OBJECTIVES, Starts, at_once
from models.planning.problem import Objective
from models.scheduling.room import Floats


def column(*values: float) -> Floats:
    return numpy.array(values, dtype=numpy.float64)


# A task on half of the machines, and three on a tenth each that can still end by their deadline for 150 s; looked for
# 200 s ahead.
STARTS = Starts(
    waited_s=column(100, 0),
    start_s=column(0, 160),
    run_s=column(100, 60),
    start_by_s=column(math.inf, 150),
    weight=column(1, 3),
    share=column(0.5, 0.1),
    until_s=column(200, 200),
)
# By then, 50 + 3 · 6 machine seconds could be done, and 50 + 3 · 4 are.
IDLE = 1 - 62 / 68


@pytest.mark.parametrize(
    ("objective", "value"),
    [
        ("slowdown", (2 + 3 * 220 / 60) / 4),
        ("wait", (100 + 3 * 160) / 4),
        ("utilisation", IDLE),
        ("energy", IDLE),
        ("deadlines", 3 / 4),
    ],
)
def test_the_value_of_each_objective(objective: Objective, value: float) -> None:
    assert OBJECTIVES[objective](STARTS) == pytest.approx(value)


def test_what_is_yet_to_come_starts_when_it_comes_at_the_earliest() -> None:
    come = at_once(
        Starts(**{name: column(0, 0) for name in Starts.__struct_fields__} | {"waited_s": column(5, -7)})
    )
    assert come.start_s.tolist() == [0, 7]
