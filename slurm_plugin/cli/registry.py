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

    Of the current one the list says since when it is, and by what: the gate, `--promote always`, by hand or rollback,
    and who ran it. One that is damaged is said: a running service goes on with the one before.

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
    from models.artefact import read_all, read_manifest

    current = registry.current_version(directory)
    rows: list[dict[str, object]] = []
    for version in sorted({*registry.versions(directory), *filter(None, [current])}):
        try:
            manifest, gate = read_manifest(directory / version), _gate_of(directory / version)
        except ModelError as error:
            note(_unusable(error) if version == current else str(error))
            continue
        since, by = _tenure(directory) if version == current else ("", "")
        rows.append(
            {
                "version": version,
                "current": "yes" if version == current else "",
                "since": since,
                "by": by,
                "gate": gate,
                "trained": _local_time(manifest.created_s),
                "attempts": manifest.attempts,
                "families": manifest.families,
                "xgboost": ", ".join(manifest.growth) or "none (history alone)",
                "gpu meters": ", ".join(manifest.gpu_sources) or "none",
            }
        )
        if version == current:
            try:
                read_all(directory / version, manifest)
            except ModelError as error:
                note(_unusable(error))
    return rows


def _unusable(error: ModelError) -> str:
    return (
        f"the current model is not used, a running service goes on with the one before: {error}, "
        "or go back by `rightsizer rollback`"
    )


def _tenure(directory: Path) -> tuple[str, str]:
    """Return since when the current model is current, and by what."""
    from models import registry

    try:
        held = registry.known_succession(directory).held
    except ModelError as error:
        note(str(error))
        held = ()
    if held and held[-1].by:
        return _local_time(held[-1].by.time_s), f"{held[-1].by.why}, {held[-1].by.who}"
    since_s = registry.current_since_s(directory)
    return _local_time(since_s) if since_s else "", "not logged"


def _local_time(time_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_s))


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
    from models.artefact import CARD_JSON, CARD_MD, read_card

    if output_format == "csv":
        raise click.UsageError("a card has no rows: --format table or json")
    if version not in registry.versions(directory):
        raise ModelError(
            f"there is no model {version} in {directory}; `rightsizer models` lists those there are"
        )
    content = read_card(directory / version, CARD_JSON if output_format == "json" else CARD_MD)
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
    """Go back to the model that was current before, whoever promoted it; again, and it goes further back.

    Models that the service would not load are passed over. Where no promotion was logged (by an earlier release), the
    next older model takes its place, past those that the gate refused.

    \b
    Example:
      rightsizer rollback
    """
    from models import registry
    from models.artefact import load_predictor
    from slurm_plugin.service.decide import chain_settings_of

    config = load_config(config_file)
    directory = Path(config.models.directory)
    known = registry.earlier(directory)
    not_refused = (version for version in known.by_name if not _is_refused(directory / version))
    for version in (*known.logged, *not_refused):
        try:
            load_predictor(directory / version, chain_settings_of(config))
        except ModelError as error:
            note(f"model {version} is passed over: {error}")
            continue
        registry.promote(directory, version, "rollback")
        note(f"model {version} is current")
        return
    raise ModelError(f"no model in {directory} was current before this one; nothing was changed")


def _is_refused(folder: Path) -> bool:
    try:
        return _gate_of(folder) == "refused"
    except ModelError:
        return False
