"""`rightsizer config`: what the configuration says, whether it is valid, and what the Lua hook is told."""

from __future__ import annotations

import click
import msgspec

from slurm_plugin.cli.output import config_option, note
from slurm_plugin.config import config_path, load_config


@click.group("config")
def config_group() -> None:
    """Show and check the configuration.

    \b
    Example:
      rightsizer config check
    """


@config_group.command("show")
@config_option
@click.option(
    "--format", "output_format", type=click.Choice(["toml", "json"]), default="toml", show_default=True
)
def show(config_file: str | None, output_format: str) -> None:
    """Print every key with the value in force, defaults included.

    \b
    Example:
      rightsizer config show > /etc/rightsizer/rightsizer.toml
    """
    from slurm_plugin.config import render_config

    config = load_config(config_file)
    click.echo(
        render_config(config)
        if output_format == "toml"
        else msgspec.json.format(msgspec.json.encode(config)).decode(),
        nl=output_format != "toml",
    )


@config_group.command("check")
@config_option
def check(config_file: str | None) -> None:
    """Say whether the configuration is valid; the first problem is named with its key.

    \b
    Example:
      rightsizer config check --config etc/rightsizer.toml
    """
    config = load_config(config_file)
    note(f"{config_path(config_file) or 'the built-in defaults'}: valid, mode {config.mode}")


@config_group.command("hook")
@config_option
def hook(config_file: str | None) -> None:
    """Print rightsizer_site.lua, which belongs next to the job_submit.lua that slurmctld loads.

    \b
    Example:
      rightsizer config hook > /etc/slurm/rightsizer_site.lua
    """
    from slurm_plugin.config_hook import hook_settings

    click.echo(hook_settings(load_config(config_file)), nl=False)
