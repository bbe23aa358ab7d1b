"""What the site's mean job holds, of which no user makes more than his share. Pure."""

from __future__ import annotations

import msgspec

# No user counts for more jobs than this in the mean job that risks are relative to, where that makes it larger.
MOST_OF_A_USER = 100


class Held(msgspec.Struct, frozen=True):
    """What so many jobs held of a dimension in all: what they asked for, times their seconds.

    `bounded` is the mean job where nobody counts for more than MOST_OF_A_USER jobs.
    """

    amount: float = 0.0
    jobs: int = 0
    bounded: float = 0.0

    @property
    def mean(self) -> float:
        """Of one job; 0 where there were none.

        A family may fail the more, the more its jobs hold beside this. So it is the larger of two: the mean of all
        jobs, by which all risks together are what the site bears, and the bounded one, which no tiny jobs lower much.
        """
        return max(self.amount / self.jobs, self.bounded) if self.jobs else 0.0


class HeldByUsers:
    """What jobs held of a dimension, as they come."""

    def __init__(self) -> None:
        self._all = Held()
        self._of: dict[str, Held] = {}
        self._bounded = Held()

    def add(self, user: str, amount: float, jobs: int = 1) -> None:
        """Count jobs of a user that held so much in all."""
        before = self._of.get(user, Held())
        after = self._of[user] = _more(before, amount, jobs)
        was, now = _at_most(before), _at_most(after)
        self._bounded = _more(self._bounded, now.amount - was.amount, now.jobs - was.jobs)
        self._all = _more(self._all, amount, jobs)

    def held(self) -> Held:
        """Return what they held until now."""
        return Held(self._all.amount, self._all.jobs, self._bounded.mean)


def _more(held: Held, amount: float, jobs: int) -> Held:
    return Held(held.amount + amount, held.jobs + jobs)


def _at_most(held: Held) -> Held:
    """Return what a user's jobs count for: at most MOST_OF_A_USER of his mean job."""
    counted = min(held.jobs, MOST_OF_A_USER)
    return Held(held.mean * counted, counted)
