"""`rightsizer report slowdown`: whether jobs run longer since they are cut."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import click
import msgspec

from accounting.units import counted
from slurm_plugin.cli.output import config_option, format_option, note, print_rows
from slurm_plugin.cli.report.options import selection_options, top_option
from slurm_plugin.cli.stored import opened_store
from slurm_plugin.config.file import load_config

if TYPE_CHECKING:
    from accounting.report.selection import Selection
    from accounting.report.slowdown import SlowdownRow


@click.command("slowdown")
@top_option
@config_option
@format_option
@selection_options
def slowdown(config_file: str | None, top: int, output_format: str, selection: Selection) -> None:
    """Show by family whether jobs run longer since they are cut.

    Jobs that completed with less than they asked for are compared with uncut jobs of the same user, family, cluster,
    partition and number of CPUs. Uncut jobs come from before the introduction, from observe mode, from a rule, or from
    --comment=rightsize=off. A family counts as slower if the difference is too large to be chance, given the number of
    families compared. Changes of programs and inputs in the meantime also show up here.

    \b
    Example:
      rightsizer report slowdown --since 2026-01-01
      rightsizer report slowdown --user ann --top 5
    """
    from accounting.report.slowdown import SlowdownRow, read_runs, slowdown_rows
    from models.past.families import family_name

    with opened_store(load_config(config_file)) as engine:
        rows = slowdown_rows(read_runs(engine, selection, family_name))
    shown = [msgspec.structs.asdict(row) for row in rows[:top]]
    if output_format == "table":
        print_rows([{_heading(name): value for name, value in row.items()} for row in shown], output_format)
    else:
        print_rows(shown, output_format, columns=SlowdownRow.__struct_fields__)
    note(_in_words(rows))


def _heading(name: str) -> str:
    return {"cpus": "CPUs asked", "less": "less", "cut_min": "cut (min)", "whole_min": "whole (min)"}.get(
        name, name.replace("_h", " (h)")
    )


def _in_words(rows: list[SlowdownRow]) -> str:
    if not rows:
        return (
            "no family has five jobs that were cut and five comparable jobs that were not; leave some "
            "jobs uncut (`percent` of a rule, brakes.control_share), or look again when more jobs have "
            "run"
        )
    middle = statistics.median(row.times for row in rows)
    slower = sum(row.slower for row in rows)
    # A family has one row for each cluster, partition, number of CPUs and kind of cut.
    families = len({(row.user, row.family) for row in rows})
    who = "one family" if families == 1 else f"{families:,} families"
    what = f"{who}, in the median of {len(rows):,} rows," if len(rows) > 1 else who
    told = f"{what} ran {middle:.2f} times as long when cut"
    if not slower:
        return f"{told}; no row is slower beyond chance"
    return (
        f"{told}; {counted(slower, 'row')} slower beyond chance. To stop cutting such a family: `rightsizer "
        "disable --family USER:FAMILY`, a rule in the configuration, or --comment=rightsize=off by its "
        "user"
    )
