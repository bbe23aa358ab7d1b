"""What a job may use of a cluster until its limit, where nodes are down or reserved for a time. Pure.

As in Slurm, nothing starts that could run into a window that is known beforehand. A part of a node that is reserved
for users is modelled as a node of its own: it exists only while the reservation holds, only for those users, and the
node itself lacks it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy

from accounting.errors import ModelError
from models.scheduling.backfill import Bounds, Claim, Ending
from models.scheduling.room import Amounts, Ints, Mask, Parts, Room, amounts_of

# At the same moment, what ends is given back before a window begins.
GIVES, TAKES = -1, 1 << 60


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """What a node lacks for a time (seconds)."""

    node: int
    from_s: float
    to_s: float
    amounts: Amounts


class Shortage(NamedTuple):
    """A moment at which windows begin, on which nodes, and what those nodes have then next to all that may still run.

    On other nodes `room` has everything, so that it bounds nothing.
    """

    at_s: float
    nodes: frozenset[int]
    room: Room


class Availability:
    """The windows that are still to begin or end, and who may use which node; `only_for` is as in `group_masks`."""

    def __init__(
        self,
        capacity: Ints,
        total: Amounts,
        windows: Sequence[Window],
        only_for: Sequence[frozenset[int] | None],
        *,
        lasts: bool = False,
    ) -> None:
        masks, self.group_of = group_masks(only_for)
        self._open = [Room(capacity * mask, total) for mask in masks]
        self._mine: list[list[bool]] = [mask.tolist() for mask in masks]
        # Nodes that some jobs may never use are told apart even when no window is left.
        self.lasts = lasts
        self.coming = changes_of(windows)
        self.ahead: list[Shortage] = []
        for at_s in sorted({window.from_s for window in windows}):
            self.ahead.append(shortage(at_s, capacity, total, windows))

    def pass_to(self, now_s: float, room: Room) -> bool:
        """Change a room by the windows that begin or end by now; return whether any of it came back."""
        came_back = False
        while self.coming and self.coming[0].end_s <= now_s:
            change = self.coming.pop(0)
            came_back |= change.number == GIVES
            if change.number == GIVES:
                room.give(change.parts)
            else:
                room.take(tuple((node, _negative(amounts)) for node, amounts in change.parts))
        while self.ahead and self.ahead[0].at_s <= now_s:
            del self.ahead[0]
        return came_back

    def take(self, parts: Parts, latest_s: float) -> None:
        """Note that a job may run on these parts until `latest_s`."""
        for shortage in self.ahead:
            if shortage.at_s >= latest_s:
                break
            shortage.room.take(tuple(part for part in parts if part[0] in shortage.nodes))

    def give(self, parts: Parts, latest_s: float) -> None:
        """Note that a job that might have run on these parts until `latest_s` has ended."""
        for shortage in self.ahead:
            if shortage.at_s >= latest_s:
                break
            shortage.room.give(tuple(part for part in parts if part[0] in shortage.nodes))

    def bounds(self, start_s: float, limit_s: float) -> Bounds:
        """Return what windows leave to a job that starts at `start_s` and may run for `limit_s`."""
        room, until_s = None, math.inf
        for shortage in self.ahead:
            if shortage.at_s < start_s:
                continue
            if shortage.at_s >= start_s + limit_s:
                return Bounds(room, min(until_s, shortage.at_s - limit_s))
            room = shortage.room if room is None else room.within(shortage.room)
            until_s = min(until_s, shortage.at_s)
        return Bounds(room, until_s)

    def bounds_of(self, group: int) -> list[Room]:
        """Return the rooms that a group of users is kept within; none if all may use all nodes."""
        return [self._open[group]] if len(self._open) > 1 else []

    def open_to(self, room: Room, group: int) -> Room:
        """Return what of a room a group of users may use."""
        return room.within(self._open[group]) if len(self._open) > 1 else room

    def copy(self) -> Availability:
        """Return an independent copy of the current state."""
        found = copy.copy(self)
        found.coming = list(self.coming)
        found.ahead = [shortage._replace(room=shortage.room.copy()) for shortage in self.ahead]
        return found

    def claim(self, limit_s: float, group: int) -> Claim:
        """Return how a job of a group of users that may run for `limit_s` sees rooms of the future."""
        return Claim(
            lambda start_s: self.bounds(start_s, limit_s),
            lambda room: self.open_to(room, group),
            steady=not self.ahead,
            mine=self._mine[group] if len(self._mine) > 1 else None,
        )


def changes_of(windows: Sequence[Window]) -> list[Ending]:
    """Return what windows take and give back, in order of time; what they take is negative."""
    takes = [Ending(window.from_s, TAKES, ((window.node, _negative(window.amounts)),)) for window in windows]
    gives = [
        Ending(window.to_s, GIVES, ((window.node, window.amounts),))
        for window in windows
        if window.to_s < float("inf")
    ]
    return sorted(takes + gives)


def shortage(at_s: float, capacity: Ints, total: Amounts, windows: Sequence[Window]) -> Shortage:
    """Return what nodes have when windows begin at `at_s`; ModelError if that is less than nothing."""
    nodes = frozenset(window.node for window in windows if window.from_s == at_s)
    free = capacity.copy()
    for window in windows:
        if window.node in nodes and window.from_s <= at_s < window.to_s:
            free[: len(window.amounts), window.node] -= window.amounts
    for node in nodes:
        if min(amounts_of(free[:, node])) < 0:
            raise ModelError(
                f"node {node} is down or reserved beyond what it has, {at_s / 3600:g} h after the start; "
                "let its windows not overlap"
            )
    return Shortage(at_s, nodes, Room(free, total))


def _negative(amounts: Amounts) -> Amounts:
    return tuple(-amount for amount in amounts)


def group_masks(only_for: Sequence[frozenset[int] | None]) -> tuple[list[Mask], dict[int, int]]:
    """Return which nodes each group of users may use, and the group of each user who is not in the first.

    `only_for` has the users of each node, None: everybody. The first group is that of users without a reservation.
    """
    users = sorted(frozenset().union(*(each for each in only_for if each is not None)))
    masks = [numpy.array([each is None for each in only_for])]
    group_of: dict[int, int] = {}
    for user in users:
        mask = numpy.array([each is None or user in each for each in only_for])
        same = [group for group, other in enumerate(masks) if (other == mask).all()]
        if not same:
            masks.append(mask)
        group_of[user] = same[0] if same else len(masks) - 1
    return masks, group_of
