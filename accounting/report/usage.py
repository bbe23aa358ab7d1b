"""Reports on use: one row a family, user or account, and what is wasted. Pure: groups in, rows out.

Core hours and GPU hours are of what was held while it ran; memory in GiB hours is the peak times the time it ran. What
could be saved is what the attempts of a family would have been given less, had all of them asked for the right size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from accounting.report.groups import REST, SEPARATOR, Groups, percentiles, rolled_up
from accounting.report.measures import ENDS, LEFT_OUT, MEASURED, MIB_A_GIB, UNITS, Measured
from accounting.units import round_up

SPREAD_SHARES = (0.5, 0.95)
# A job killed for memory needed more than it had.
KILLED_BUMP = 1.2
Sums = Mapping[str, float]
Row = dict[str, object]


class RightSize(msgspec.Struct, frozen=True, kw_only=True):
    """How a right-sized request follows from the most that was used; `least_jobs` is how many must have been seen.

    `alike` tells whether a family's jobs can be taken for the same work.
    """

    memory_margin: float
    memory_floor_mib: int
    memory_step_mib: int
    cores_margin: float
    least_jobs: int
    alike: Callable[[str], bool]


class Right(msgspec.Struct, frozen=True, kw_only=True):
    """What every job of a family could ask for, as totals of the job; None where too little is known."""

    cores: int | None = None
    memory: int | None = None  # MiB
    gpus: int | None = None


def right_size(sums: Mapping[str, float | None], family: str, rule: RightSize) -> Right:
    """Return the request that would have held every attempt of a family that was measured, with the site's margins."""
    if family == REST or not rule.alike(family):
        return Right()
    most = {name: _needed(sums, name, rule) for name in MEASURED}
    memory, cores, gpus = most["memory"], most["cores"], most["gpus"]
    return Right(
        cores=None if cores is None else max(1, math.ceil(cores * (1 + rule.cores_margin) - 1e-6)),
        memory=None
        if memory is None
        else round_up(max(memory * (1 + rule.memory_margin), rule.memory_floor_mib), rule.memory_step_mib),
        gpus=None if gpus is None else max(1, math.ceil(gpus)),
    )


def _needed(sums: Mapping[str, float | None], dimension: Measured, rule: RightSize) -> float | None:
    most = sums[f"{dimension}_most"]
    if most is None or (sums[f"{dimension}_known_attempts"] or 0) < rule.least_jobs:
        return None
    return max(most, (sums[f"{dimension}_at_least"] or 0.0) * KILLED_BUMP)


def saveable(sums: Sums, right: Right) -> dict[Measured, float]:
    """Return the hours of each dimension that a right-sized request would not have held; 0 where it is not known."""
    each = {
        "cores": right.cores,
        "memory": None if right.memory is None else right.memory / MIB_A_GIB,
        "gpus": right.gpus,
    }
    found: dict[Measured, float] = {}
    for dimension, name in UNITS.items():
        size = each[dimension]
        held = 0.0 if size is None else sums[f"{name}_known"] - size * sums[f"{name}_hours_known"]
        found[dimension] = max(0.0, held)
    return found


class Grouped(msgspec.Struct, frozen=True, kw_only=True):
    """One row's sums, the parts of its key, its right size where it is one family, and what could be saved."""

    names: tuple[str, ...]
    key: str
    sums: dict[str, float]
    right: Right
    saved: dict[Measured, float]


def by_family(groups: Groups, rule: RightSize) -> list[Grouped]:
    """Return every family, with the parts of its key as names."""
    found = []
    for sums in groups.sums.to_pylist():
        key = str(sums.pop("key"))
        names = tuple(key.split(SEPARATOR))
        right = right_size(sums, names[-1], rule)
        found.append(Grouped(names=names, key=key, sums=sums, right=right, saved=saveable(sums, right)))
    return found


def by_first(groups: Groups, rule: RightSize) -> list[Grouped]:
    """Return every first part of the keys, such as the user; what could be saved is that of its families."""
    saved: dict[str, dict[Measured, float]] = {}
    for family in by_family(groups, rule):
        total = saved.setdefault(family.names[0], dict.fromkeys(MEASURED, 0.0))
        for dimension, hours in family.saved.items():
            total[dimension] += hours
    found = []
    for sums in rolled_up(groups, 1).sums.to_pylist():
        key = str(sums.pop("key"))
        found.append(Grouped(names=(key,), key=key, sums=sums, right=Right(), saved=saved[key]))
    return found


def largest(rows: Iterable[Grouped], top: int) -> list[Grouped]:
    """Return the `top` rows that held most, by the largest of their shares of what all held."""
    rows = list(rows)
    totals = {name: sum(row.sums[f"{name}_granted"] for row in rows) or 1.0 for name in UNITS.values()}
    return sorted(rows, key=lambda row: -max(row.sums[f"{n}_granted"] / totals[n] for n in totals))[:top]


