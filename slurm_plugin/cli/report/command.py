"""`rightsizer report`: what is asked for, used and wasted, by whom, and how far the labels can be trusted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import click

from slurm_plugin.cli.output import config_option, format_option, note, print_rows, progress_bar
from slurm_plugin.cli.report.advised import advised_jobs, advised_margin
from slurm_plugin.cli.report.advisor import advisor
from slurm_plugin.cli.report.cuts import cuts
from slurm_plugin.cli.report.gpu_parts import gpu_parts
from slurm_plugin.cli.report.idle_gpus import idle_gpus
from slurm_plugin.cli.report.options import NONE_CHOSEN, by_option, selection_options, top_option
from slurm_plugin.cli.report.quality import quality
from slurm_plugin.cli.report.recoveries import recoveries
from slurm_plugin.cli.report.slowdown import slowdown
from slurm_plugin.cli.report.slowed import slowed_by_model
from slurm_plugin.cli.report.tables import brief_use, brief_waste
from slurm_plugin.cli.stored import opened_store
from slurm_plugin.config.file import load_config
from slurm_plugin.config.settings import Config

if TYPE_CHECKING:
    from accounting.report.selection import Selection
    from accounting.report.spreads import Percentiles
    from accounting.report.usage import RightSize, Spreads, View


def use_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that the reports on use share."""
    energy = click.option(
        "--energy", is_flag=True, help="Also show energy and carbon, from the site's table; slower."
    )
    options: Callable[..., None] = config_option(
        top_option(energy(format_option(selection_options(function))))
    )
    return options


@click.group("report")
def report_group() -> None:
    """Report on the store: what jobs ask for, use and waste, and which labels can be trusted.

    \b
    Example:
      rightsizer report waste --since 2026-01-01
    """


report_group.add_command(advisor)
report_group.add_command(cuts)
report_group.add_command(gpu_parts)
report_group.add_command(idle_gpus)
report_group.add_command(quality)
report_group.add_command(recoveries)
report_group.add_command(slowdown)


@report_group.command("families")
@use_options
def families(
    config_file: str | None, top: int, energy: bool, output_format: str, selection: Selection
) -> None:
    """Show how jobs of each family ended, and what they used.

    The report also shows what they asked for and were granted. A family is one user's jobs whose names differ only in
    numbers, or in what a workflow engine added (its run, the sample). Families are sorted by their share of all cores,
    all memory or all GPUs held, whichever is largest.

    \b
    Example:
      rightsizer report families --user ann --top 5
    """
    show_use(config_file, selection, "family", top, output_format, energy=energy)


def show_use(
    config_file: str | None, selection: Selection, by: str, top: int, output_format: str, *, energy: bool
) -> None:
    """Print what was asked for, granted and used, by family, user or account."""
    from accounting.report.usage import use_columns, use_rows

    with _found(load_config(config_file), selection, by, energy=energy) as found:
        rows = use_rows(found.view, top, found.spreads) if found else []
    columns = use_columns(titles_of(by), energy=energy)
    print_rows(brief_use(rows) if output_format == "table" else rows, output_format, columns=columns)


@report_group.command("users")
@by_option
@use_options
def users(
    by: str,
    config_file: str | None,
    top: int,
    energy: bool,
    output_format: str,
    selection: Selection,
) -> None:
    """Show how jobs of each user ended, and what they used.

    The report also shows what they asked for and were granted. With --by account there is one row per account. Rows
    are sorted by their share of all cores, all memory or all GPUs held, whichever is largest.

    \b
    Example:
      rightsizer report users --by account --format csv > accounts.csv
    """
    show_use(config_file, selection, by, top, output_format, energy=energy)


@report_group.command("waste")
@click.option(
    "--by",
    type=click.Choice(["family", "user", "account"]),
    default="family",
    show_default=True,
    help="What each row stands for.",
)
@use_options
def waste(
    by: str,
    config_file: str | None,
    top: int,
    energy: bool,
    output_format: str,
    selection: Selection,
) -> None:
    """Show who holds most without using it, and the right size.

    Only attempts whose use is known count; stderr says how many others there are, and why. Rows are sorted by their
    share of all cores, memory or GPUs held, whichever is largest.

    The right size is the most that a family has used, plus 15 %, if at least five attempts of it were measured. It is
    larger if the site's [policy] margins or models.min_evidence are higher. It exceeds the request if jobs used nearly
    all of it, or were killed for memory: such jobs need more. If the current model knows that fewer CPUs have slowed a
    family, the right size has more CPUs too; if less memory has slowed it, no right size for memory is shown.

    \b
    Example:
      rightsizer report waste --partition gpu --format json
    """
    from accounting.report.waste import left_out_in_words, waste_columns, waste_of

    with _found(load_config(config_file), selection, by, energy=energy) as found:
        wasted = waste_of(found.view, top) if found else None
    rows = wasted.rows if wasted else []
    columns = waste_columns(titles_of(by), energy=energy)
    print_rows(brief_waste(rows) if output_format == "table" else rows, output_format, columns=columns)
    for said in left_out_in_words(wasted.left_out) if wasted else ():
        note(said)


def titles_of(by: str) -> tuple[str, ...]:
    """Return the names of the columns that say to whom a row belongs."""
    return ("user", "family") if by == "family" else (by,)


class _Found(NamedTuple):
    """The selected attempts, grouped, and how to read the percentiles of some of them."""

    view: View
    spreads: Spreads


@contextmanager
def _found(config: Config, selection: Selection, by: str, *, energy: bool) -> Iterator[_Found | None]:
    """Yield the selected attempts of the configured store, grouped; None if there are none."""
    from accounting.report.reading import gather, read_percentiles
    from accounting.report.usage import view_families, view_first
    from models.past.families import family_name
    from slurm_plugin.config.energy import energy_site

    site = energy_site(config.energy) if energy else None
    with opened_store(config) as engine:

        def spreads(wanted: Sequence[str], shares: Sequence[float]) -> Percentiles:
            keys, family_of = ("user", family_name) if by == "family" else (by, None)
            with progress_bar("percentiles") as progress:
                return read_percentiles(engine, selection, (keys,), family_of, wanted, shares, progress)

        keys = ("account", "user") if by == "account" else ("user",)
        with progress_bar("adding up") as progress:
            groups = gather(engine, selection, keys, family_name, site, progress)
        if groups is None:
            note(NONE_CHOSEN)
            yield None
            return
        if groups.folded:
            note(f'{groups.folded:,} small families are counted together as "(all others)" of their users')
        rule = _right_size(config)
        yield _Found(view_families(groups, rule) if by == "family" else view_first(groups, rule, by), spreads)


def _right_size(config: Config) -> RightSize:
    from accounting.report.usage import RightSize
    from models.past.families import is_alike

    policy = config.policy
    return RightSize(
        memory_margin=advised_margin(policy.memory_margin),
        memory_floor_mib=policy.memory_floor_mib,
        memory_step_mib=policy.memory_step_mib,
        cores_margin=advised_margin(policy.cores_margin),
        least_jobs=advised_jobs(config),
        alike=is_alike,
        slowed=slowed_by_model(config),
    )
