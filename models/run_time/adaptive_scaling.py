"""How far a request may shrink without changing its run time: Algorithm 1 of the resource-demand paper. Pure.

Yang, Hong, Tang: AI computing power cluster scheduling based on task resource demand prediction. All resources that
run time does not depend on are scaled by one rate, from `alpha` upward. The first rate at which the predicted run
time stays close to that of the request is taken. All rates are predicted in one call, since a simulator asks
thousands of times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

import msgspec
import numpy
import numpy.typing as npt

from accounting.errors import ModelError

Floats = npt.NDArray[numpy.float64]
# Amounts (rows × resources, in the request's order) to run times in seconds, one for each row.
Predict = Callable[[Floats], Floats]

# What rounding leaves of a product does not count as another step.
TINY = 1e-9


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """The paper's α, Δα and θ: the first rate, the step to the next, and the change of run time that is too much."""

    alpha: float = 0.5
    step: float = 0.05
    theta: float = 0.1

    def __post_init__(self) -> None:
        """Refuse values that Algorithm 1 cannot run with."""
        for name, value in (("alpha", self.alpha), ("step", self.step)):
            if not 0 < value < 1:
                raise ModelError(f"models.scaling.{name} is {value}; give a share between 0 and 1")
        if not (0 < self.theta < math.inf):
            raise ModelError(f"models.scaling.theta is {self.theta}; give a share above 0, such as 0.1")

    @property
    def rates(self) -> Floats:
        """The rates to try, in this order; all below 1."""
        count = math.ceil((1 - self.alpha) / self.step - TINY)
        return numpy.array([self.alpha + self.step * number for number in range(count)])


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One resource of a request. `whole` is the unit it comes in (1: cores; 100: GPUs in %), 0 if any amount will do.

    It is never scaled below `least`, nor below one (one unit, if it comes in units), nor raised to them. A `fixed`
    resource is only passed to the predictor: nobody asks for it, or it cannot be changed.
    """

    resource: str
    amount: float
    whole: float = 0.0
    least: float = 0.0
    fixed: bool = False


class Scaled(msgspec.Struct, frozen=True, kw_only=True):
    """The amounts that are left, in the request's order; the rate, 1 if the request was kept; and both run times.

    `predicted_s` is the run time with these amounts. Both run times are NaN if the predictor gave no usable figure.
    """

    values: tuple[float, ...]
    alpha: float
    predicted_s: float
    original_s: float


def scale(
    request: Sequence[Asked], predict: Predict, important: Collection[str], settings: Scaling
) -> Scaled:
    """Return the request scaled by the first rate whose predicted run time stays within θ, else unchanged."""
    original = numpy.array([asked.amount for asked in request], dtype=numpy.float64)
    if not request or not numpy.isfinite(original[[not asked.fixed for asked in request]]).all():
        return Scaled(values=tuple(original), alpha=1.0, predicted_s=math.nan, original_s=math.nan)
    rates = settings.rates
    rows = numpy.vstack([original, candidates(request, important, rates)])
    run_s = numpy.asarray(predict(rows), dtype=numpy.float64)
    original_s = float(run_s[0])
    if not (math.isfinite(original_s) and original_s > 0):
        return Scaled(values=tuple(original), alpha=1.0, predicted_s=math.nan, original_s=math.nan)
    # A run time of NaN is close to nothing.
    close = numpy.flatnonzero(numpy.abs(run_s[1:] - original_s) / original_s < settings.theta)
    row = 1 + int(close[0]) if close.size else 0
    cut = bool((rows[row] < original).any())
    return Scaled(
        values=tuple(rows[row].tolist()),
        alpha=float(rates[row - 1]) if cut else 1.0,
        predicted_s=float(run_s[row]),
        original_s=original_s,
    )


def candidates(request: Sequence[Asked], important: Collection[str], rates: Floats) -> Floats:
    """Return what each rate makes of a request (rates × resources), in whole units, as it would be granted."""
    amounts = numpy.repeat([[asked.amount for asked in request]], len(rates), axis=0).astype(numpy.float64)
    for column, asked in enumerate(request):
        if asked.fixed or asked.resource in important:
            continue
        scaled = numpy.maximum(rates * asked.amount, max(asked.least, 1.0))
        if asked.whole:
            scaled = numpy.ceil(scaled / asked.whole - TINY) * asked.whole
        amounts[:, column] = numpy.minimum(asked.amount, scaled)
    return amounts