def use_rows(shown: Sequence[Grouped], groups: Groups, titles: Sequence[str]) -> list[Row]:
    """Return the rows of `report families` and `report users`; memory is GiB, times are hours."""
    spreads = percentiles(groups, [row.key for row in shown], SPREAD_SHARES)
    return [
        {
            **dict(zip(titles, row.names, strict=True)),
            **_jobs(row.sums),
            **_spread(spreads, row.key, "cores", "", 1.0),
            **_spread(spreads, row.key, "memory", "_gib", MIB_A_GIB),
            **_wall(spreads, row.key),
            **_hours(row),
            **_energy(row.sums),
        }
        for row in shown
    ]


def _jobs(sums: Sums) -> Row:
    return {"jobs": int(sums["attempts"]), **{name: int(sums[name]) for name in ENDS}}


def _spread(
    spreads: Mapping[tuple[str, str], Sequence[float]], key: str, name: str, unit: str, scale: float
) -> Row:
    found: Row = {}
    for kind in ("asked", "granted", "used"):
        values = spreads.get((key, f"{name}_{kind}"))
        for title, place in (("median", 0), ("p95", 1)):
            found[f"{name}_{kind}_{title}{unit}"] = None if values is None else round(values[place] / scale, 3)
    return found


def _wall(spreads: Mapping[tuple[str, str], Sequence[float]], key: str) -> Row:
    found: Row = {}
    for kind in ("limit", "used"):
        values = spreads.get((key, f"wall_{kind}_s"))
        for title, place in (("median", 0), ("p95", 1)):
            found[f"wall_{kind}_{title}_h"] = None if values is None else round(values[place] / 3600, 3)
    return found


def _hours(row: Grouped) -> Row:
    found: Row = {}
    for dimension, name in UNITS.items():
        known = row.sums[f"{dimension}_known_attempts"] > 0
        found[f"{name}_asked"] = round(row.sums[f"{name}_asked"], 3)
        found[f"{name}_granted"] = round(row.sums[f"{name}_granted"], 3)
        found[f"{name}_used"] = round(row.sums[f"{name}_used"], 3) if known else None
        found[f"{name}_wasted"] = round(row.sums[f"{name}_wasted"], 3) if known else None
        found[f"{name}_saveable"] = round(row.saved[dimension], 3) if known else None
    return found


def _energy(sums: Sums) -> Row:
    return {"energy_kwh": round(sums["energy_j"] / 3.6e6, 4) if sums["energy_attempts"] else None}


class Waste(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of `report waste`; how many attempts of each dimension were measured, and left out, by quality."""

    rows: list[Row]
    measured: dict[Measured, int]
    left_out: dict[Measured, dict[str, int]]


def waste_of(rows: Sequence[Grouped], titles: Sequence[str], top: int) -> Waste:
    """Return who wastes the largest share of what all attempts held, of cores, memory or GPUs, the largest first."""
    totals = {name: sum(row.sums[f"{name}_granted"] for row in rows) for name in UNITS.values()}

    def shares(row: Grouped) -> dict[Measured, float]:
        return {
            dimension: row.sums[f"{name}_wasted"] / totals[name] if totals[name] else 0.0
            for dimension, name in UNITS.items()
        }

    worst = sorted(rows, key=lambda row: (-max(shares(row).values()), row.names))[:top]
    return Waste(
        rows=[_waste_row(row, titles, shares(row)) for row in worst if max(shares(row).values()) > 0],
        measured={name: int(sum(row.sums[f"{name}_known_attempts"] for row in rows)) for name in MEASURED},
        left_out={
            dimension: {
                reason: int(sum(row.sums[f"{dimension}_left_{reason}"] for row in rows)) for reason in LEFT_OUT
            }
            for dimension in MEASURED
        },
    )


def _waste_row(row: Grouped, titles: Sequence[str], shares: Mapping[Measured, float]) -> Row:
    worst = max(shares, key=lambda dimension: shares[dimension])
    found: Row = {
        **dict(zip(titles, row.names, strict=True)),
        "jobs": int(row.sums["attempts"]),
        "most_of": worst,
        "share_of_cluster_pct": round(100 * shares[worst], 3),
    }
    for dimension, name in UNITS.items():
        known = row.sums[f"{dimension}_known_attempts"] > 0
        found[f"{name}_wasted"] = round(row.sums[f"{name}_wasted"], 3) if known else None
        found[f"{name}_saveable"] = round(row.saved[dimension], 3) if known else None
        found[f"{dimension}_left_out"] = int(sum(row.sums[f"{dimension}_left_{reason}"] for reason in LEFT_OUT))
    if len(titles) > 1:
        memory = row.right.memory
        found |= {
            "right_cores": row.right.cores,
            "right_memory_gib": None if memory is None else round(memory / MIB_A_GIB, 3),
            "right_gpus": row.right.gpus,
        }
    return found
