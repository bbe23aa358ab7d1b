"""A click group that imports a command's module only when that command is called.

`rightsizer sandbox env` runs in a login shell's eval, which must not wait for pandas and XGBoost.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import click


class Lazy(NamedTuple):
    """A command that is imported on use: its place (`module:attribute`), and a short text for the group's help."""

    target: str
    words: str


class LazyGroup(click.Group):
    """A group whose commands are imported on use, and listed in sections."""

    def __init__(self, *, sections: Mapping[str, Mapping[str, Lazy]] | None = None, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(**kwargs)
        self._sections = sections or {}
        self._lazy = {name: lazy for section in self._sections.values() for name, lazy in section.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the names of all commands, imported or not."""
        return sorted({*super().list_commands(ctx), *self._lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module behind `cmd_name` and return its command; None if no command has that name."""
        lazy = self._lazy.get(cmd_name)
        if lazy is None:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = lazy.target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{lazy.target} is not a click command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the commands section by section, in the order given, without importing any."""
        widest = max(map(len, self._lazy), default=0)
        for title, section in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), lazy.words) for name, lazy in section.items()])
