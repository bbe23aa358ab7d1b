"""`rightsizer report advisor`: compare the advisor's expected starts with the real ones, and show what it gains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from slurm_plugin.cli.output import config_option, format_option, note, print_rows
from slurm_plugin.cli.report.options import selection_options
from slurm_plugin.cli.stored import opened_store
from slurm_plugin.config.file import load_config

if TYPE_CHECKING:
    from accounting.report.selection import Selection

NOTHING = (
    "the store has no cycle of the advisor for this selection; select differently, or run `rightsizer "
    "advise --watch` and then `rightsizer ingest`"
)


@click.command("advisor")
@click.option("--effect", "only_effect", is_flag=True, help="Show only the effect of the advisor.")
@config_option
@selection_options
@format_option
def advisor(config_file: str | None, only_effect: bool, output_format: str, selection: Selection) -> None:
    """Show how right expected starts were, and the effect.

    The advisor's effect compares the time in which it acted with the time in which it only watched. A table of the
    starts is followed by the effect, with its 95 % confidence interval. JSON and CSV contain the starts, or with
    --effect the effect. docs/advisor.md says what the effect can show and what it cannot.

    \b
    Example:
      rightsizer report advisor --since 2026-01-01
    """
    from accounting.report.advisor import START_HEADING, Effect, effects, start_rows
    from accounting.report.advisor_reading import read_blocks, read_foreseen
    from models.simulation.results import bounded_slowdowns

    config = load_config(config_file)
    with opened_store(config) as engine:
        starts = [] if only_effect else start_rows(read_foreseen(engine, selection))
        with_effect = only_effect or output_format == "table"
        blocks = (
            read_blocks(engine, selection, config.advisor.block_s, bounded_slowdowns) if with_effect else None
        )
    has_none = not starts and blocks is not None and not blocks.acted
    if not only_effect:
        print_rows(starts, output_format, "expected starts and real starts", START_HEADING)
    if blocks is not None and (only_effect or not has_none):
        rows = [msgspec.structs.asdict(effect) for effect in effects(blocks)] if blocks.acted else []
        said = "jobs submitted while the advisor acted, and while it only watched"
        print_rows(rows, output_format, said, Effect.__struct_fields__)
        if not rows:
            note(
                "no effect can be shown: no job of a block in which the advisor acted or watched by lot "
                "has ended yet"
            )
    if has_none:
        note(NOTHING)
