"""When what is not simulated would start: one after the other, as worked out by hand."""

from __future__ import annotations

import math

import numpy
import pytest

from models.planning.tail import tail_s

NEVER = math.inf


@pytest.mark.parametrize(
    ("places", "turns_s", "starts_s"),
    [
        ((0, 1, 2), None, [100, 110, 130]),
        ((2, 0, 1), None, [150, 100, 120]),
        ((2, 0, 1), (NEVER, NEVER, NEVER), [150, 100, 120]),
        # The third comes first from 105 s on: once the one that began at 100 s has ended.
        ((0, 1, 2), (NEVER, NEVER, 105), [100, 140, 110]),
        # Whose turn came first is first of all, even of those that are before it.
        ((0, 1, 2), (NEVER, 100, 99), [150, 130, 100]),
        # A turn that comes once its record has begun changes nothing.
        ((0, 1, 2), (105, NEVER, NEVER), [100, 110, 130]),
    ],
)
def test_each_starts_when_those_before_it_have_had_all_machines(
    places: tuple[float, ...], turns_s: tuple[float, ...] | None, starts_s: list[float]
) -> None:
    turns = None if turns_s is None else numpy.array(turns_s, dtype=numpy.float64)
    work_s = numpy.array([10.0, 20.0, 30.0])
    assert tail_s(work_s, numpy.array(places, dtype=numpy.float64), turns, 100.0).tolist() == starts_s
