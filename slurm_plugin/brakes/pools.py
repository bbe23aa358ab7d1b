"""What many users' jobs show about a partition, or about everything. Pure.

A user's jobs of ten minutes are one outcome, the share of them that failed: one user's thousand tasks with one
mistake are one mistake. And for each bet, the two users who contribute most to it are left out. What is left is never
more than what there would be without any two users, so no two users can pull such a brake, whatever they do and for
however long.
"""

from __future__ import annotations

import msgspec

from models.sequential import ALONE, COMPARED, Others, Outcomes, Range, is_enough_without_most, without_most
from slurm_plugin.brakes.tallies import Counts, Tally, added, begun_anew

PORTION_S = 600.0
# What the jobs of one or two users do is a matter for the brakes of their families.
LEFT_OUT_USERS = 2
# The last outcomes of cut jobs are kept, and the users of whole jobs that were seen last.
MOST_OUTCOMES, MOST_USERS = 500, 1_000


class Portion(msgspec.Struct, frozen=True, array_like=True):
    """A user's jobs of the last minutes, not counted as an outcome yet."""

    since_s: float
    counts: Counts


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """A portion of a user's cut jobs: the shares (0..1) that failed, and that failed for want of memory that was cut.

    `wanted` is None if all of them had all their memory.
    """

    user: str
    failed: float
    wanted: float | None


class Wholes(msgspec.Struct, frozen=True, array_like=True):
    """A user's portions of jobs that were left whole, and the sum of the shares of them that failed."""

    portions: int = 0
    failed: float = 0.0


class Pool(msgspec.Struct, frozen=True, array_like=True):
    """A partition, or everything: its tally, its users' open portions, and what the tally is made of, by user."""

    tally: Tally = Tally()
    portions: dict[str, Portion] = {}
    outcomes: tuple[Outcome, ...] = ()
    wholes: dict[str, Wholes] = {}


def with_job(pool: Pool, user: str, counts: Counts, now_s: float) -> Pool:
    """Return a pool with one more job in its user's open portion."""
    portion = pool.portions.get(user, Portion(now_s, Counts()))
    portions = {**pool.portions, user: Portion(portion.since_s, portion.counts + counts)}
    return msgspec.structs.replace(pool, portions=portions)


def users_over(pool: Pool, now_s: float) -> list[str]:
    """Return the users whose portions are over, including those begun before the clock was set back."""
    return [user for user, portion in pool.portions.items() if not 0 <= now_s - portion.since_s < PORTION_S]


def closed(pool: Pool, users: list[str], bound: float) -> Pool:
    """Return a pool in which these users' portions have become outcomes."""
    tally, outcomes, wholes = pool.tally, list(pool.outcomes), dict(pool.wholes)
    for user in users:
        counts = pool.portions[user].counts
        tally = added(tally, counts, bound)
        if counts.shrunk:
            outcomes.append(Outcome(user, counts.failed / counts.shrunk, counts.killed_share))
        if counts.whole:
            known = wholes.pop(user, Wholes())  # it becomes the one seen last
            wholes[user] = Wholes(known.portions + 1, known.failed + counts.whole_failed / counts.whole)
    for user in list(wholes)[:-MOST_USERS]:
        del wholes[user]
    over = set(users)
    portions = {user: portion for user, portion in pool.portions.items() if user not in over}
    return Pool(tally, portions, tuple(outcomes[-MOST_OUTCOMES:]), wholes)


def pool_anew(pool: Pool) -> Pool:
    """Return a pool that knows nothing of cut jobs."""
    return Pool(tally=begun_anew(pool.tally), wholes=pool.wholes)


def without_any_two(pool: Pool, bound: float) -> Tally:
    """Return a pool's counts with the evidence that is left whichever two users are left out."""
    kills, fails = (without_most(*test, bound, LEFT_OUT_USERS) for test in _tests(pool))
    return Tally(counts=pool.tally.counts, kills=kills, fails=fails)


def is_enough_without_any_two(pool: Pool, bound: float, enough_logs: tuple[float, float]) -> bool:
    """Whether one of the two kinds of evidence that are left is enough; cheaper than computing them."""
    return any(
        is_enough_without_most(*test, bound, LEFT_OUT_USERS, enough_log)
        for test, enough_log in zip(_tests(pool), enough_logs, strict=True)
    )


def _tests(pool: Pool) -> tuple[tuple[Outcomes, Others, tuple[Range, ...]], ...]:
    """Return what kills, and what failures, are judged by."""
    wholes = [(one.portions, one.failed) for one in pool.wholes.values()]
    return (
        ([(one.user, one.wanted) for one in pool.outcomes if one.wanted is not None], (), ALONE),
        ([(one.user, one.failed) for one in pool.outcomes], wholes, COMPARED),
    )
