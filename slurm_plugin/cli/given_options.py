"""Options that do not go together: one that would be ignored is a wrong use."""

from __future__ import annotations

import click
from click.core import ParameterSource


def given(context: click.Context) -> list[click.Parameter]:
    """Return those of the command's parameters that stand on its command line."""
    return [
        parameter
        for parameter in context.command.params
        if parameter.name and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
    ]


def refuse_given(*names: str, why: str) -> None:
    """Raise UsageError where any of the current command's options (by the names of their parameters) was given."""
    idle = [option.opts[0] for option in given(click.get_current_context()) if option.name in names]
    if idle:
        raise click.UsageError(f"{', '.join(idle)}: {why}" if len(idle) > 1 else f"{idle[0]}: {why}")
