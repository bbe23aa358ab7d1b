"""Samples of the jobs that are about to come, out of the submissions of the last weeks in the store.

It decides what of the past is a job to come: what ran, on one node, in a partition that is still there. The store is
read once in a while only, in columns, and no more than the latest rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import pyarrow as pa
from sqlalchemy import select

from models.planning.arrivals import DAY_S, LOOKED_BACK_DAYS, Arrival, drawn_arrivals
from models.planning.problem import Coming
from models.scheduling.room import MILLI
from slurm_plugin.advisor.room import Numbers, numbers_of
from slurm_plugin.advisor.run_time import SHORTEST_S, UNLIMITED_S
from slurm_plugin.slurm.queue import Snapshot

READ_EVERY_S = 3600.0
# A store that is away is not asked in every cycle.
AGAIN_AFTER_S = 600.0
MOST_ROWS = 200_000
SAMPLES = 3
COLUMNS = (
    "submit_s",
    "start_s",
    "end_s",
    "user",
    "account",
    "partition",
    "limit_s",
    "asked_cpus",
    "alloc_cpus",
    "asked_mem_mib",
    "asked_gpus",
)


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """Earlier submissions in the order of their time, and the names that their numbers stand for."""

    arrivals: Sequence[Arrival]
    pools: Sequence[str]
    accounts: Sequence[str]
    users: Sequence[str]


NOTHING = Past(arrivals=(), pools=(), accounts=(), users=())


class Forecast:
    """Foresees for one snapshot after another; StoreError where the store cannot be read."""

    def __init__(self, url: str, cluster: str, horizon_s: float) -> None:
        self._url = url
        self._cluster = cluster
        self._horizon_s = min(horizon_s, DAY_S)
        self._past = NOTHING
        self._due_s = 0.0

    def __call__(self, snapshot: Snapshot) -> tuple[tuple[Coming, ...], ...]:
        """Return samples of what comes within the horizon, in the numbers of the snapshot."""
        if time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + AGAIN_AFTER_S
            self._past = past_of(self._read(snapshot.time_s))
            self._due_s = time.monotonic() + READ_EVERY_S
        priority = newest_priority(snapshot)
        drawn = drawn_arrivals(
            self._past.arrivals, snapshot.time_s, self._horizon_s, SAMPLES, 1, lambda _at_s: priority
        )
        numbers = numbers_of(snapshot)
        return tuple(tuple(translated(sample, self._past, numbers)) for sample in drawn)

    def _read(self, now_s: float) -> list[pa.Table]:
        """Return the latest submissions; none where there is no store yet."""
        from accounting.store.batches import read_batches
        from accounting.store.database import hold_little, open_store
        from accounting.store.schema import attempts

        column = attempts.c
        query = (
            select(*(column[name] for name in COLUMNS))
            .where(
                column.cluster == self._cluster,
                column.submit_s >= int(now_s - LOOKED_BACK_DAYS * DAY_S),
                column.submit_s < int(now_s),
                column.start_s > 0,
                column.nodes == 1,
            )
            .order_by(column.submit_s.desc(), column.job_id)
            .limit(MOST_ROWS)
        )
        engine = open_store(self._url)
        hold_little(engine)
        try:
            return list(read_batches(engine, query))
        finally:
            engine.dispose()


def past_of(batches: Iterable[pa.Table]) -> Past:
    """Return submissions, the newest first, as arrivals in the order of their time."""
    pools: dict[str, int] = {}
    accounts: dict[str, int] = {}
    users: dict[str, int] = {}
    found = []
    for batch in batches:
        for row in batch.to_pylist():
            names = [name for name in row["partition"].split(",") if name]
            found.append(
                Arrival(
                    at_s=float(row["submit_s"]),
                    account=accounts.setdefault(row["account"], len(accounts)),
                    user=users.setdefault(row["user"], len(users)),
                    pools=frozenset(pools.setdefault(name, len(pools)) for name in names),
                    demand=(
                        (row["asked_cpus"] or row["alloc_cpus"] or 1) * MILLI,
                        row["asked_mem_mib"] or 0,
                        (row["asked_gpus"] or 0) * MILLI,
                    ),
                    limit_s=max(SHORTEST_S, float(row["limit_s"] or UNLIMITED_S)),
                    likely_s=max(SHORTEST_S, float(row["end_s"] - row["start_s"])),
                )
            )
    found.reverse()
    return Past(arrivals=found, pools=list(pools), accounts=list(accounts), users=list(users))


def translated(sample: Iterable[Coming], past: Past, numbers: Numbers) -> Iterable[Coming]:
    """Yield arrivals in the numbers of a snapshot; who does not wait or run in it gets a number of his own."""
    pools = [numbers.pools.get(name) for name in past.pools]
    accounts = _renumbered(past.accounts, numbers.accounts)
    users = _renumbered(past.users, numbers.users)
    for one in sample:
        known = frozenset(pool for each in one.pools if (pool := pools[each]) is not None)
        if known:
            yield msgspec.structs.replace(
                one,
                pools=known,
                account=accounts[one.account],
                user=users[one.user],
                likely_s=min(one.likely_s, one.limit_s),
            )


def _renumbered(names: Sequence[str], numbers: Mapping[str, int]) -> list[int]:
    return [numbers.get(name, len(numbers) + place) for place, name in enumerate(names)]


def newest_priority(snapshot: Snapshot) -> int:
    """Return Slurm's own priority of a job that comes now: that of the one that came last; 0 where none waits."""
    waiting = [job for job in snapshot.jobs if job.waits and not (job.held or job.fixed)]
    newest = max(waiting, key=lambda job: job.submit_s, default=None)
    return 0 if newest is None else max(0, newest.priority - newest.site_factor)
