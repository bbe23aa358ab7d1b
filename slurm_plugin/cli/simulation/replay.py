"""`rightsizer replay`: simulate the site's past jobs again, as asked and with the service enforcing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from accounting.errors import RightsizerError
from slurm_plugin.cli.models.sizing import enforced_grant
from slurm_plugin.cli.output import config_option, format_option, note, print_rows, progress_bar
from slurm_plugin.cli.plot_check import check_plots
from slurm_plugin.cli.report.options import TIME
from slurm_plugin.cli.simulation.machines import HOW, machines, nodes_option
from slurm_plugin.cli.simulation.replay_past import Window, read_past
from slurm_plugin.cli.simulation.replay_rows import doubts, grounds, row_of, transposed, window_in_words
from slurm_plugin.cli.spans import span_option
from slurm_plugin.cli.stored import check_store
from slurm_plugin.config.file import load_config
from slurm_plugin.config.settings import Config

if TYPE_CHECKING:
    from models.simulation.engine import Policy
    from models.simulation.hooks import Sizing
    from models.simulation.nodes import Cluster, Node
    from models.simulation.past import Past
    from models.simulation.replayed import Comparison
    from models.simulation.results import Results

FILE = click.Path(dir_okay=False, path_type=Path)
RECORDED, AS_ASKED, ENFORCED = "recorded", "as asked", "rightsizer"


class Row(NamedTuple):
    """One run to compare: a policy ('' for what was recorded), how jobs were sized under it, and the results."""

    policy: str
    sizing: str
    found: Comparison

    @property
    def name(self) -> str:
        """The run's name in a table or plot."""
        return f"{self.policy}, {self.sizing}" if self.policy else self.sizing


@click.command("replay")
@config_option
@click.option(
    "--since",
    type=TIME,
    help="Only jobs submitted at or after this local time. Default: the last 30 days of the store.",
)
@click.option(
    "--until", type=TIME, help="Only jobs submitted before this local time. Default: up to the last job."
)
@click.option("--cluster", help="Only jobs of this cluster; required if the store has several.")
@click.option("--partition", help="Only jobs of this partition (and the live cluster's nodes in it).")
@span_option("history", "60d", "Learn from this much time before the window.")
@nodes_option(
    "The nodes, such as 20x64:257000:4. Can be repeated. Default: those of --scenario, else the live "
    "cluster's nodes."
)
@click.option("--scenario", type=FILE, help="A scenario of `rightsizer simulate`; its [[nodes]] are used.")
@click.option(
    "--policy",
    "names",
    multiple=True,
    default=("easy",),
    show_default=True,
    help="Scheduling policy. Can be repeated.",
)
@click.option("--leave-out", is_flag=True, help="Leave out the jobs that do not fit these nodes.")
@click.option("--plot", type=FILE, help="Draw what was in use over time (PNG, SVG, PDF).")
@format_option
def replay(
    config_file: str | None,
    since: datetime | None,
    until: datetime | None,
    cluster: str | None,
    partition: str | None,
    history_s: int,
    nodes: tuple[Node, ...],
    scenario: Path | None,
    names: tuple[str, ...],
    leave_out: bool,
    plot: Path | None,
    output_format: str,
) -> None:
    """Simulate the jobs of the store again: as they asked, and as the service would have granted.

    Each job is sized from the jobs that had ended before it was submitted, with the site's policy and rules.
    "recorded" is what really happened: the difference between it and "as asked" shows how far this simulation can be
    trusted. A job that gets too little memory dies half-way and is requeued with its original request. A resource
    whose use was not measured stays as asked. Only the store is read, and nothing is changed; docs/simulation.md lists
    the assumptions.

    \b
    Example:
      rightsizer replay
      rightsizer replay --since 2026-01-01 --until 2026-02-01 --nodes 100x64:257000 --nodes 8x64:515000:4
    """
    from models.simulation.policies import policies
    from slurm_plugin.config.energy import energy_site

    config = load_config(config_file)
    site = energy_site(config.energy)
    chosen = policies(dict.fromkeys(names))
    if plot is not None:
        check_plots(plot)
    if since is not None and until is not None and since >= until:
        raise click.UsageError("the time from --since to --until is empty; give a --since before --until")
    check_store(config)
    from models.simulation.replayed import compare, recorded

    # The nodes come first, because reading a large site's past takes minutes.
    where = machines(nodes, scenario, partition)
    past = read_past(config, Window(since, until, history_s, cluster, partition))
    past = fitted(past, where, leave_out=leave_out)
    real = recorded(past, where)
    rows: list[Row] = []
    drawn: dict[str, Results] = {}
    for policy, sizing, results in chain([("", RECORDED, real)], ran(past, where, config, chosen)):
        rows.append(Row(policy, sizing, compare(past, results, site)))
        # The results hold every moment and are large, so they are kept only if there is a plot.
        if plot is not None:
            drawn[rows[-1].name] = results
    if plot is not None:
        from slurm_plugin.cli.simulation.picture import draw

        draw(drawn, plot)
    show(past, rows, output_format)
    for line in (*grounds(past), *doubts(real)):
        note(line)


def fitted(past: Past, cluster: Cluster, *, leave_out: bool) -> Past:
    """Return the past without jobs that do not fit the nodes.

    Raises RightsizerError if there are such jobs and `leave_out` is false, or if no job fits.
    """
    from models.simulation.fitting import unfit, why_unfit, without

    cannot = unfit(past, cluster)
    if not cannot.any():
        return past
    reason = why_unfit(past, cluster, cannot)
    if not leave_out:
        raise RightsizerError(f"{reason}; {HOW}, or leave these jobs out with --leave-out")
    if not (past.counted & ~cannot).any():
        raise RightsizerError(f"{reason}, and there are no other jobs in that time; {HOW}")
    note(f"{reason}; they are left out")
    return without(past, cannot)


def ran(
    past: Past, cluster: Cluster, config: Config, chosen: Mapping[str, Policy]
) -> Iterator[tuple[str, str, Results]]:
    """Yield policy, sizing and results: for each policy, of the jobs as asked and as sized by the service."""
    from models.simulation.hooks import AsAsked, Told
    from models.simulation.replayed import replay

    ways: dict[str, Callable[[], Sizing]] = {
        AS_ASKED: lambda: AsAsked(past.jobs),
        ENFORCED: lambda: learned(past, config),
    }
    for name, policy in chosen.items():
        for sizing, made in ways.items():
            way = made()
            with progress_bar(f"{name}, {sizing}") as progress:
                results = replay(past, cluster, policy, Told(way, past.jobs, progress))
            yield name, sizing, results


def learned(past: Past, config: Config) -> Sizing:
    """Return the service's sizing, which has learned from the jobs before the window."""
    from models.judging.online import Learner, follow
    from models.simulation.learned import LearnedSizing
    from slurm_plugin.service.decide import chain_settings_of

    learner = Learner(chain_settings_of(config), config.models.recent_jobs)
    with progress_bar("learning from the time before") as progress:
        follow(past.before, learner, past.since_s, progress)
    return LearnedSizing(past.jobs, past.cases, learner, enforced_grant(config), past.keeps, past.since_s)


def show(past: Past, rows: Sequence[Row], output_format: str) -> None:
    """Print the figures of all rows."""
    found = [row_of(row.policy, row.sizing, row.found) for row in rows]
    if output_format == "table":
        print_rows(transposed([row.name for row in rows], found), output_format, window_in_words(past))
    else:
        print_rows(found, output_format)
