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
# `policy.most_slowdown` of our own.
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
    """The means over seeds of one case; utilisation and completion are shares, `stretch` run time over that as asked.

    `deployed` are jobs that ran or had run to their end: one that was killed, and waits again, is not.
    `cpu_asked` is what was granted of the CPUs asked for.
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
    """Return the cases of a way in the order of their load, where other fields are as given."""
    found = [
        (case, one)
        for case, one in measured.items()
        if case.way == way and all(getattr(case, name) == value for name, value in fixed.items())
    ]
    return sorted(found, key=lambda item: item[0].load)
