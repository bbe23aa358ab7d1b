"""Cells rolled forward, side by side if their jobs share limits: an end in one may let a job start in another. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from models.planning.cells import ledger_of
from models.planning.forward import Course, Rolled, Rollout
from models.planning.ledger import elsewhere_of, sharing


def roll_all(courses: Sequence[Course]) -> list[Rolled]:
    """Return when the waiting tasks would start in each cell; cells whose jobs share limits are rolled side by side."""
    found: dict[int, Rolled] = {}
    for group in sharing([course.cell.counts_for for course in courses]):
        cells = [courses[place].cell for place in group]
        names = frozenset().union(*(cell.counts_for for cell in cells))
        ledger, elsewhere = ledger_of(cells), elsewhere_of(names, cells[0].elsewhere)
        rollouts = [
            Rollout(courses[place], ledger, elsewhere if place == group[0] else ()) for place in group
        ]
        _run(rollouts)
        found |= {place: one.rolled for place, one in zip(group, rollouts, strict=True)}
    return [found[place] for place in range(len(courses))]


def _run(rollouts: Sequence[Rollout]) -> None:
    """Run cells until all are over; of those due at the same moment, the one with the foremost waiting job is first."""
    for one in rollouts:
        one.peers = rollouts
    due = rollouts
    while True:
        for one in sorted(due, key=lambda one: one.foremost) if len(due) > 1 else due:
            one.look()
        now_s = min(one.next_s for one in rollouts)
        if now_s == math.inf or all(one.over for one in rollouts):
            return
        due = [one for one in rollouts if one.next_s <= now_s]
        for one in due:
            one.pass_to(now_s)
        woken = [one for one in rollouts if one.woken and one not in due]
        for one in woken:
            one.pass_to(now_s)
        due += woken
