"""What the site's mean job holds, as it counts for one user. Pure."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

# In the mean job that risks are relative to, no user counts for more jobs than this if that makes the mean larger.
MOST_OF_A_USER = 100


class Held(msgspec.Struct, frozen=True):
    """What this many jobs held of a dimension in all: what they asked for, times their seconds.

    `bounded` is the mean job if no user counts for more than MOST_OF_A_USER jobs. `users` has amount and jobs of each
    user; it is empty in models that were trained before 2026-12.
    """

    amount: float = 0.0
    jobs: int = 0
    bounded: float = 0.0
    users: dict[str, tuple[float, int]] = {}


class HeldByUsers:
    """What jobs held of a dimension, counted as they come."""

    def __init__(self, held: Held | None = None) -> None:
        self._before = held or Held()
        self._users = dict(self._before.users)
        # The mean job and the jobs of each user; made when somebody asks.
        self._columns: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None

    def add(self, user: str, amount: float, jobs: int = 1) -> None:
        """Count jobs of a user that held `amount` in all."""
        known_amount, known_jobs = self._users.get(user, (0.0, 0))
        self._users[user] = known_amount + amount, known_jobs + jobs
        self._columns = None

    def mean_for(self, user: str) -> float:
        """Return the site's mean job, to which the families of a user are compared; 0 if there are no jobs.

        A family may fail more often, the more its jobs hold compared to this. So it is the larger of two means: that
        of all jobs, with which all risks together are what the site accepts, and one in which nobody counts for more
        than MOST_OF_A_USER jobs, which a user's many tiny jobs cannot lower much. In both, a job of others counts for
        no more than the mean job of this user: how much others ask for then decides nothing here. Of a user who is
        not known nothing bounds it.
        """
        if not self._users:
            before = self._before
            return max(before.amount / before.jobs, before.bounded) if before.jobs else 0.0
        amount, jobs = self._users.get(user, (0.0, 0))
        return max(self._means(amount / jobs if amount else np.inf))

    def held(self) -> Held:
        """Return what the jobs held until now."""
        if not self._users:
            return self._before
        amounts, jobs = zip(*self._users.values(), strict=True)
        _, bounded = self._means(np.inf)
        return Held(sum(amounts), sum(jobs), bounded, dict(self._users))

    def _means(self, most: float) -> tuple[float, float]:
        """Return the mean job, and the one with a bound on jobs; none counts for more than `most`."""
        means, jobs = self._by_user()
        counted, few = np.minimum(means, most), np.minimum(jobs, MOST_OF_A_USER)
        return float(counted @ jobs / jobs.sum()), float(counted @ few / few.sum())

    def _by_user(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if self._columns is None:
            amounts, jobs = np.array(list(self._users.values()), np.float64).T
            self._columns = amounts / jobs, jobs
        return self._columns
