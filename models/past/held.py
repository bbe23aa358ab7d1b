"""What the site's mean job holds, with a bound on the share of each user. Pure."""

from __future__ import annotations

import msgspec

# In the mean job that risks are relative to, no user counts for more jobs than this if that makes the mean larger.
MOST_OF_A_USER = 100


class Held(msgspec.Struct, frozen=True):
    """What this many jobs held of a dimension in all: what they asked for, times their seconds.

    `bounded` is the mean job if no user counts for more than MOST_OF_A_USER jobs.
    """

    amount: float = 0.0
    jobs: int = 0
    bounded: float = 0.0

    @property
    def mean(self) -> float:
        """The mean of one job; 0 if there were none.

        A family may fail more often, the more its jobs hold compared to this. So it is the larger of two means: that
        of all jobs, with which all risks together are what the site accepts, and the bounded one, which a user's many
        tiny jobs cannot lower much.
        """
        return max(self.amount / self.jobs, self.bounded) if self.jobs else 0.0


class HeldByUsers:
    """What jobs held of a dimension, counted as they come."""

    def __init__(self) -> None:
        self._all = Held()
        self._of: dict[str, Held] = {}
        self._bounded = Held()

    def add(self, user: str, amount: float, jobs: int = 1) -> None:
        """Count jobs of a user that held `amount` in all."""
        before = self._of.get(user, Held())
        after = self._of[user] = _more(before, amount, jobs)
        was, now = _at_most(before), _at_most(after)
        self._bounded = _more(self._bounded, now.amount - was.amount, now.jobs - was.jobs)
        self._all = _more(self._all, amount, jobs)

    def held(self) -> Held:
        """Return what the jobs held until now."""
        return Held(self._all.amount, self._all.jobs, self._bounded.mean)


def _more(held: Held, amount: float, jobs: int) -> Held:
    return Held(held.amount + amount, held.jobs + jobs)


def _at_most(held: Held) -> Held:
    """Return what a user's jobs count for: at most MOST_OF_A_USER times the user's mean job."""
    counted = min(held.jobs, MOST_OF_A_USER)
    return Held(held.mean * counted, counted)
