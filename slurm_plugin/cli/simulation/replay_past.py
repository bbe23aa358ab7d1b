"""Read the window of the store that `rightsizer replay` simulates, and the history before it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from accounting.errors import RightsizerError
from slurm_plugin.cli.report.options import unix_s
from slurm_plugin.cli.spans import DAY_S
from slurm_plugin.cli.stored import opened_store
from slurm_plugin.config.settings import Config

if TYPE_CHECKING:
    from accounting.records import Attempt
    from models.simulation.past import Past

LAST_DAYS = 30
OPTED_OUT = "had opted out by their comment"
DIRECT = "were not batch jobs"


class Window(NamedTuple):
    """Which jobs to replay (local times; None: the latest in the store), and how much history to learn from."""

    since: datetime | None
    until: datetime | None
    history_s: int
    cluster: str | None
    partition: str | None


def read_past(config: Config, window: Window) -> Past:
    """Return the window of the configured store as a load; RightsizerError if there is nothing to replay."""
    from accounting.store.records import read_direct_jobs, submissions, submitted_between
    from models.simulation.past import past_of

    with opened_store(config) as engine:
        with engine.connect() as connection:
            submitted = submissions(connection)
            cluster = one_cluster(submitted, window.cluster)
            since_s, until_s = bounds(window, *submitted[cluster])
            direct = read_direct_jobs(connection, cluster, since_s)
        # However short the history is, what waited or ran when the window began is a part of its first days.
        attempts = submitted_between(
            engine,
            cluster,
            since_s - window.history_s,
            until_s,
            window.partition,
            or_ended_after_s=since_s,
        )
        return past_of(attempts, since_s, until_s, left_alone(direct))


def one_cluster(submitted: Collection[str], wanted: str | None) -> str:
    """Return the wanted one of the clusters in the store, by its exact name or in lower case, as slurmdbd has it.

    Raises RightsizerError if the store lacks it, or if several clusters are stored and none is wanted.
    """
    if not submitted:
        raise RightsizerError("the store has no attempts; run `rightsizer ingest` first")
    if wanted is None and len(submitted) > 1:
        raise RightsizerError(
            f"the store has several clusters: {', '.join(submitted)}; choose one with --cluster"
        )
    if not wanted:
        return next(iter(submitted))
    # slurmdbd has clusters' names in lower case only; a cluster from a dump may have the name of the dump's file.
    found = next((name for name in (wanted, wanted.lower()) if name in submitted), None)
    if found is None:
        raise RightsizerError(f"the store has no cluster {wanted}; it has {', '.join(submitted)}")
    return found


def bounds(window: Window, first_s: int, last_s: int) -> tuple[int, int]:
    """Return the first second of a window and the first after it.

    `first_s` and `last_s` are the times of the first and last submission in the store.
    """
    until_s = last_s + 1 if window.until is None else unix_s(window.until, "--until")
    last_days_s = max(min(first_s, until_s - 1), until_s - LAST_DAYS * DAY_S)
    since_s = last_days_s if window.since is None else unix_s(window.since, "--since")
    if since_s >= until_s:
        raise RightsizerError(
            f"nothing lies between {datetime.fromtimestamp(since_s).astimezone():%Y-%m-%dT%H:%M:%S} and "
            f"{datetime.fromtimestamp(until_s).astimezone():%Y-%m-%dT%H:%M:%S}; give a --since before --until"
        )
    return since_s, until_s


def left_alone(direct: set[tuple[int, int]]) -> Callable[[Attempt], str]:
    """Return a function that says why the service would not have changed an attempt ('' if it would have)."""
    from slurm_plugin.policy.submission import opts_out

    def reason(attempt: Attempt) -> str:
        if opts_out(attempt.row.comment):
            return OPTED_OUT
        return DIRECT if (attempt.row.job_id, attempt.row.submit_s) in direct else ""

    return reason
