"""The options that all reports share: which attempts they are about."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import datetime, timezone

import click

# What `selection_options` adds, by the names of the parameters.
SELECTING = ("since", "until", "cluster", "user", "account", "partition")
NONE_CHOSEN = "the store has no attempt that these options mean; choose others, or run `rightsizer ingest`"
TIME = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"])

by_option = click.option(
    "--by",
    type=click.Choice(["user", "account"]),
    default="user",
    show_default=True,
    help="Whose rows they are.",
)


def unix_s(time: datetime, option: str) -> int:
    """Return a local time that an option gave, in unix seconds; a wrong use where a machine cannot tell it so."""
    try:
        return int(time.astimezone(timezone.utc).timestamp())
    except (ValueError, OverflowError, OSError):
        raise click.UsageError(
            f"{option} {time.date().isoformat()} is no time of any job; give one such as 2026-01-31"
        ) from None


def selection_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say which attempts are meant; they come as one `selection`."""
    since, until = (
        "Attempts that ended from this local time on.",
        "Attempts that ended before this local time.",
    )

    @click.option("--since", type=TIME, help=since)
    @click.option("--until", type=TIME, help=until)
    @click.option("--cluster", help="Of this cluster alone.")
    @click.option("--user", help="Of this user alone.")
    @click.option("--account", help="Of this account alone.")
    @click.option("--partition", help="Of this partition alone.")
    @functools.wraps(function)
    def with_selection(
        since: datetime | None,
        until: datetime | None,
        cluster: str | None,
        user: str | None,
        account: str | None,
        partition: str | None,
        **others: object,
    ) -> None:
        from slurm_plugin.cli.report.selection import ChosenAttempts

        if since is not None and until is not None and since >= until:
            raise click.UsageError("nothing lies between --since and --until; give a --since before --until")
        selection = ChosenAttempts(
            since_s=None if since is None else unix_s(since, "--since"),
            until_s=None if until is None else unix_s(until, "--until"),
            cluster=cluster,
            user=user,
            account=account,
            partition=partition,
        )
        function(selection=selection, **others)

    return with_selection
