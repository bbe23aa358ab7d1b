"""What each attempt adds to the sums of a report. Pure, on columns: no clock, no database.

A figure of use counts only if its quality is `exact` or `sampled`. A censored figure is a lower bound of what was
needed, a contaminated one an upper bound; waste computed from either would be made up.
"""

from __future__ import annotations

from typing import Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

from accounting.records import Quality

Measured = Literal["cores", "memory", "gpus"]
MEASURED: tuple[Measured, ...] = get_args(Measured)
UNITS: dict[Measured, str] = {"cores": "core_h", "memory": "mem_gib_h", "gpus": "gpu_h"}

TRUSTED: tuple[Quality, ...] = ("exact", "sampled")
LEFT_OUT: tuple[Quality, ...] = tuple(quality for quality in get_args(Quality) if quality not in TRUSTED)

SECONDS_AN_HOUR = 3600.0
MIB_A_GIB = 1024.0

ENDS = ("completed", "out_of_memory", "timeout", "failed", "cancelled", "other_end")

# The columns of each dimension: asked, granted, used, quality; and how many of them make one of its unit.
_COLUMNS: dict[Measured, tuple[str, str, str, str, float]] = {
    "cores": ("asked_cpus", "alloc_cpus", "cores", "cores_quality", 1.0),
    "memory": ("asked_mem_mib", "alloc_mem_mib", "peak_mem_mib", "memory_quality", MIB_A_GIB),
    "gpus": ("asked_gpus", "alloc_gpus", "gpus", "gpu_quality", 1.0),
}
_SHARED_OUT: dict[Measured, str] = {"cores": "step_cpus", "memory": "step_mem_mib"}


def measures(batch: pa.Table) -> dict[str, pa.Array]:
    """Return the columns that are summed over attempts: counts, hours, and amounts in the units of UNITS.

    `NAME_asked`, `_granted` are of all attempts; `_told_asked`, `_told_granted` count the attempts that ran and
    state it. `_used` and `_wasted` are only of attempts whose use is trusted. So are `_known` (granted, but no more
    than was asked: asking for less saves no more than that on a core with two threads) and `_hours_known`, how long
    they ran, except for the cores of attempts that were given whole nodes or sockets. `DIMENSION_left_QUALITY`
    counts those left out.
    """
    hours = _float(batch["wall_s"], SECONDS_AN_HOUR)
    found = {"attempts": _ones(batch), "started": _count(started(batch)), "hours": hours, **ends(batch)}
    for dimension in MEASURED:
        found |= _dimension(batch, dimension, hours)
    return found


def highest(batch: pa.Table) -> dict[str, pa.Array]:
    """Return the columns whose maximum counts; null for rows that do not state them.

    `NAME_most` is trusted use, `NAME_at_least` censored use, and `NAME_shared` the most that steps which asked for a
    part of the job held at one time.
    """
    found: dict[str, pa.Array] = {}
    for dimension, (_, _, used, quality, _) in _COLUMNS.items():
        amount = _float(batch[used])
        found[f"{dimension}_most"] = pc.if_else(trusted(batch, quality, used), amount, None)
        censored = pc.and_(pc.equal(batch[quality], "censored"), started(batch))
        found[f"{dimension}_at_least"] = pc.if_else(censored, amount, None)
    for dimension, column in _SHARED_OUT.items():
        found[f"{dimension}_shared"] = _float(batch[column])
    return found


def spreads(batch: pa.Table) -> dict[str, pa.Array]:
    """Return the columns for medians and 95th percentiles, in s, MiB and cores; null for attempts that do not count."""
    found = {"wall_limit": _float(batch["limit_s"]), "wall_used": _float(batch["wall_s"])}
    ran = started(batch)
    found["wall_used"] = pc.if_else(ran, found["wall_used"], None)
    dimensions: tuple[tuple[str, Measured], ...] = (("mem", "memory"), ("cores", "cores"))
    for name, dimension in dimensions:
        asked, granted, used, quality, _ = _COLUMNS[dimension]
        found[f"{name}_asked"] = _float(batch[asked])
        found[f"{name}_granted"] = pc.if_else(ran, _float(batch[granted]), None)
        found[f"{name}_used"] = pc.if_else(trusted(batch, quality, used), _float(batch[used]), None)
    return found


