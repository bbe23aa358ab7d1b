"""Samples of the jobs that are about to come, from the submissions of the last weeks in the store.

It decides which past jobs stand for jobs to come: those that ran, on one node, in a partition that still exists. The
store is read only once in a while, in columns, and no more than the latest rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec
import numpy
import pyarrow as pa
from sqlalchemy import select

from models.planning.arrivals import DAY_S, LOOKED_BACK_DAYS, drawn_arrivals
from models.planning.problem import Coming
from models.scheduling.room import MILLI, Floats, Ints
from slurm_plugin.advisor.cpu_caps import under_caps
from slurm_plugin.advisor.preemption import Ranks
from slurm_plugin.advisor.room import Numbers, numbers_of
from slurm_plugin.advisor.run_time import SHORTEST_S, UNLIMITED_S
from slurm_plugin.advisor.shared_limits import SharedLimits, Whose
from slurm_plugin.slurm.snapshot import Snapshot

READ_EVERY_S = 3600.0
# A store that does not answer is not asked in every cycle.
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
    "qos",
    "limit_s",
    "asked_cpus",
    "alloc_cpus",
    "asked_mem_mib",
    "asked_gpus",
)


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """Earlier submissions (n), in columns and in order of time; `demand` is (n, 3), times are seconds.

    `account`, `user`, `where` and `qos` are indices into `accounts`, `users`, `partitions` (an entry of which may
    name several) and `all_qos`.
    """

    at_s: Floats
    account: Ints
    user: Ints
    where: Ints
    qos: Ints
    demand: Ints
    limit_s: Floats
    likely_s: Floats
    accounts: Sequence[str]
    users: Sequence[str]
    partitions: Sequence[str]
    all_qos: Sequence[str]


class Forecast:
    """Forecasts for one snapshot after another; raises StoreError if the store cannot be read."""

    def __init__(self, url: str, cluster: str, horizon_s: float) -> None:
        self._url = url
        self._cluster = cluster
        self._horizon_s = min(horizon_s, DAY_S)
        self._past: Past | None = None
        self._due_s = 0.0

    def __call__(self, snapshot: Snapshot) -> tuple[tuple[Coming, ...], ...]:
        """Return samples of what comes within the horizon, in the numbers of the snapshot."""
        if time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + AGAIN_AFTER_S
            self._past = past_of(self._read(snapshot.time_s))
            self._due_s = time.monotonic() + READ_EVERY_S
        if self._past is None:
            return ()
        return drawn_arrivals(
            self._past.at_s,
            arrivals_in(
                numbers_of(snapshot),
                Ranks(snapshot),
                SharedLimits(snapshot),
                newest_priority(snapshot),
                self._past,
            ),
            snapshot.time_s,
            self._horizon_s,
            SAMPLES,
            1,
        )

    def _read(self, now_s: float) -> list[pa.Table]:
        """Return the latest submissions, the newest first."""
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


def past_of(batches: Sequence[pa.Table]) -> Past | None:
    """Return submissions, given the newest first, in order of time; None if there are none."""
    if not batches:
        return None
    newest_first = pa.concat_tables(batches)
    table = newest_first.take(pa.array(range(len(newest_first) - 1, -1, -1)))
    asked_cpus, alloc_cpus, mem_mib, gpus, limit_s = (
        _amounts(table[name])
        for name in ("asked_cpus", "alloc_cpus", "asked_mem_mib", "asked_gpus", "limit_s")
    )
    cpus = numpy.where(asked_cpus > 0, asked_cpus, numpy.maximum(alloc_cpus, 1))
    limits_s = numpy.maximum(numpy.where(limit_s > 0, limit_s, UNLIMITED_S), SHORTEST_S)
    runs_s = numpy.maximum(_amounts(table["end_s"]) - _amounts(table["start_s"]), SHORTEST_S)
    account, accounts = _places(table["account"])
    user, users = _places(table["user"])
    where, partitions = _places(table["partition"])
    qos, all_qos = _places(table["qos"])
    return Past(
        at_s=_amounts(table["submit_s"]).astype(float),
        account=account,
        user=user,
        where=where,
        qos=qos,
        demand=numpy.column_stack((cpus * MILLI, mem_mib, gpus * MILLI)),
        limit_s=limits_s,
        likely_s=numpy.minimum(runs_s, limits_s),
        accounts=accounts,
        users=users,
        partitions=partitions,
        all_qos=all_qos,
    )


def _amounts(column: pa.ChunkedArray) -> Ints:
    """Return whole numbers; 0 for nulls."""
    return numpy.asarray(column.fill_null(0).to_numpy(), dtype=numpy.int64)


def _places(column: pa.ChunkedArray) -> tuple[Ints, list[str]]:
    """Return the index of each name in the list of all names, and that list."""
    found = column.combine_chunks().dictionary_encode()
    return numpy.asarray(found.indices, dtype=numpy.int64), found.dictionary.to_pylist()


def arrivals_in(
    numbers: Numbers, ranks: Ranks, limits: SharedLimits, priority: int, past: Past
) -> Callable[[int, int], list[Coming]]:
    """Return a function that gives a part of the past in the numbers of a snapshot, all jobs with this priority.

    Jobs none of whose partitions exist are left out.
    """
    listed = [tuple(names.split(",")) for names in past.partitions]
    pools = [frozenset(numbers.pools[name] for name in names if name in numbers.pools) for names in listed]

    # The store does not know types of GPUs: in a plan, jobs to come accept any.
    of_no_type = (0,) * len(numbers.gpu_types)
    under = [under_caps(names, numbers.capped) for names in listed]

    def arrivals(first: int, last: int) -> list[Coming]:
        columns = (
            past.at_s, past.account, past.user, past.where, past.qos, past.demand, past.limit_s, past.likely_s
        )  # fmt: skip
        rows = zip(*(column[first:last].tolist() for column in columns), strict=True)
        return [
            Coming(
                at_s=at_s,
                pools=pools[where],
                priority=priority,
                demand=(*demand, *of_no_type, *(demand[0] * is_under for is_under in under[where])),
                limit_s=limit_s,
                likely_s=likely_s,
                tier=ranks.tier(past.all_qos[qos], listed[where]),
                dues=limits.dues_to_come(
                    Whose(past.all_qos[qos], past.users[user], past.accounts[account], listed[where]),
                    tuple(demand),
                    limit_s,
                ),
            )
            for at_s, account, user, where, qos, demand, limit_s, likely_s in rows
            if pools[where]
        ]

    return arrivals


def newest_priority(snapshot: Snapshot) -> int:
    """Return Slurm's own priority of a job that comes now: that of the latest arrival; 0 if none waits."""
    waiting = [job for job in snapshot.jobs if job.waits and not (job.held or job.fixed)]
    newest = max(waiting, key=lambda job: job.submit_s, default=None)
    return 0 if newest is None else max(0, newest.priority - newest.site_factor)
