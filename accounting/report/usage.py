"""Reports on use, with one row per family, user or account. Pure: groups in, rows out.

Hours are an amount times the run time. Granted is what was held; used is the mean number of busy cores, the memory
peak (in GiB hours), or the number of GPUs that were ever busy. What could be saved is what the attempts of a family
would have held less, had all of them requested the right size.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from accounting.report.groups import REST, SEPARATOR, Groups, rolled_up, sums_of, total
from accounting.report.measures import ENDS, MEASURED, MIB_A_GIB, UNITS, Measured
from accounting.report.spreads import Percentiles
from accounting.units import round_up

SPREAD_SHARES = (("median", 0.5), ("p95", 0.95))
# A job killed for memory needed more than it had: the same bump as in models/past/kills.py.
KILLED_BUMP = 1.2

Sums = Mapping[str, float]
Row = dict[str, object]
# Reads the percentiles at the given shares, for the groups with these keys.
Spreads = Callable[[Sequence[str], Sequence[float]], Percentiles]


class Slowed(msgspec.Struct, frozen=True, kw_only=True):
    """How much jobs need in order not to be slowed: `cores` of a job, or all the `memory` that they request."""

    cores: int = 0
    memory: bool = False


class RightSize(msgspec.Struct, frozen=True, kw_only=True):
    """How a right-sized request follows from the highest use; `least_jobs` is how many must have been measured.

    `alike` says whether a family's jobs can be assumed to do the same work. `slowed` has, by user and family, those
    whose jobs ran longer with less than they requested: use is a mean, which does not show that.
    """

    memory_margin: float
    memory_floor_mib: int
    memory_step_mib: int
    cores_margin: float
    least_jobs: int
    alike: Callable[[str], bool]
    slowed: Mapping[tuple[str, str], Slowed] = {}


class Right(msgspec.Struct, frozen=True, kw_only=True):
    """What every job of a family could request, as totals of the job; None if too little is known.

    Memory is also None if less memory slows the jobs: nobody knows how much would be enough.
    """

    cores: int | None = None
    mem_mib: int | None = None
    gpus: int | None = None


class Grouped(msgspec.Struct, frozen=True, kw_only=True):
    """One row's sums, the parts of its key, its right size if it is one family, and what could be saved."""

    names: tuple[str, ...]
    key: str
    sums: dict[str, float]
    right: Right
    saved: dict[Measured, float]


def right_size(sums: Mapping[str, float | None], user: str, family: str, rule: RightSize) -> Right:
    """Return the request that would have held every measured attempt of a family, with the site's margins."""
    if family == REST or not rule.alike(family):
        return Right()
    cores, mem_mib, gpus = (_needed(sums, name, rule) for name in MEASURED)
    slowed = rule.slowed.get((user, family), Slowed())
    # Steps that ask for a part of their job are refused, or wait, if it has less.
    shared_cpus, shared_mib = sums["cores_shared"] or 0, sums["memory_shared"] or 0
    least = max(1, slowed.cores, math.ceil(shared_cpus))
    return Right(
        cores=None if cores is None else max(least, math.ceil(cores * (1 + rule.cores_margin) - 1e-6)),
        mem_mib=None if mem_mib is None or slowed.memory else _memory_size(mem_mib, shared_mib, rule),
        gpus=None if gpus is None else max(1, math.ceil(gpus)),
    )


def _memory_size(mem_mib: float, least_mib: float, rule: RightSize) -> int:
    wanted_mib = max(mem_mib * (1 + rule.memory_margin), rule.memory_floor_mib, least_mib)
    return round_up(wanted_mib, rule.memory_step_mib)


def _needed(sums: Mapping[str, float | None], dimension: Measured, rule: RightSize) -> float | None:
    most = sums[f"{dimension}_most"]
    if most is None or (sums[f"{dimension}_known_attempts"] or 0) < rule.least_jobs:
        return None
    # Of GPUs, a bound is what was seen of those in use: no job is killed for want of more.
    bump = KILLED_BUMP if dimension == "memory" else 1.0
    return max(most, (sums[f"{dimension}_at_least"] or 0.0) * bump)


def saveable(sums: Sums, right: Right) -> dict[Measured, float]:
    """Return, by dimension, the hours that a right-sized request would not have held; 0 if that is not known."""
    mem_gib = None if right.mem_mib is None else right.mem_mib / MIB_A_GIB
    sizes: dict[Measured, float | None] = {"cores": right.cores, "memory": mem_gib, "gpus": right.gpus}
    found: dict[Measured, float] = {}
    for dimension, name in UNITS.items():
        size = sizes[dimension]
        held = 0.0 if size is None else sums[f"{name}_known"] - size * sums[f"{name}_hours_known"]
        found[dimension] = max(0.0, held)
    return found


def by_family(groups: Groups, rule: RightSize) -> Iterator[Grouped]:
    """Yield every family, with the parts of its key as names."""
    for sums in sums_of(groups):
        key = str(sums.pop("key"))
        names = tuple(key.split(SEPARATOR))
        right = right_size(sums, names[-2], names[-1], rule)
        yield Grouped(names=names, key=key, sums=sums, right=right, saved=saveable(sums, right))


