"""Options that do not go together: one that would be ignored is a wrong use."""

from __future__ import annotations

import click
from click.core import ParameterSource


def refuse_given(*names: str, why: str) -> None:
    """Raise UsageError where any of the current command's options (by the names of their parameters) was given."""
    context = click.get_current_context()
    given = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name in names
        and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(
            f"{', '.join(given)}: these {why}" if len(given) > 1 else f"{given[0]}: such {why}"
        )
