"""`rightsizer advise`: the backfill advisor, for one cycle or until stopped; a dry run without --apply."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from accounting.errors import ServiceError, SlurmError
from accounting.units import counted
from slurm_plugin.cli.orderly_end import stopped_by_signals
from slurm_plugin.cli.output import config_option, format_option, note, print_rows
from slurm_plugin.config.file import load_config
from slurm_plugin.config.secret_urls import store_url
from slurm_plugin.config.settings import Config
from slurm_plugin.log_lines import log_to_stderr

if TYPE_CHECKING:
    from slurm_plugin.advisor.cycle import Advisor, Outcome
    from slurm_plugin.slurm.gateway import Gateway
    from slurm_plugin.slurm.queue import Written

log = logging.getLogger(__name__)

TOP = 40


@click.command("advise")
@click.option("--once", is_flag=True, help="Run one cycle and exit; the default without --watch.")
@click.option(
    "--watch", "watches", is_flag=True, help="Run a cycle every advisor.period_s seconds, until stopped."
)
@click.option("--apply", is_flag=True, help="Change the queue. Without it, nothing is written to Slurm.")
@click.option("--undo", is_flag=True, help="Only undo what the advisor has changed.")
@click.option("--expired", is_flag=True, help="With --undo: only if the advisor's lease has expired.")
@click.option(
    "--top",
    type=click.IntRange(1),
    help=f"Show at most this many jobs. Default: {TOP} in a table, all in JSON and CSV.",
)
@config_option
@format_option
def advise(
    once: bool,
    watches: bool,
    apply: bool,
    undo: bool,
    expired: bool,
    top: int | None,
    config_file: str | None,
    output_format: str,
) -> None:
    """Show the best order for the pending queue, and set it with --apply.

    Each row is a job: its place and SiteFactor now and as proposed, when it is expected to start without and with the
    advisor, and why. Held, dependent and reserved jobs, and the jobs at the top of the queue, keep their place. The
    order is set by SiteFactor. All changes are undone when --watch is stopped, by --undo, or when no cycle has run for
    advisor.lease_s seconds.

    \b
    Example:
      rightsizer advise
      rightsizer advise --watch --apply
      rightsizer advise --undo
    """
    from slurm_plugin.slurm.gateway import open_gateway
    from slurm_plugin.slurm.rights import why_no_site_factors

    check_options(once=once, watches=watches, apply=apply, undo=undo, expired=expired)
    config = load_config(config_file)
    log_to_stderr(warnings_alone=not (apply or undo))
    logging.getLogger("alembic").setLevel(logging.WARNING)  # the schema is not news of the queue
    if undo:
        gateway = open_gateway(config, apply=True)
        # A hanging advisor holds the lock, so the timer does without it: it goes by the lease.
        with nullcontext() if expired else gateway:
            written = gateway.undo(only_expired=expired)
        if written or not expired:
            tell_undone(written)
        return
    with open_gateway(config, apply=apply) as gateway:
        if apply and (forbidden := why_no_site_factors()):
            raise ServiceError(forbidden)
        advisor = advisor_of(config, gateway, apply=apply, keeps=apply or watches)
        if watches:
            watch_on(advisor, apply=apply)
        else:
            show(advisor.cycle(), output_format, top, apply=apply)


def check_options(*, once: bool, watches: bool, apply: bool, undo: bool, expired: bool) -> None:
    """Raise UsageError for options that do not go together."""
    if once and watches:
        raise click.UsageError("--once and --watch do not go together; give one of them")
    if undo and (once or watches or apply):
        raise click.UsageError(
            "--undo can only be combined with --expired; stop the advisor first, then run --undo alone"
        )
    if expired and not undo:
        raise click.UsageError("--expired needs --undo")


def advisor_of(config: Config, gateway: Gateway, *, apply: bool, keeps: bool) -> Advisor:
    """Return the advisor that the configuration asks for."""
    from models.planning.arrivals import FORESEEN_S
    from slurm_plugin.advisor.cycle import Advisor, Means
    from slurm_plugin.advisor.forecast import Forecast
    from slurm_plugin.advisor.lending import Lending
    from slurm_plugin.advisor.past_starts import PastStarts
    from slurm_plugin.advisor.sizing import LateSizing
    from slurm_plugin.service.current_model import CurrentModel
    from slurm_plugin.service.decide import chain_settings_of

    model = CurrentModel(Path(config.models.directory), chain_settings_of(config))
    return Advisor(
        Means(
            settings=config.advisor,
            cluster=gateway.cluster,
            gateway=gateway,
            model=model,
            apply=apply,
            keeps=keeps,
            forecast=Forecast(store_url(config), gateway.cluster, min(FORESEEN_S, config.advisor.horizon_s)),
            past_starts=PastStarts(store_url(config), gateway.cluster),
            late_sizing=LateSizing(config, model) if apply and may_size_again(config) else None,
            lending=Lending(config) if may_lend(config, apply=apply) else None,
        )
    )


def may_size_again(config: Config) -> bool:
    """Whether pending jobs are to be sized again, and can be; logs a warning if they cannot."""
    from slurm_plugin.slurm.rights import why_not_in_their_names

    if config.advisor.late_sizing and (forbidden := why_not_in_their_names()):
        log.warning("advisor.late_sizing is on, but nothing is sized again: %s", forbidden)
        return False
    return config.advisor.late_sizing


def may_lend(config: Config, *, apply: bool) -> bool:
    """Whether jobs are to be let into lent partitions, and can be; logs a warning if they cannot."""
    from slurm_plugin.slurm.rights import why_not_in_their_names

    if config.lent_partitions and apply and (forbidden := why_not_in_their_names()):
        log.warning("there are lent_partitions, but nobody is let in: %s", forbidden)
        return False
    return bool(config.lent_partitions)


def tell_undone(written: Sequence[Written]) -> None:
    """Report the result of an undo; SlurmError if Slurm did not take some of it."""
    failed = [one for one in written if one.problem and one.problem != "gone"]
    note(f"undone: {counted(len(written) - len(failed), 'change')} of the advisor")
    if failed:
        raise SlurmError(
            f"not undone: {counted(len(failed), 'change')} ({failed[0].problem}); run `rightsizer advise --undo`"
        )


def watch_on(advisor: Advisor, *, apply: bool) -> None:
    """Run cycles until SIGTERM or SIGINT; the current cycle is finished first."""
    from slurm_plugin.advisor.loop import watch
    from slurm_plugin.advisor.view import summary_of

    stop = stopped_by_signals()
    undone = watch(advisor, stop, lambda outcome: note(summary_of(outcome, apply=apply)))
    note("stopped")
    if apply:
        tell_undone(undone)


def show(outcome: Outcome, output_format: str, top: int | None, *, apply: bool) -> None:
    """Print a cycle: one row for each job, and a summary."""
    from slurm_plugin.advisor.view import rows_of, summary_of, table_of

    rows = rows_of(outcome)
    as_table = output_format == "table"
    shown = rows[: top or (TOP if as_table else len(rows))]
    if rows or not as_table:
        print_rows(table_of(shown, outcome.snapshot.time_s) if as_table else shown, output_format)
    if len(shown) < len(rows):
        note(f"{counted(len(rows) - len(shown), 'more job')} in the queue; --top N shows more")
    note(summary_of(outcome, apply=apply))
