"""When a cell's machines are down or reserved, next to what runs on them. Pure.

A job may run on a machine that is to be down or reserved before the job's limit. Slurm would not have started it
there, had it known. No better estimate is known, so the job is taken to hold its part until the window begins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from models.planning.ledger import Dues
from models.planning.problem import Yields
from models.scheduling.availability import Window
from models.scheduling.room import Amounts, Ints, Parts, amounts_of


class Held(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job that runs in a cell: its parts, how much longer at most and likely (seconds), and its user.

    It has run for `ran_s` (seconds). `yields` and `dues` are as in Holding.
    """

    parts: Parts
    limit_left_s: float
    likely_left_s: float
    user: int
    ran_s: float = 0.0
    yields: Yields | None = None
    dues: Dues = ()


def windows_beside(
    windows: Sequence[Window], place: dict[int, int], capacity: Ints, running: list[Held]
) -> tuple[tuple[Window, ...], list[Held]]:
    """Return windows that overlap neither each other nor what may still run then, and what runs next to them."""
    if not windows:
        return (), running
    of_machine: dict[int, list[tuple[float, float, Amounts]]] = {}
    for window in windows:
        if window.node in place and window.to_s > max(0.0, window.from_s):
            at = of_machine.setdefault(place[window.node], [])
            at.append((max(0.0, window.from_s), window.to_s, window.amounts))
    first_s = {machine: min(from_s for from_s, _, _ in spans) for machine, spans in of_machine.items()}
    beside = []
    for held in running:
        parts = []
        for machine, amounts in held.parts:
            if first_s.get(machine, math.inf) < held.limit_left_s:
                of_machine[machine].append((0.0, first_s[machine], amounts))
            else:
                parts.append((machine, amounts))
        if len(parts) == len(held.parts):
            beside.append(held)
        elif parts or held.dues:
            # It counts for limits until it really ends.
            beside.append(msgspec.structs.replace(held, parts=tuple(parts)))
    found = [
        window
        for machine, spans in of_machine.items()
        for window in _apart(machine, spans, amounts_of(capacity[:, machine]))
    ]
    return tuple(found), beside


def _apart(machine: int, spans: Sequence[tuple[float, float, Amounts]], capacity: Amounts) -> list[Window]:
    """Return the windows of one machine, one after the other; each takes at most all that the machine has."""
    times = sorted({from_s for from_s, _, _ in spans} | {to_s for _, to_s, _ in spans})
    found = []
    for from_s, to_s in pairwise(times):
        held = [amounts for begin_s, end_s, amounts in spans if begin_s <= from_s and to_s <= end_s]
        lacking = tuple(min(have, sum(amounts[row] for amounts in held)) for row, have in enumerate(capacity))
        if any(lacking):
            found.append(Window(node=machine, from_s=from_s, to_s=to_s, amounts=lacking))
    return found


def lasting(capacity: Ints, windows: Sequence[Window]) -> Ints:
    """Return what machines have, less what windows take for ever."""
    left = capacity.copy()
    for window in windows:
        if math.isinf(window.to_s):
            left[:, window.node] -= window.amounts
    return left
