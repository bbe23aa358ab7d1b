"""`rightsizer report cuts`: what cutting saved, or would have, and whom it gave too little."""

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
    help="Whose rows they are.",
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
    """Show what cutting has saved, or would have in observe mode, and how many jobs got less than they needed.

    Hours are of CPUs, of GiB of memory and of GPUs; what short jobs held in vain is taken off. Of the judged jobs,
    whose memory was measured or whose GPUs were too few, the short ones needed more memory, or GPUs, than was given;
    their share is at most `short at most %`, with 95 %, if jobs fail each for itself. Busy jobs kept more cores busy
    than was given: they take longer.

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
        note("no job that ended then carries a decision; load the hook, and run `rightsizer ingest`")


def _heading(name: str) -> str:
    return (
        name.replace("_pct", " %")
        .replace("_core_h", " core·h")
        .replace("_gib_h", " GiB·h")
        .replace("_gpu_h", " GPU·h")
        .replace("_", " ")
    )
