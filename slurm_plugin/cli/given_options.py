"""Options that do not go together: an option that would be ignored is a usage error."""

from __future__ import annotations

import click
from click.core import ParameterSource


def given(context: click.Context) -> list[click.Parameter]:
    """Return the command's parameters that were given on the command line."""
    return [
        parameter
        for parameter in context.command.params
        if parameter.name and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
    ]


def refuse_given(*names: str, why: str) -> None:
    """Raise UsageError if any of these options (by parameter name) was given to the current command."""
    idle = [option.opts[0] for option in given(click.get_current_context()) if option.name in names]
    if idle:
        raise click.UsageError(f"{', '.join(idle)}: {why}" if len(idle) > 1 else f"{idle[0]}: {why}")
