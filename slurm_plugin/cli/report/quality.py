"""`rightsizer report quality`, which `rightsizer ingest --report` prints as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from accounting.units import counted
from slurm_plugin.cli.output import config_option, format_option, note, print_rows, progress_bar
from slurm_plugin.cli.report.options import NONE_CHOSEN, selection_options
from slurm_plugin.cli.stored import opened_store
from slurm_plugin.config.file import load_config

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from accounting.report.selection import Selection


@click.command("quality")
@click.option("--advice", "only_advice", is_flag=True, help="Print only what to change in Slurm's files.")
@config_option
@selection_options
@format_option
def quality(config_file: str | None, only_advice: bool, output_format: str, selection: Selection) -> None:
    """Show how many labels can be trusted, and what to change.

    The report gives the share of attempts whose figures can be trusted. A table is followed by advice on what to
    change in Slurm's files. JSON and CSV contain the shares, or with --advice the advice.

    \b
    Example:
      rightsizer report quality --since 2026-01-01
    """
    with opened_store(load_config(config_file)) as engine:
        if not show_quality(engine, selection, output_format, only_advice=only_advice):
            note(NONE_CHOSEN)


def show_quality(
    engine: Engine, selection: Selection, output_format: str, *, only_advice: bool = False
) -> bool:
    """Print the report on quality, which `rightsizer ingest --report` shows too; False if there is no attempt."""
    from accounting.report.advice import Advice, advice
    from accounting.report.quality import QUALITY_HEADING, quality_rows
    from accounting.report.quality_reading import read_segments

    with progress_bar("reading the store") as progress:
        segments = read_segments(engine, selection, progress)
    if not only_advice:
        said = "attempts that ran, in per cent"
        print_rows(quality_rows(segments), output_format, said, QUALITY_HEADING)
    never_started = sum(segment.never_started for segment in segments)
    if never_started:
        note(f"{counted(never_started, 'attempt')} never started; not counted here")
    lines = advice(segments)
    if only_advice or output_format == "table":
        if lines:
            print_rows([msgspec.structs.asdict(line) for line in lines], output_format, "what to change")
        elif output_format != "table":
            print_rows([], output_format, columns=Advice.__struct_fields__)
        elif segments:
            note("nothing to change: the labels are as good as Slurm can make them")
    return bool(segments)