def ends(batch: pa.Table) -> dict[str, pa.Array]:
    """Return one column of 0 and 1 for each way in which an attempt can have ended."""
    found = {name: pc.equal(batch["outcome"], name) for name in ("completed", "out_of_memory", "timeout")}
    cut = pc.equal(batch["outcome"], "cut_short")
    found["failed"] = pc.and_(cut, pc.starts_with(batch["state"], "FAILED"))
    found["cancelled"] = pc.and_(cut, pc.starts_with(batch["state"], "CANCELLED"))
    some = pc.or_(pc.or_(found["failed"], found["cancelled"]), found["completed"])
    some = pc.or_(some, pc.or_(found["out_of_memory"], found["timeout"]))
    found["other_end"] = pc.invert(some)
    return {name: _count(column) for name, column in found.items()}


def started(batch: pa.Table) -> pa.Array:
    """Return which attempts ever ran."""
    return pc.and_(pc.greater(batch["start_s"], 0), pc.not_equal(batch["wall_quality"], "absent"))


def trusted(batch: pa.Table, quality: str, used: str) -> pa.Array:
    """Return which attempts ran and have a figure of trusted quality."""
    good = pc.is_in(batch[quality], value_set=pa.array(TRUSTED))
    return pc.and_(pc.and_(good, pc.is_valid(batch[used])), started(batch))


def _dimension(batch: pa.Table, dimension: Measured, hours: pa.Array) -> dict[str, pa.Array]:
    asked, granted, used, quality, unit = _COLUMNS[dimension]
    name = UNITS[dimension]
    given = _amount(batch[granted], unit, hours)
    # An attempt that was given none, such as one without GPUs, has nothing to waste and nothing to measure.
    ran = started(batch)
    held = pc.and_(ran, pc.fill_null(pc.greater(batch[granted], 0), False))
    known = pc.and_(held, trusted(batch, quality, used))
    counted = pc.and_(known, pc.invert(_whole(batch))) if dimension == "cores" else known
    spent = _where(known, _amount(batch[used], unit, hours))
    found = {
        f"{name}_asked": _amount(batch[asked], unit, hours),
        f"{name}_granted": given,
        f"{name}_told_asked": _count(pc.and_(ran, pc.is_valid(batch[asked]))),
        f"{name}_told_granted": _count(pc.and_(ran, pc.is_valid(batch[granted]))),
        f"{name}_known": _where(
            counted, pc.min_element_wise(given, _amount_or_null(batch[asked], unit, hours))
        ),
        f"{name}_used": spent,
        f"{name}_wasted": pc.max_element_wise(pc.subtract(_where(known, given), spent), 0.0),
        f"{name}_hours_known": _where(counted, hours),
        f"{dimension}_known_attempts": _count(known),
        f"{dimension}_held_attempts": _count(held),
    }
    unknown = pc.and_(held, pc.invert(known))
    for reason in LEFT_OUT:
        of_quality = pc.equal(batch[quality], reason)
        if reason == "absent":  # also if the figure is missing whatever its quality says
            of_quality = pc.or_(of_quality, pc.is_in(batch[quality], value_set=pa.array(TRUSTED)))
        found[f"{dimension}_left_{reason}"] = _count(pc.and_(unknown, of_quality))
    return found


def _whole(batch: pa.Table) -> pa.Array:
    """Return which attempts were given whole nodes or sockets: more CPUs than asked by more than a thread per task.

    However little they had requested, they would have been given whole ones.
    """
    least = pc.add(batch["asked_cpus"], batch["num_tasks"])
    return pc.fill_null(pc.greater(batch["alloc_cpus"], least), False)


def _float(column: pa.ChunkedArray, divisor: float = 1.0) -> pa.Array:
    return pc.divide(pc.cast(column, pa.float64()), divisor)


def _amount(column: pa.ChunkedArray, unit: float, hours: pa.Array) -> pa.Array:
    return pc.fill_null(_amount_or_null(column, unit, hours), 0.0)


def _amount_or_null(column: pa.ChunkedArray, unit: float, hours: pa.Array) -> pa.Array:
    return pc.multiply(_float(column, unit), hours)


def _where(mask: pa.Array, values: pa.Array) -> pa.Array:
    return pc.fill_null(pc.if_else(mask, values, 0.0), 0.0)


def _count(mask: pa.Array) -> pa.Array:
    return pc.cast(pc.cast(pc.fill_null(mask, False), pa.int8()), pa.float64())


def _ones(batch: pa.Table) -> pa.Array:
    return pa.array([1.0] * batch.num_rows, pa.float64())
