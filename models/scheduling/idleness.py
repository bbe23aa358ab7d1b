"""How long a machine that its owner has left will likely stay idle, from how long it stayed so before. Pure.

Only spells that lasted longer than the present one already has say something about it: so a night is told from a
lunch without knowing the hour of the day. If there are too few, only the time that it has been idle is known: for a
moment drawn at random within a spell, with probability r / (1 + r) less than r times the past part is still to come
(Gott, Nature 1993).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from accounting.errors import ModelError

Node = TypeVar("Node", bound=Hashable)
# The evidence of all nodes counts as this many spells of each node.
PRIOR = 5.0


class Idleness:
    """Spells for which an owner left a machine alone (seconds). Each is learned when it ends."""

    def __init__(self, spells_s: Iterable[float] = ()) -> None:
        self._spells_s = sorted(spells_s)

    def ended(self, spell_s: float) -> None:
        """Learn from a spell that has ended."""
        insort(self._spells_s, spell_s)

    def left_s(self, idle_s: float, risk: float) -> float:
        """Return how much longer it stays idle, in all but a share `risk` of cases, after `idle_s` (seconds).

        Of n longer spells and the present one, all but k of n + 1 outlast the k-th shortest.
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
        """Return how many longer spells ended within another `more_s`, and how many longer ones there were."""
        first = bisect_right(self._spells_s, idle_s)
        ended = bisect_left(self._spells_s, idle_s + more_s, lo=first) - first
        return ended, len(self._spells_s) - first

    def ended_within(self, idle_s: float, more_s: float) -> float:
        """Return in which share of cases the spell is over within `more_s`, after being idle for `idle_s` (seconds).

        If k of n longer spells ended by then: k + 1 of n + 1 cases. If none did, it is no more than Gott's share.
        """
        ended, longer = self.ended_of_longer(idle_s, more_s)
        known = (ended + 1) / (longer + 1)
        return known if ended or idle_s + more_s <= 0 else min(known, more_s / (idle_s + more_s))


class Owners(Generic[Node]):
    """Since when each node has been left by its owner (unix or other seconds), and for how long it was before.

    Owners differ, and few spells of a node last longer than the present one, so the spells of all nodes count as
    well.
    """

    def __init__(self) -> None:
        """Know no node; an unknown node counts as in its owner's use."""
        self.idle_since_s: dict[Node, float] = {}
        self._habits: defaultdict[Node, Idleness] = defaultdict(Idleness)
        self._all = Idleness()

    def learned(self, node: Node, spells_s: Iterable[float]) -> None:
        """Learn for how long a node was left alone in the past."""
        for spell_s in spells_s:
            self._habits[node].ended(spell_s)
            self._all.ended(spell_s)

    def goes(self, node: Node, at_s: float) -> None:
        """Learn that an owner leaves a node."""
        self.idle_since_s[node] = at_s

    def comes(self, node: Node, at_s: float) -> None:
        """Learn that an owner takes back a node."""
        self.learned(node, [at_s - self.idle_since_s.pop(node)])

    def left_s(self, node: Node, now_s: float, risk: float) -> float:
        """Return how much longer a node is left alone, in all but a share `risk` of cases; 0: its owner has it."""
        since_s = self.idle_since_s.get(node)
        return 0.0 if since_s is None else self._habits[node].left_s(now_s - since_s, risk)

    def back_within(self, node: Node, now_s: float, more_s: float) -> float:
        """Return in which share of cases a node's owner is back within `more_s` seconds; 1: the owner has it."""
        since_s = self.idle_since_s.get(node)
        if since_s is None:
            return 1.0
        idle_s, own = max(0.0, now_s - since_s), self._habits[node]
        ended, longer = own.ended_of_longer(idle_s, more_s)
        return (ended + PRIOR * self._all.ended_within(idle_s, more_s)) / (longer + PRIOR)
