"""`rightsizer models`, `promote` and `rollback`: which model answers."""

from __future__ import annotations

import time
from pathlib import Path

import click

from accounting.errors import ModelError
from slurm_plugin.cli.output import config_option, format_option, note, print_rows
from slurm_plugin.config import load_config


@click.command("models")
@config_option
@format_option
def models(config_file: str | None, output_format: str) -> None:
    """List the trained models, the oldest first.

    \b
    Example:
      rightsizer models --format json
    """
    from models import registry
    from models.artefact import read_manifest

    directory = Path(load_config(config_file).models.directory)
    current = registry.current_version(directory)
    rows: list[dict[str, object]] = []
    for version in registry.versions(directory):
        try:
            manifest = read_manifest(directory / version)
        except ModelError as error:
            note(str(error))
            continue
        rows.append(
            {
                "version": version,
                "current": "yes" if version == current else "",
                "trained": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(manifest.created_s)),
                "attempts": manifest.attempts,
                "families": manifest.families,
                "xgboost": ", ".join(manifest.growth) or "none (history alone)",
                "gpu meters": ", ".join(manifest.gpu_sources) or "none",
            }
        )
    print_rows(rows, output_format)


@click.command("promote")
@click.argument("version")
@config_option
def promote(version: str, config_file: str | None) -> None:
    """Make a trained model the one that answers, after checking it as the service would.

    \b
    Example:
      rightsizer promote 20261120T190001.123Z-ab12cd
    """
    from models import registry
    from models.artefact import load_predictor
    from slurm_plugin.service.decide import chain_settings_of

    config = load_config(config_file)
    directory = Path(config.models.directory)
    load_predictor(directory / version, chain_settings_of(config))
    registry.promote(directory, version)
    note(f"model {version} is current")


@click.command("rollback")
@config_option
def rollback(config_file: str | None) -> None:
    """Go back to the model before the current one.

    \b
    Example:
      rightsizer rollback
    """
    from models import registry

    note(f"model {registry.rollback(Path(load_config(config_file).models.directory))} is current")
