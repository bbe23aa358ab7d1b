"""The cells of the resource-demand paper's experiments, and what was measured of each. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from bench.paper_load import ALIKE

LOADS = (10, 20, 30, 40, 50, 60, 70)
Way = Literal["as asked", "Algorithm 1", "Algorithm 1, bounded", "rightsizer", "rightsizer, slower"]
WAYS: tuple[Way, ...] = (
    "as asked",
    "Algorithm 1",
    "Algorithm 1, bounded",
    "rightsizer",
    "rightsizer, slower",
)
# Our own setting `policy.most_slowdown`.
BORNE_SLOWDOWN: dict[Way, float] = {"rightsizer": 0.0, "rightsizer, slower": 0.2}
Premise = Literal["as the paper", "work stays"]
PREMISES: tuple[Premise, ...] = ("as the paper", "work stays")
MAIN_MIX, MOST_LOAD = "5:15:15:65", 70


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One cell of an experiment."""

    load: int
    way: Way
    premise: Premise = "as the paper"
    mix: str = MAIN_MIX
    ordering: str = "fifo"
    habits: str = ALIKE


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The means over seeds of one case; utilisation and completion are shares.

    `deployed` are jobs that were running or had completed: a job that was killed and waits again is not. `stretch` is
    the run time over that with the requests. `cpu_asked` is the share of the requested CPUs that was granted.
    """

    deployed: float
    completion: float
    finished_of_all: float
    cpu: float
    mem: float
    gpu: float
    gpu_used: float
    cpu_asked: float
    stretch: float
    failures: float


def of_way(measured: Mapping[Case, Measured], way: Way, **fixed: str) -> Sequence[tuple[Case, Measured]]:
    """Return the cases of a way in the order of their load, with other fields as given."""
    found = [
        (case, one)
        for case, one in measured.items()
        if case.way == way and all(getattr(case, name) == value for name, value in fixed.items())
    ]
    return sorted(found, key=lambda item: item[0].load)
