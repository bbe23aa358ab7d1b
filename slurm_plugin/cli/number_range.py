"""A range of numbers as the type of an option."""

from __future__ import annotations

import math
from typing import Any

import click


class NumberRange(click.FloatRange):
    """What click takes for a number within a range, but for `nan`, which it finds in every one."""

    def convert(
        self,
        value: Any,  # noqa: ANN401 - as click has it
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        """Return the number; a wrong use where it is none, or out of range."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value!r} is no number.", param, ctx)
        return number
