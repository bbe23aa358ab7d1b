"""The options that all reports share: which attempts they are about."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import datetime

import click

# What `selection_options` adds, by the names of the parameters.
SELECTING = ("since", "until", "cluster", "user", "account", "partition")
TIME = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"])

by_option = click.option(
    "--by",
    type=click.Choice(["user", "account"]),
    default="user",
    show_default=True,
    help="Whose rows they are.",
)


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
        from accounting.report.selection import Selection

        if since is not None and until is not None and since >= until:
            raise click.UsageError("nothing lies between --since and --until; give a --since before --until")
        selection = Selection(
            since_s=None if since is None else int(since.timestamp()),
            until_s=None if until is None else int(until.timestamp()),
            cluster=cluster,
            user=user,
            account=account,
            partition=partition,
        )
        function(selection=selection, **others)

    return with_selection
