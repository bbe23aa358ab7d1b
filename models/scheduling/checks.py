"""What no plan can be made of, found before one is tried. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy
import numpy.typing as npt

from accounting.errors import ScheduleError

Floats = npt.NDArray[numpy.float64]
# Numbers of demanders, first to last.
Order = npt.NDArray[numpy.int64]


def amounts_of(name: str, amounts: Sequence[float] | Floats) -> Floats:
    """Return one amount per demander, in the given unit; ScheduleError if one is negative or not finite."""
    checked = numpy.asarray(amounts, dtype=numpy.float64)
    if checked.ndim != 1 or not (numpy.isfinite(checked) & (checked >= 0)).all():
        raise ScheduleError(f"{name} must be a list of finite numbers of at least 0, one for each demander")
    return checked


def order_of(order: Sequence[int] | Order, count: int) -> Order:
    """Return an order of `count` demanders; ScheduleError if one is missing, named twice or does not exist."""
    checked = numpy.asarray(order, dtype=numpy.int64)
    if not numpy.array_equal(numpy.sort(checked), numpy.arange(count)):
        raise ScheduleError(f"an order of {count} demanders must name each number below {count} once")
    return checked


def above_0(name: str, amount: float) -> float:
    """Return an amount that is above 0 and finite; ScheduleError otherwise."""
    if not 0 < amount < float("inf"):
        raise ScheduleError(f"{name} is {amount:g}; give a finite number above 0")
    return amount
