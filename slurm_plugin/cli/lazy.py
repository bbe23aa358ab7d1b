"""A click group that imports a command's module only when that command is called.

`rightsizer sandbox env` runs in a login shell's eval; it must not wait for pandas and XGBoost.
"""

from __future__ import annotations

import importlib
from typing import Any

import click


class LazyGroup(click.Group):
    """A group whose commands are named as `module:attribute` and imported on use."""

    def __init__(self, *, commands_in: dict[str, str] | None = None, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(**kwargs)
        self._commands_in = commands_in or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the names of all commands, imported or not."""
        return sorted({*super().list_commands(ctx), *self._commands_in})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module behind `cmd_name` and return its command; None where there is none of that name."""
        target = self._commands_in.get(cmd_name)
        if target is None:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{target} is not a click command")
        return command
