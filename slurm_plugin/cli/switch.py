"""`rightsizer disable` and `enable`: the kill switches that the hook and the clients' filter look at themselves."""

from __future__ import annotations

import click

from accounting.errors import ServiceError
from slurm_plugin.cli.output import config_option, note
from slurm_plugin.config import load_config
from slurm_plugin.switches import switches


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
