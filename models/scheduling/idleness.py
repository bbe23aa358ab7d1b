"""How long a machine that its owner has left will likely stay idle, by how long it stayed so before. Pure.

Only spells that lasted longer than this one already has tell of it: so a night is told from a lunch, and no hour of the
day need be known. Where too few did, the time that it has been idle is all there is to go by: among moments of one
spell drawn at random, a share r / (1 + r) have less than r times what has passed still to come (Gott, Nature 1993).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable

from accounting.errors import ModelError


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
