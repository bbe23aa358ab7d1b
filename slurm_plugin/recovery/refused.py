"""Whose turn it is: nothing that slurmctld refuses, and no user with many jobs, holds up the others. It knows no Slurm.

What was refused is tried again ever more rarely. It is kept in memory: a new process tries all of it once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable
from operator import itemgetter
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

# The longest pause in rounds: eleven minutes with rounds of ten seconds.
MOST_ROUNDS = 64


class Refused(Generic[Key]):
    """What was refused, and in which round its turn comes again: in the next one, two later, four later and so on."""

    def __init__(self) -> None:
        """Nothing was refused yet."""
        self._round = 0
        self._pauses: dict[Key, int] = {}
        self._turns: dict[Key, int] = {}

    def begin_round(self) -> None:
        """Count a round."""
        self._round += 1

    def whose_turn(self, keys: Collection[Key]) -> list[Key]:
        """Return those to be tried in this round, the longest waiting first; those not among `keys` are forgotten."""
        for gone in self._turns.keys() - set(keys):
            del self._pauses[gone], self._turns[gone]
        due = [key for key in keys if self._turns.get(key, 0) <= self._round]
        return sorted(due, key=lambda key: self._turns.get(key, 0))

    def note(self, key: Key) -> None:
        """Remember that it was refused in this round."""
        self._pauses[key] = min(2 * self._pauses.get(key, 0) or 1, MOST_ROUNDS)
        self._turns[key] = self._round + self._pauses[key]


def in_turns(jobs: Iterable[Key], whose: Callable[[Key], Hashable]) -> list[Key]:
    """Return jobs so that the first of each user comes before the second of any, and so on."""
    had = Counter[Hashable]()
    turns = list[tuple[int, Key]]()
    for job in jobs:
        user = whose(job)
        turns.append((had[user], job))
        had[user] += 1
    return [job for _, job in sorted(turns, key=itemgetter(0))]


def shared_round(fresh: Iterable[int], again: Iterable[int], most: int) -> tuple[list[int], list[int]]:
    """Return which jobs a round of `most` is for: those not looked at yet, and those that were begun before.

    The latter get half of the round, and what the others leave.
    """
    new, begun = [*fresh], [*again]
    places = max(most // 2, most - len(new))
    begun = begun[:places]
    return new[: most - len(begun)], begun
