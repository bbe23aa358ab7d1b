"""How long a machine that its owner has left will likely stay idle, by how long it stayed so before. Pure.

Only spells that lasted longer than this one already has tell of it: so a night is told from a lunch, and no hour of the
day need be known. Where too few did, the time that it has been idle is all there is to go by: among moments of one
spell drawn at random, a share r / (1 + r) have less than r times what has passed still to come (Gott, Nature 1993).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from accounting.errors import ModelError

Node = TypeVar("Node", bound=Hashable)
# What all nodes tell counts as so many spells of each.
PRIOR = 5.0


class Idleness:
    """Spells for which an owner left a machine alone (seconds). It learns each when it ends."""

    def __init__(self, spells_s: Iterable[float] = ()) -> None:
        self._spells_s = sorted(spells_s)

    def ended(self, spell_s: float) -> None:
        """Learn of a spell that has ended."""
        insort(self._spells_s, spell_s)

    def left_s(self, idle_s: float, risk: float) -> float:
        """Return how long it stays idle but for a share `risk` of cases, having been so for `idle_s` (seconds).

        Of n longer spells and the one that is now, the k-th shortest is outlasted by all but k of n + 1.
        """
        if not 0 < risk < 1 or not idle_s >= 0:
            raise ModelError(
                f"risk is {risk:g} and idle_s {idle_s:g}; give a share in between 0 and 1, and 0 or more"
            )
        first = bisect_right(self._spells_s, idle_s)
        longer = len(self._spells_s) - first
        allowed = int(risk * (longer + 1))
        if allowed:
            return self._spells_s[first + allowed - 1] - idle_s
        return idle_s * risk / (1 - risk)

    def ended_of_longer(self, idle_s: float, more_s: float) -> tuple[int, int]:
        """Return how many spells that lasted longer ended within `more_s` after that, and how many did in all."""
        first = bisect_right(self._spells_s, idle_s)
        ended = bisect_left(self._spells_s, idle_s + more_s, lo=first) - first
        return ended, len(self._spells_s) - first

    def ended_within(self, idle_s: float, more_s: float) -> float:
        """Return in which share of cases it is over within `more_s`, having been idle for `idle_s` (seconds).

        Of n longer spells k ended by then: k + 1 of n + 1 cases. Where none did, it is no more than Gott's share.
        """
        ended, longer = self.ended_of_longer(idle_s, more_s)
        known = (ended + 1) / (longer + 1)
        return known if ended or idle_s + more_s <= 0 else min(known, more_s / (idle_s + more_s))


class Owners(Generic[Node]):
    """Since when each node has been left alone by its owner (unix or other seconds), and for how long it was before.

    Owners differ, and few spells of a node last longer than the present one: what those of all nodes tell counts, too.
    """

    def __init__(self) -> None:
        """Know of no node: what is not known is its owner's."""
        self.idle_since_s: dict[Node, float] = {}
        self._habits: defaultdict[Node, Idleness] = defaultdict(Idleness)
        self._all = Idleness()

    def learned(self, node: Node, spells_s: Iterable[float]) -> None:
        """Learn how long a node was left alone in the past."""
        for spell_s in spells_s:
            self._habits[node].ended(spell_s)
            self._all.ended(spell_s)

    def goes(self, node: Node, at_s: float) -> None:
        """Learn that an owner leaves a node."""
        self.idle_since_s[node] = at_s

    def comes(self, node: Node, at_s: float) -> None:
        """Learn that an owner takes a node that he had left."""
        idle_s = at_s - self.idle_since_s.pop(node)
        if idle_s > 0:
            self.learned(node, [idle_s])

    def left_s(self, node: Node, now_s: float, risk: float) -> float:
        """Return for how long its owner likely leaves a node alone, but for a share of cases; 0: he has it."""
        since_s = self.idle_since_s.get(node)
        return 0.0 if since_s is None else self._habits[node].left_s(now_s - since_s, risk)

    def back_within(self, node: Node, now_s: float, more_s: float) -> float:
        """Return in which share of cases the owner of a node is back within so many seconds; 1: he has it."""
        since_s = self.idle_since_s.get(node)
        if since_s is None:
            return 1.0
        idle_s, own = max(0.0, now_s - since_s), self._habits[node]
        ended, longer = own.ended_of_longer(idle_s, more_s)
        return (ended + PRIOR * self._all.ended_within(idle_s, more_s)) / (longer + PRIOR)
