"""`rightsizer disable` and `enable`: the kill switch that the hook itself looks at."""

from __future__ import annotations

from pathlib import Path

import click

from accounting.errors import ServiceError
from slurm_plugin.cli.output import config_option, note
from slurm_plugin.config import load_config


@click.command("disable")
@config_option
def disable(config_file: str | None) -> None:
    """Stop touching submissions, from the very next one on; the service may go on running.

    \b
    Example:
      rightsizer disable
    """
    switch = Path(load_config(config_file).hook.kill_switch)
    try:
        switch.parent.mkdir(parents=True, exist_ok=True)
        switch.touch()
    except OSError as error:
        raise ServiceError(
            f"cannot make {switch}: {error.strerror}; run this as the service's user"
        ) from None
    note(f"disabled: {switch} exists, the hook leaves every job alone; `rightsizer enable` ends that")


@click.command("enable")
@config_option
def enable(config_file: str | None) -> None:
    """Let the hook ask the service again.

    \b
    Example:
      rightsizer enable
    """
    switch = Path(load_config(config_file).hook.kill_switch)
    try:
        switch.unlink(missing_ok=True)
    except OSError as error:
        raise ServiceError(
            f"cannot remove {switch}: {error.strerror}; run this as the service's user"
        ) from None
    note("enabled: the hook asks the service again")
