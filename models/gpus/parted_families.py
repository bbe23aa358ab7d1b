"""Which job families with one GPU could do with a part of one, and how many GPU hours that frees. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

from accounting.report.gpu_jobs import OnOneGpu
from accounting.report.measures import SECONDS_AN_HOUR
from models.gpus.parts import MIB_A_GIB, Part, least_part, times_at_most

# Why a family keeps its GPU; '' if a part would do.
Why = Literal["", "too few measured", "names tell too little", "memory", "busy"]


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """What a family must show: `least_jobs` measured jobs, none of which runs over `most_times` as long in a part.

    `mem_margin` is added to the family's highest memory, as a fraction. `alike` tells whether a family's jobs can be
    taken for the same work.
    """

    least_jobs: int
    mem_margin: float
    most_times: float
    alike: Callable[[str], bool]


class PartedFamily(msgspec.Struct, frozen=True, kw_only=True):
    """A family's jobs with one GPU: the most memory that one used, how busy they kept it on average and at most.

    `times_at_most` is how many times as long the busiest would run in `part`, at most. `gpu_h_freed` is how many of
    the GPU hours held would at least be free if all jobs ran in such a part.
    """

    user: str
    family: str
    jobs: int
    measured: int
    gpu_h: float
    mem_most_gib: float | None
    busy_mean_pct: float | None
    busy_most_pct: float | None
    part: str
    times_at_most: float | None
    part_h: float
    gpu_h_freed: float
    why: Why


class Parted(NamedTuple):
    """The families of some runs, and the hours from the first start among them to the last end."""

    families: list[PartedFamily]
    span_h: float


def parted_families(runs: Iterable[OnOneGpu], parts: Sequence[Part], rule: Rule) -> Parted:
    """Return a row for each user's family, sorted by what it would free, then by what it holds, the most first."""
    seen: defaultdict[tuple[str, str], _Seen] = defaultdict(_Seen)
    first_s, last_s = math.inf, -math.inf
    for run in runs:
        seen[run.user, run.family].add(run)
        first_s, last_s = min(first_s, run.start_s), max(last_s, run.end_s)
    rows = [_row(user, family, found, parts, rule) for (user, family), found in seen.items()]
    rows.sort(key=lambda row: (-row.gpu_h_freed, -row.gpu_h, row.user, row.family))
    return Parted(rows, max(0.0, last_s - first_s) / SECONDS_AN_HOUR)


class _Seen:
    """What is seen of a family, run by run; figures of a run that did not end well are lower bounds."""

    def __init__(self) -> None:
        self.jobs = self.measured = 0
        self.held_s = self.measured_s = self.busy_s = 0.0
        self.mem_mib: float | None = None
        self.busiest: float | None = None

    def add(self, run: OnOneGpu) -> None:
        lasted_s = max(0, run.end_s - run.start_s)
        self.jobs += 1
        self.held_s += lasted_s
        self.mem_mib = _higher(self.mem_mib, run.mem_mib)
        self.busiest = _higher(self.busiest, run.busy)
        if run.is_measured and run.busy is not None:
            self.measured += 1
            self.measured_s += lasted_s
            self.busy_s += lasted_s * run.busy


def _higher(one: float | None, other: float | None) -> float | None:
    return max((value for value in (one, other) if value is not None), default=None)


class _Choice(NamedTuple):
    part: Part | None
    why: Why


def _choice(family: str, seen: _Seen, parts: Sequence[Part], rule: Rule) -> _Choice:
    if not rule.alike(family):
        return _Choice(None, "names tell too little")
    if seen.measured < rule.least_jobs or seen.mem_mib is None or seen.busiest is None:
        return _Choice(None, "too few measured")
    mem_mib = seen.mem_mib * (1 + rule.mem_margin)
    part = least_part(parts, mem_mib, seen.busiest, rule.most_times)
    if part is not None:
        return _Choice(part, "")
    return _Choice(None, "busy" if any(each.mem_mib >= mem_mib for each in parts) else "memory")


def _row(user: str, family: str, seen: _Seen, parts: Sequence[Part], rule: Rule) -> PartedFamily:
    part, why = _choice(family, seen, parts, rule)
    busy = seen.busy_s / seen.measured_s if seen.measured_s else None
    held_h = seen.held_s / SECONDS_AN_HOUR
    # The bound is linear in how busy a job is: with the mean, it is that of all their hours together.
    part_h = 0.0 if part is None else held_h * times_at_most(busy or 0.0, part.speed)
    return PartedFamily(
        user=user,
        family=family,
        jobs=seen.jobs,
        measured=seen.measured,
        gpu_h=round(held_h, 2),
        mem_most_gib=None if seen.mem_mib is None else round(seen.mem_mib / MIB_A_GIB, 2),
        busy_mean_pct=_pct(busy),
        busy_most_pct=_pct(seen.busiest),
        part=part.name if part else "",
        times_at_most=None if part is None else round(times_at_most(seen.busiest or 0.0, part.speed), 3),
        part_h=round(part_h, 2),
        gpu_h_freed=0.0 if part is None else round(max(0.0, held_h - part.share * part_h), 2),
        why=why,
    )


def _pct(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 1)