def by_first(groups: Groups, whole: Groups, rule: RightSize) -> Iterator[Grouped]:
    """Yield every first part of the keys, such as the user; `whole` is `groups` rolled up to it.

    What could be saved is the sum over its families.
    """
    saved: dict[str, dict[Measured, float]] = {}
    for family in by_family(groups, rule):
        first = saved.setdefault(family.names[0], dict.fromkeys(MEASURED, 0.0))
        for dimension, hours in family.saved.items():
            first[dimension] += hours
    for sums in sums_of(whole):
        key = str(sums.pop("key"))
        yield Grouped(names=(key,), key=key, sums=sums, right=Right(), saved=saved[key])


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What a report is made from: groups, a function that yields its rows, and the titles of the parts of names."""

    groups: Groups
    rows: Callable[[], Iterator[Grouped]]
    titles: tuple[str, ...]

    def totals(self) -> dict[Measured, float]:
        """Return what everything held of each dimension, in hours."""
        return {dimension: total(self.groups, f"{name}_granted") for dimension, name in UNITS.items()}


def view_families(groups: Groups, rule: RightSize) -> View:
    """Return the view by user and family, which are the parts of the keys."""
    return View(groups=groups, rows=lambda: by_family(groups, rule), titles=("user", "family"))


def view_first(groups: Groups, rule: RightSize, title: str) -> View:
    """Return the view by the first part of the keys: users, or accounts."""
    whole = rolled_up(groups)
    return View(groups=whole, rows=lambda: by_first(groups, whole, rule), titles=(title,))


def shares_of(sums: Sums, totals: Mapping[Measured, float], kind: str) -> dict[Measured, float]:
    """Return a row's `kind` (granted, wasted) as a share (0..1) of what everything held, by dimension."""
    return {
        dimension: sums[f"{name}_{kind}"] / totals[dimension] if totals[dimension] else 0.0
        for dimension, name in UNITS.items()
    }


def use_rows(view: View, top: int, spreads: Spreads) -> list[Row]:
    """Return the rows of `report families` and `report users`, by the largest share of anything that they held."""
    totals = view.totals()

    def place(row: Grouped) -> tuple[float, tuple[str, ...]]:
        return -max(shares_of(row.sums, totals, "granted").values()), row.names

    shown = heapq.nsmallest(top, view.rows(), key=place)
    found = spreads([row.key for row in shown], [share for _, share in SPREAD_SHARES])
    return [_use_row(view.titles, row, found) for row in shown]


def use_columns(titles: Sequence[str], *, energy: bool) -> tuple[str, ...]:
    """Return the columns of `use_rows`, also if there are no rows."""
    return tuple(_use_row(titles, blank(titles, energy=energy), {}))


def blank(titles: Sequence[str], *, energy: bool) -> Grouped:
    """Return the group of no attempts."""
    sums = defaultdict[str, float](float)
    if energy:
        sums["energy_kwh"] = 0.0
    saved = dict.fromkeys(MEASURED, 0.0)
    return Grouped(names=("",) * len(titles), key="", sums=sums, right=Right(), saved=saved)


def _use_row(titles: Sequence[str], row: Grouped, found: Percentiles) -> Row:
    return {
        **dict(zip(titles, row.names, strict=True)),
        "jobs": int(row.sums["attempts"]),
        **{name: int(row.sums[name]) for name in ENDS},
        **_spread(found, row.key, "cores", "", 1.0),
        **_spread(found, row.key, "mem", "_gib", MIB_A_GIB),
        **_spread(found, row.key, "wall", "_h", 3600.0),
        **_hours(row),
        **energy_cells(row.sums),
    }


def _spread(found: Percentiles, key: str, name: str, unit: str, scale: float) -> Row:
    cells: Row = {}
    for kind in ("limit", "used") if name == "wall" else ("asked", "granted", "used"):
        values = found.get((key, f"{name}_{kind}"))
        for place, (title, _) in enumerate(SPREAD_SHARES):
            cells[f"{name}_{kind}_{title}{unit}"] = (
                None if values is None else round(values[place] / scale, 3)
            )
    return cells


def _hours(row: Grouped) -> Row:
    found: Row = {}
    for dimension, name in UNITS.items():
        found |= {f"{name}_{kind}": _told(row.sums, name, kind) for kind in ("asked", "granted")}
        found |= spent_cells(row, dimension, ("used", "wasted"))
    return found


def _told(sums: Sums, name: str, kind: str) -> float | None:
    """Return the hours requested or granted; None if attempts ran, but none has the figure."""
    is_unknown = sums["started"] and not sums[f"{name}_told_{kind}"]
    return None if is_unknown else round(sums[f"{name}_{kind}"], 3)


def spent_cells(row: Grouped, dimension: Measured, kinds: Sequence[str]) -> Row:
    """Return what was used or wasted, and could be saved, in hours; None if nothing was measured."""
    name = UNITS[dimension]
    known = row.sums[f"{dimension}_known_attempts"] > 0
    found: Row = {f"{name}_{kind}": round(row.sums[f"{name}_{kind}"], 3) if known else None for kind in kinds}
    return {**found, f"{name}_saveable": round(row.saved[dimension], 3) if known else None}


def energy_cells(sums: Sums) -> Row:
    """Return energy, carbon, and the shares of energy wasted and not measured; empty if energy was not computed."""
    if "energy_kwh" not in sums:
        return {}
    whole = sums["energy_kwh"]
    return {
        "energy_kwh": round(whole, 4),
        "carbon_kg": round(sums["carbon_kg"], 4),
        "energy_wasted_pct": round(100 * sums["wasted_kwh"] / whole, 1) if whole else None,
        "energy_estimated_pct": round(100 * sums["estimated_kwh"] / whole, 1) if whole else None,
    }
