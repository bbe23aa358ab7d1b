"""`rightsizer models`, `promote` and `rollback`: which model answers."""

from __future__ import annotations

from pathlib import Path

import click

from accounting.errors import ModelError
from slurm_plugin.cli.models.pruning import remove_old, show_standing
from slurm_plugin.cli.output import config_option, format_option, local_second, note, print_rows
from slurm_plugin.cli.shown_text import visible
from slurm_plugin.config.file import load_config

COLUMNS = (
    "version", "current", "since", "by", "gate", "trained", "attempts", "families", "xgboost", "gpu meters"
)  # fmt: skip


@click.command("models")
@click.argument("version", required=False)
@click.option(
    "--prune", "pruned", is_flag=True, help="Show which versions are kept, and which would be removed."
)
@click.option("--apply", is_flag=True, help="With --prune: remove them.")
@config_option
@format_option
def models(
    version: str | None, pruned: bool, apply: bool, config_file: str | None, output_format: str
) -> None:
    """List the trained models, oldest first, or print the card of one.

    For the current model, the list shows since when and by what it is current (the gate, `--promote always`, by hand
    or rollback), and who ran it. A damaged model is reported: a running service keeps using the one before.

    Models that models.keep_days and models.keep_newest do not keep are removed at the end of each `rightsizer train`;
    --prune --apply removes them at once.

    \b
    Example:
      rightsizer models --format json
      rightsizer models 20261120T190001.123Z-ab12cd
      rightsizer models --prune
    """
    if (pruned and version is not None) or (apply and not pruned):
        raise click.UsageError("--prune takes no VERSION, and --apply needs --prune")
    config = load_config(config_file)
    directory = Path(config.models.directory)
    if pruned:
        show_standing(config, output_format)
        if apply:
            remove_old(config)
    elif version is None:
        print_rows(_listed(directory), output_format, columns=COLUMNS)
    else:
        _print_card(directory, version, output_format)


def _listed(directory: Path) -> list[dict[str, object]]:
    from models.versions import registry
    from models.versions.artefact import read_all, read_manifest
    from models.versions.going_back import gate_of

    if registry.is_closed(directory):
        raise ModelError(f"you may not read the models in {directory}; run this as the user who trains")
    current = registry.current_version(directory)
    rows: list[dict[str, object]] = []
    for version in sorted({*registry.versions(directory), *filter(None, [current])}):
        try:
            manifest, gate = read_manifest(directory / version), gate_of(directory / version)
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
                "trained": local_second(manifest.created_s),
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
        f"the current model is damaged, and a running service keeps using the one before: {error}, or "
        "go back with `rightsizer rollback`"
    )


def _tenure(directory: Path) -> tuple[str, str]:
    """Return since when the current model has been current, and what made it so."""
    from models.versions import registry

    try:
        held = registry.known_succession(directory).held
    except ModelError as error:
        note(str(error))
        held = ()
    if held and held[-1].by:
        return local_second(held[-1].by.time_s), f"{held[-1].by.why}, {held[-1].by.who}"
    since_s = registry.current_since_s(directory)
    return local_second(since_s) if since_s else "", "not logged"


def _print_card(directory: Path, version: str, output_format: str) -> None:
    from models.versions import registry
    from models.versions.artefact import CARD_JSON, CARD_MD, read_card

    if output_format == "csv":
        raise click.UsageError("a card has no rows; use --format table or json")
    registry.check_there(directory, version)
    content = read_card(directory / version, CARD_JSON if output_format == "json" else CARD_MD)
    click.echo(visible(content.decode().rstrip(), keep="\n"))


@click.command("promote")
@click.argument("version")
@config_option
def promote(version: str, config_file: str | None) -> None:
    """Make a trained model the current one, after the checks that the service makes when it loads a model.

    \b
    Example:
      rightsizer promote 20261120T190001.123Z-ab12cd
    """
    from models.versions import registry
    from slurm_plugin.service.decide import chain_settings_of

    config = load_config(config_file)
    directory = Path(config.models.directory)
    registry.check_there(directory, version)
    registry.load_version(directory, version, chain_settings_of(config))
    registry.promote(directory, version)
    note(f"model {version} is current")


@click.command("rollback")
@config_option
def rollback(config_file: str | None) -> None:
    """Go back to the model that was current before; run it again to go further back.

    It does not matter who promoted that model. Models that the service would not load are skipped. If no promotion was
    logged (by an earlier release), the next older model is used, except those that the gate refused.

    \b
    Example:
      rightsizer rollback
    """
    from models.versions import registry
    from models.versions.going_back import rollback_target
    from slurm_plugin.service.decide import chain_settings_of

    config = load_config(config_file)
    directory = Path(config.models.directory)
    target = rollback_target(directory, chain_settings_of(config))
    for version, why in target.passed_over.items():
        note(f"skipping model {version}: {why}")
    if target.version is None:
        raise ModelError(f"no earlier model in {directory} was ever current; nothing was changed")
    registry.promote(directory, target.version, "rollback")
    note(f"model {target.version} is current")
