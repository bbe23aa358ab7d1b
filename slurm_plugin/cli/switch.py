"""`rightsizer disable` and `enable`: the kill switches that the hook and the clients' filter look at themselves."""

from __future__ import annotations

from pathlib import Path

import click

from accounting.errors import ServiceError
from slurm_plugin.cli.output import config_option, note
from slurm_plugin.config import Config, load_config


def switches(config: Config) -> list[Path]:
    """Return the files that stop everything; the clients' one only where clients ask at all."""
    return [
        Path(config.hook.kill_switch),
        *([Path(config.client.kill_switch)] if config.client.socket else []),
    ]


@click.command("disable")
@config_option
def disable(config_file: str | None) -> None:
    """Stop touching submissions, from the very next one on; the service may go on running.

    \b
    Example:
      rightsizer disable
    """
    for switch in switches(load_config(config_file)):
        try:
            switch.parent.mkdir(parents=True, exist_ok=True)
            switch.touch()
        except OSError as error:
            raise ServiceError(
                f"cannot make {switch}: {error.strerror}; run this as the service's user"
            ) from None
        note(f"disabled: while {switch} exists every job is left alone; `rightsizer enable` ends that")


@click.command("enable")
@config_option
def enable(config_file: str | None) -> None:
    """Let the hook ask the service again.

    \b
    Example:
      rightsizer enable
    """
    for switch in switches(load_config(config_file)):
        try:
            switch.unlink(missing_ok=True)
        except OSError as error:
            raise ServiceError(
                f"cannot remove {switch}: {error.strerror}; run this as the service's user"
            ) from None
    note("enabled: the service is asked again")
