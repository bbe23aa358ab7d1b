"""The options that all reports share: which attempts to select."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import datetime, timezone

import click

# The parameters that `selection_options` adds.
SELECTING = ("since", "until", "cluster", "user", "account", "partition")
NONE_CHOSEN = "the store has no attempt of this selection; select differently, or run `rightsizer ingest`"
TIME = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"])

by_option = click.option(
    "--by",
    type=click.Choice(["user", "account"]),
    default="user",
    show_default=True,
    help="What each row stands for.",
)
top_option = click.option(
    "--top", type=click.IntRange(1), default=20, show_default=True, help="Show at most this many rows."
)


def unix_s(time: datetime, option: str) -> int:
    """Return an option's local time in unix seconds; UsageError if this machine cannot represent it."""
    try:
        return int(time.astimezone(timezone.utc).timestamp())
    except (ValueError, OverflowError, OSError):
        raise click.UsageError(
            f"{option} {time.date().isoformat()} is not a time at which jobs can run; give one such as "
            "2026-01-31"
        ) from None


def selection_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that select attempts; the command receives them as one `selection`."""
    since, until = (
        "Only attempts that ended at or after this local time.",
        "Only attempts that ended before this local time.",
    )

    @click.option("--since", type=TIME, help=since)
    @click.option("--until", type=TIME, help=until)
    @click.option("--cluster", help="Only attempts of this cluster.")
    @click.option("--user", help="Only attempts of this user.")
    @click.option("--account", help="Only attempts of this account.")
    @click.option("--partition", help="Only attempts of this partition.")
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
            raise click.UsageError("the time from --since to --until is empty; give a --since before --until")
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
