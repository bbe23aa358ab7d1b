"""A slow queue under limits, as a reference: which job starts when, worked out task by task by Slurm's rules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from models.planning.cells import slurm_order
from models.planning.ledger import Dues
from models.planning.problem import Problem


class Run(NamedTuple):
    """A running job: its beginning, its latest end by its limit, its real end, its CPUs, its limits and its pool."""

    begin_s: float
    limit_end_s: float
    end_s: float
    cpus: int
    dues: Dues
    pool: int


def in_use(found: Problem, limit: str, now_s: float, runs: Sequence[Run], ended: Sequence[Run] = ()) -> float:
    """Return how much of a limit running jobs use; what falls over time counts as of Slurm's last count.

    What was spent before the beginning is already missing from the limit, as far as Slurm has counted it.
    """
    first_s, counted_s = (
        at_s - (at_s - found.clock.at_s) % found.clock.every_s if found.clock.every_s else at_s
        for at_s in (0.0, now_s)
    )
    used = 0.0
    for one, due in ((run, due) for run in runs for due in run.dues if due.limit == limit):
        used += due.amount
        used -= due.falls * max(0.0, counted_s - one.begin_s) + due.spends * max(0.0, first_s - one.begin_s)
    spent = (
        due.spends * (run.end_s - max(run.begin_s, first_s))
        for run in ended
        for due in run.dues
        if due.limit == limit
    )
    return used + sum(spent)


def is_barred(found: Problem, dues: Dues, now_s: float, runs: Sequence[Run], ended: Sequence[Run]) -> bool:
    return any(
        due.binds
        and due.limit in found.limits
        and in_use(found, due.limit, now_s, runs, ended) + (due.asks or due.amount)
        > found.limits[due.limit] + 0.01
        for due in dues
    )


def by_hand(found: Problem) -> list[list[float]]:
    """Return when the tasks of each record start, worked out by Slurm's rules; each pool is one machine.

    In order, a job at a limit is passed over. The first that does not fit is promised the moment at which enough jobs
    have ended by their limits, and others may go ahead where they leave that promise intact.
    """
    order = slurm_order(found.pending)
    pools = [min(one.pools) for one in found.machines]
    cpus = {pool: one.amounts[1] for pool, one in zip(pools, found.machines, strict=True)}
    runs = [
        Run(
            -held.ran_s,
            held.limit_left_s,
            held.likely_left_s,
            held.parts[0][1][1],
            held.dues,
            pools[held.parts[0][0]],
        )
        for held in found.running
    ]
    left = {at: found.pending[at].tasks for at in order}
    starts_s: list[list[float]] = [[] for _ in order]
    ended: list[Run] = []
    now_s = 0.0
    while True:
        ended += [run for run in runs if run.end_s <= now_s]
        runs = [run for run in runs if run.end_s > now_s]
        started = True
        while started:
            started = False
            promised = dict[int, tuple[float, int]]()
            for at in order:
                one, needs, pool = (
                    found.pending[at],
                    found.pending[at].demand[1],
                    min(found.pending[at].pools),
                )
                here = [run for run in runs if run.pool == pool]
                free = cpus[pool] - sum(run.cpus for run in here)
                if not left[at] or needs > cpus[pool] or is_barred(found, one.dues, now_s, runs, ended):
                    continue
                at_s, beside = promised.get(pool, (math.inf, 0))
                if needs <= free and (now_s + one.limit_s <= at_s or needs <= beside):
                    runs.append(Run(now_s, now_s + one.limit_s, now_s + one.likely_s, needs, one.dues, pool))
                    starts_s[at].append(now_s)
                    left[at] -= 1
                    started = True
                    break
                if pool not in promised:
                    promised[pool] = promise(here, free, needs)
        if not runs:
            return starts_s
        now_s = min(found.clock.next_s(now_s + 1.0), *(run.end_s for run in runs))


def promise(runs: list[Run], free: int, needs: int) -> tuple[float, int]:
    """Return when `needs` CPUs are free if jobs run for their limits, and how many more are free then."""
    for at_s in sorted(run.limit_end_s for run in runs):
        then = free + sum(run.cpus for run in runs if run.limit_end_s <= at_s)
        if then >= needs:
            return at_s, then - needs
    raise AssertionError("it never fits")
