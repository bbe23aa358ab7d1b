"""Nodes that are used while their owners leave them alone: when owners come and go, and what is known of it by then.

It knows the future, as a simulation must, but reveals only what has been seen: how long a node has been idle, and for
how long it was in the past. Pure apart from its own state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from models.scheduling.idleness import Owners
from models.simulation.nodes import Span

# At the same moment, owners go before others come.
GOES, COMES = 0, 1


class Change(NamedTuple):
    """An owner comes, or goes (seconds)."""

    at_s: float
    kind: int
    node: int


class Lending:
    """Owners' times by node (seconds, in order; before 0: the past). Each node begins as it is at 0."""

    def __init__(self, owners: Mapping[int, Sequence[Span]]) -> None:
        self._owners = Owners[int]()
        changes: list[Change] = []
        for node, spans in owners.items():
            past = [span for span in spans if span[0] < 0]
            self._owners.learned(node, (later[0] - before[1] for before, later in pairwise(past)))
            self._owners.goes(node, min(0.0, past[-1][1]) if past else 0.0)
            for from_s, to_s in spans:
                if to_s > 0:
                    changes.append(Change(max(0.0, from_s), COMES, node))
                    changes.append(Change(to_s, GOES, node))
        self._coming = sorted(change for change in changes if change.at_s < math.inf)
        self._passed = 0

    @property
    def changes_at_s(self) -> float:
        """Return when the next owner comes or goes; infinite: none does."""
        return self._coming[self._passed].at_s if self._passed < len(self._coming) else math.inf

    def pass_to(self, now_s: float) -> list[Change]:
        """Return which owners come and go by now, and learn from it."""
        found: list[Change] = []
        while self.changes_at_s <= now_s:
            change = self._coming[self._passed]
            self._passed += 1
            found.append(change)
            if change.kind == GOES:
                self._owners.goes(change.node, change.at_s)
            else:
                # A spell that ended before the simulation began was learned with the past.
                self._owners.comes(change.node, change.at_s)
        return found

    def left_s(self, node: int, now_s: float, risk: float) -> float:
        """Return how much longer a node is left alone, in all but a share `risk` of cases; 0: its owner has it."""
        return self._owners.left_s(node, now_s, risk)


def idle_s(spans: Sequence[Span], from_s: float, to_s: float) -> float:
    """Return for how much of a time no owner has a node (seconds)."""
    had_s = sum(max(0.0, min(to_s, end_s) - max(from_s, begin_s)) for begin_s, end_s in spans)
    return to_s - from_s - had_s
