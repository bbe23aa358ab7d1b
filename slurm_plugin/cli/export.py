"""`rightsizer export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from accounting.units import counted
from slurm_plugin.cli.given_options import refuse_given
from slurm_plugin.cli.output import config_option, note, progress_bar
from slurm_plugin.cli.report.options import SELECTING, selection_options
from slurm_plugin.cli.stored import opened_store
from slurm_plugin.config.file import load_config

if TYPE_CHECKING:
    from accounting.report.selection import Selection


@click.command("export")
@click.option(
    "--to",
    "file",
    required=True,
    type=click.Path(path_type=Path),
    help="File to write; its name ends in .parquet or .csv.",
)
@click.option(
    "--what",
    type=click.Choice(["attempts", "steps", "gpu-use", "decisions"]),
    default="attempts",
    show_default=True,
    help="Table to write.",
)
@click.option(
    "--pseudonymise",
    "key_file",
    metavar="KEYFILE",
    type=click.Path(path_type=Path),
    help="Replace the names of users, accounts, jobs and comments by pseudonyms made with this key.",
)
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@selection_options
@config_option
def export(
    file: Path, what: str, key_file: Path | None, force: bool, config_file: str | None, selection: Selection
) -> None:
    """Write a table of the store to a Parquet or CSV file, for other tools.

    docs/store.md describes every column; Parquet's own metadata holds the same units and descriptions. You can select
    which attempts are written; the other tables are written whole. Names are written as users gave them, unless
    --pseudonymise is given.

    \b
    Example:
      rightsizer export --to gpu-jobs.csv --partition gpu --since 2026-01-01
      rightsizer export --to attempts.parquet --pseudonymise /etc/rightsizer/pseudonym.key
    """
    from accounting.store.export import export as export_table
    from accounting.store.export import refuse_target
    from slurm_plugin.cli.ingest.settings import pseudonyms_of

    if what != "attempts":
        refuse_given(
            *SELECTING, why="usable only with --what attempts; the other tables are always written whole"
        )
    config = load_config(config_file)
    conditions = selection.conditions()
    refuse_target(file, force=force)
    pseudonyms = None if key_file is None else pseudonyms_of(key_file)
    with opened_store(config) as engine, progress_bar(f"writing {file.name}") as progress:
        change = (lambda table: table) if pseudonyms is None else pseudonyms.table
        rows = export_table(
            engine, what, file, force=force, conditions=conditions, change=change, progress=progress
        )
    note(f"{counted(rows, 'row')} of {what} in {file}")
