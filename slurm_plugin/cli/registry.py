"""`rightsizer models`, `promote` and `rollback`: which model answers."""

from __future__ import annotations

import time
from pathlib import Path

import click
import msgspec

from accounting.errors import ModelError
from slurm_plugin.cli.output import config_option, format_option, note, print_rows
from slurm_plugin.config import load_config


@click.command("models")
@click.argument("version", required=False)
@config_option
@format_option
def models(version: str | None, config_file: str | None, output_format: str) -> None:
    """List the trained models, the oldest first; with VERSION, print that model's card.

    \b
    Example:
      rightsizer models --format json
      rightsizer models 20261120T190001.123Z-ab12cd
    """
    directory = Path(load_config(config_file).models.directory)
    if version is None:
        print_rows(_listed(directory), output_format)
    else:
        _print_card(directory, version, output_format)


def _listed(directory: Path) -> list[dict[str, object]]:
    from models import registry
    from models.artefact import read_manifest

    current = registry.current_version(directory)
    rows: list[dict[str, object]] = []
    for version in registry.versions(directory):
        try:
            manifest, gate = read_manifest(directory / version), _gate_of(directory / version)
        except ModelError as error:
            note(str(error))
            continue
        rows.append(
            {
                "version": version,
                "current": "yes" if version == current else "",
                "gate": gate,
                "trained": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(manifest.created_s)),
                "attempts": manifest.attempts,
                "families": manifest.families,
                "xgboost": ", ".join(manifest.growth) or "none (history alone)",
                "gpu meters": ", ".join(manifest.gpu_sources) or "none",
            }
        )
    return rows


class _Verdict(msgspec.Struct):
    passed: bool


class _Gated(msgspec.Struct):
    """Of a card, what the list shows."""

    verdict: _Verdict | None


def _gate_of(folder: Path) -> str:
    """Return what the promotion gate said of a model: passed, refused, or not asked."""
    from models.artefact import CARD_JSON, read_part

    content = read_part(folder, CARD_JSON)
    verdict = None if content is None else msgspec.json.decode(content, type=_Gated).verdict
    if verdict is None:
        return "not asked"
    return "passed" if verdict.passed else "refused"


def _print_card(directory: Path, version: str, output_format: str) -> None:
    from models import registry
    from models.artefact import CARD_JSON, CARD_MD, read_part

    if output_format == "csv":
        raise click.UsageError("a card has no rows: --format table or json")
    if version not in registry.versions(directory):
        raise ModelError(
            f"there is no model {version} in {directory}; `rightsizer models` lists those there are"
        )
    content = read_part(directory / version, CARD_JSON if output_format == "json" else CARD_MD)
    if content is None:
        raise ModelError(f"model {version} was made without a card; `rightsizer train` makes one with it")
    click.echo(content.decode().rstrip())


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
    """Go back to the model before the current one, past those that the gate refused.

    \b
    Example:
      rightsizer rollback
    """
    from models import registry

    directory = Path(load_config(config_file).models.directory)
    refused = [version for version in registry.versions(directory) if _is_refused(directory / version)]
    note(f"model {registry.rollback(directory, refused)} is current")


def _is_refused(folder: Path) -> bool:
    try:
        return _gate_of(folder) == "refused"
    except ModelError:
        return False
