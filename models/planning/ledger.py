"""What jobs have together of a limit of their account, QOS or array while they run: Slurm's limits at a time. Pure.

Who would go beyond one is passed over, and holds nobody up, until something that counts for it ends. A limit is known
by its name, which stands for the same from plan to plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

Limits = Mapping[str, int]


class Due(NamedTuple):
    """So much a job counts for a limit while it runs. One that does not `bind` it may be exceeded by its start."""

    limit: str
    amount: int
    binds: bool = True


Dues = tuple[Due, ...]


class Elsewhere(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What runs where nothing is planned counts, too, for as long as it likely does (seconds)."""

    dues: Dues
    left_s: float


class Ledger:
    """How much of each limit is in use."""

    def __init__(self, most: Limits, in_use: Iterable[Dues]) -> None:
        self._most = most
        self._used = Counter[str]()
        for dues in in_use:
            self.take(dues)

    def take(self, dues: Dues) -> None:
        """Count what starts."""
        for due in dues:
            self._used[due.limit] += due.amount

    def give(self, dues: Dues) -> None:
        """Count no longer what has ended."""
        for due in dues:
            self._used[due.limit] -= due.amount

    def barring(self, dues: Dues) -> str | None:
        """Return the first limit that lets no such job start now; None: all do. One that is not known does."""
        used, most = self._used, self._most
        for due in dues:
            if due.binds and due.limit in most and used[due.limit] + due.amount > most[due.limit]:
                return due.limit
        return None

    def in_use(self, limit: str) -> int:
        """Return how much of a limit is in use."""
        return self._used[limit]

    def never(self, dues: Dues) -> bool:
        """Whether a job is beyond a limit by itself."""
        most = self._most
        return any(due.binds and due.amount > most.get(due.limit, due.amount) for due in dues)


def of_limits(dues: Dues, limits: Container[str]) -> Dues:
    """Return what counts for some of these limits."""
    return tuple(due for due in dues if due.limit in limits) if dues else ()


def elsewhere_of(limits: Container[str], found: Iterable[Elsewhere]) -> tuple[Elsewhere, ...]:
    """Return what runs elsewhere and counts for some of these limits, what ends first first."""
    counted = (
        msgspec.structs.replace(one, dues=dues) for one in found if (dues := of_limits(one.dues, limits))
    )
    return tuple(sorted(counted, key=lambda one: one.left_s))


def sharing(names: Sequence[Collection[str]]) -> list[list[int]]:
    """Return the places of those that have some limit in common, directly or by others, together."""
    found: list[tuple[set[str], list[int]]] = []
    for place, own in enumerate(names):
        known, places = set(own), [place]
        for other in [one for one in found if not known.isdisjoint(one[0])]:
            found.remove(other)
            known, places = known | other[0], [*other[1], *places]
        found.append((known, sorted(places)))
    return [places for _, places in found]
