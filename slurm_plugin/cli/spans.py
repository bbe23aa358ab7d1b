"""Options whose values are spans of time."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click

UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
DAY_S = UNIT_S["d"]


def span_s(_context: click.Context, _parameter: click.Parameter, text: str) -> int:
    """Return a span of time such as 30m, 24h or 7d in seconds; BadParameter if it is not one."""
    read = re.fullmatch(r"([1-9]\d{0,5})([smhd])", text)
    if not read:
        raise click.BadParameter(f"{text!r} is not a span of time; write for example 30m, 24h or 7d")
    return int(read[1]) * UNIT_S[read[2]]


def span_option(name: str, default: str, says: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return an option whose value is a span of time; the command receives it as `<name>_s`, in seconds."""
    return click.option(
        f"--{name}",
        f"{name}_s",
        callback=span_s,
        metavar="SPAN",
        default=default,
        show_default=True,
        help=says,
    )
