"""What runs in a cell when a rollout begins. It is built once, as all rollouts of a cell begin alike. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy

from models.planning.cell_windows import Held
from models.scheduling.availability import Availability, Window
from models.scheduling.backfill import Ending
from models.scheduling.room import Floats, Ints, amounts_of
from models.simulation.state import Running


class Beginning(msgspec.Struct, frozen=True, kw_only=True):
    """What runs, by number from 0; its ends, sorted; and its limits (seconds from now).

    `windows` keeps track of what may run into them. None: there are none, and every job may use all machines.
    """

    running: Mapping[int, Running]
    endings: tuple[Ending, ...]
    limits_s: Floats
    windows: Availability | None


def beginning_of(
    capacity: Ints,
    running: Sequence[Held],
    windows: Sequence[Window],
    only_for: Sequence[frozenset[int] | None],
) -> Beginning:
    """Return how rollouts begin on machines of this capacity; `only_for` and `windows` are as in Cell."""
    runs = {
        number: Running(0.0, held.parts, held.limit_left_s, held.limit_left_s)
        for number, held in enumerate(running)
    }
    known = None
    if windows or only_for:
        whom = only_for or (None,) * capacity.shape[1]
        known = Availability(capacity, amounts_of(capacity.sum(axis=1)), windows, whom, lasts=bool(only_for))
        for one in runs.values():
            known.take(one.parts, one.latest_s)
    return Beginning(
        running=runs,
        endings=tuple(sorted(Ending(one.expected_end_s, number, one.parts) for number, one in runs.items())),
        limits_s=numpy.array([one.latest_s for one in runs.values()]),
        windows=known,
    )
