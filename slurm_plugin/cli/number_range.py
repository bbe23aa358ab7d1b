"""A range of numbers as an option's type."""

from __future__ import annotations

import math
from typing import Any

import click


class NumberRange(click.FloatRange):
    """click's range of numbers, but without `nan`, which click accepts in every range."""

    def convert(
        self,
        value: Any,  # noqa: ANN401 - as click has it
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        """Return the number; BadParameter if the value is not a number, or out of range."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is no number.", param, ctx)
        return number
