"""What the site's mean job holds, as it counts for one family. Pure."""

from __future__ import annotations

import math
from array import array

import msgspec
import numpy as np

# In the mean job that risks are relative to, no user counts for more jobs than this if that makes the mean larger.
MOST_OF_A_USER = 100
# No more answers than this are kept until the next job comes.
MOST_TOLD = 1000


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
        # The place of each user in the two columns: what that user's jobs held in all, and how many they are.
        self._places: dict[str, int] = {}
        self._amounts, self._jobs = array("d"), array("d")
        # What was told since the last job came: submissions come between the ends of jobs, and wait.
        self._told: dict[tuple[str, float], float] = {}
        for user, (amount, jobs) in self._before.users.items():
            self.add(user, amount, jobs)

    def add(self, user: str, amount: float, jobs: int = 1) -> None:
        """Count jobs of a user that held `amount` in all."""
        self._told.clear()
        place = self._places.setdefault(user, len(self._places))
        if place == len(self._jobs):
            self._amounts.append(0.0)
            self._jobs.append(0.0)
        self._amounts[place] += amount
        self._jobs[place] += jobs

    def mean_for(self, user: str, family_held: float) -> float:
        """Return the site's mean job, as it counts for a family whose mean job holds this; 0 if there are no jobs.

        A family may fail more often, the more its jobs hold compared to this. So it is the larger of two means: that
        of all jobs, with which all risks together are what the site accepts, and one in which nobody counts for more
        than MOST_OF_A_USER jobs, which a user's many tiny jobs cannot lower much. In both, the jobs of others count for
        no more than the family's mean job, or than the user's if that is larger: how much others ask for beyond that
        decides nothing here (docs/decisions/0022). Of a user who is not known nothing bounds it.
        """
        if not self._places:
            before = self._before
            return max(before.amount / before.jobs, before.bounded) if before.jobs else 0.0
        told = self._told.get((user, family_held))
        if told is None:
            if len(self._told) >= MOST_TOLD:
                self._told.clear()
            told = self._told[user, family_held] = self._mean_for(user, family_held)
        return told

    def _mean_for(self, user: str, family_held: float) -> float:
        place = self._places.get(user)
        if place is None:
            return max(self._means(math.inf))
        return max(self._means(max(self._amounts[place] / self._jobs[place], family_held)))

    def held(self) -> Held:
        """Return what the jobs held until now."""
        if not self._places:
            return self._before
        each = zip(self._amounts, map(int, self._jobs), strict=True)
        _, bounded = self._means(math.inf)
        users = dict(zip(self._places, each, strict=True))
        return Held(sum(self._amounts), int(sum(self._jobs)), bounded, users)

    def _means(self, most: float) -> tuple[float, float]:
        """Return the mean job, and the one with a bound on each user's jobs; no job counts for more than `most`."""
        amounts, jobs = np.frombuffer(self._amounts), np.frombuffer(self._jobs)
        counted, few = np.minimum(amounts / jobs, most), np.minimum(jobs, MOST_OF_A_USER)
        return float(counted @ jobs / jobs.sum()), float(counted @ few / few.sum())
