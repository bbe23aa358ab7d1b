"""How well a schedule serves what was planned. Pure.

From a patent on scheduling by GPU virtualisation (claim 8; docs/scheduling.md):

    blocking rate  = volume that was blocked / planned volume
    s² = Σ over rounds p of (y_p − ȳ)² / P,   y_p the slices of round p that nobody used, P the planned rounds

A volume is blocked as far as it was not served in the window: half of one that was half served. Each round has one
slice for each demander; a demander that needs no more turns, or was not reached in the window, leaves its slice
unused. (The patent's formula of s² is a picture that our copy lacks; that it divides by P is inferred from the
symbols it explains.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy

from models.scheduling.checks import Floats, amounts_of
from models.scheduling.round_robin import ScheduleRecord


class Performance(msgspec.Struct, frozen=True, kw_only=True):
    """What the patent judges a record by: a share (0 to 1), and slices squared."""

    blocking_rate: float
    unused_variance: float

    @property
    def meets_demand(self) -> bool:
        """Whether all that was planned was served."""
        return self.blocking_rate == 0


def measure(
    volumes: Sequence[float] | Floats, durations_s: Sequence[float] | Floats, record: ScheduleRecord
) -> Performance:
    """Return the performance of a record that served these volumes, planned to take these durations."""
    return Performance(
        blocking_rate=blocking_rate(volumes, durations_s, record), unused_variance=unused_variance(record)
    )


def blocking_rate(
    volumes: Sequence[float] | Floats, durations_s: Sequence[float] | Floats, record: ScheduleRecord
) -> float:
    """Return blocked volume over planned volume, 0 if nothing was planned."""
    planned = amounts_of("planned volumes", volumes)
    durations = amounts_of("planned durations", durations_s)
    some = durations > 0
    unserved = numpy.zeros(len(planned))
    unserved[some] = 1 - numpy.array(record.served_s)[some] / durations[some]
    whole = float(planned.sum())
    return min(1.0, max(0.0, float(planned @ unserved) / whole)) if whole else 0.0


def unused_variance(record: ScheduleRecord) -> float:
    """Return the variance over rounds of the number of unused slices, 0 if there is no round."""
    used = Counter(turn.round_number for turn in record.turns)
    unused = [record.demanders - used[number] for number in range(1, record.rounds + 1)]
    return float(numpy.var(unused)) if unused else 0.0
