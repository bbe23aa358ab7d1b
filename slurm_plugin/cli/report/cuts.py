"""`rightsizer report cuts`: what cutting saved, or would have saved, and which jobs got too little."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click
import msgspec

from slurm_plugin.cli.output import config_option, format_option, note, print_rows
from slurm_plugin.cli.report.options import selection_options
from slurm_plugin.cli.stored import opened_store
from slurm_plugin.config.file import load_config

if TYPE_CHECKING:
    from accounting.report.selection import Selection


@click.command("cuts")
@click.option(
    "--by",
    type=click.Choice(["all", "partition", "user", "account"]),
    default="partition",
    show_default=True,
    help="What each row stands for.",
)
@config_option
@format_option
@selection_options
def cuts(
    by: Literal["all", "partition", "user", "account"],
    config_file: str | None,
    output_format: str,
    selection: Selection,
) -> None:
    """Show what cutting has saved, and how many jobs got too little.

    In observe mode the report shows what cutting would have saved. Hours are CPU hours, GiB hours of memory and GPU
    hours; the hours that short jobs held in vain are subtracted.

    A job is judged if its memory was measured or its GPUs were too few. A judged job is short if it needed more
    memory, or GPUs, than it was given. "short at most %" is the upper bound of the share of short jobs with 95 %
    confidence, if jobs fail independently of each other. A job is busy if it kept more cores busy than it was given:
    it takes longer.

    \b
    Example:
      rightsizer report cuts --since 2026-01-01
      rightsizer report cuts --by user --partition gpu
    """
    from accounting.report.cuts import CutRow, cut_rows, read_cuts

    with opened_store(load_config(config_file)) as engine:
        rows = cut_rows(read_cuts(engine, selection, by))
    if output_format == "table":
        shown = [
            {_heading(name): value for name, value in msgspec.structs.asdict(row).items()} for row in rows
        ]
        print_rows(shown, output_format)
    else:
        names = CutRow.__struct_fields__
        print_rows([msgspec.structs.asdict(row) for row in rows], output_format, columns=names)
    if not rows:
        note(
            "no ended job of this selection has a decision of rightsizer; load the hook, and run "
            "`rightsizer ingest`"
        )


def _heading(name: str) -> str:
    return (
        name.replace("_pct", " %")
        .replace("_core_h", " core·h")
        .replace("_gib_h", " GiB·h")
        .replace("_gpu_h", " GPU·h")
        .replace("_", " ")
    )
