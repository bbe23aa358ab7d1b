"""Who wastes the most, and for how many attempts that is known. Pure: groups in, rows out."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

import msgspec

from accounting.report.groups import total
from accounting.report.measures import LEFT_OUT, MEASURED, MIB_A_GIB, UNITS, Measured
from accounting.report.usage import Grouped, Row, View, blank, energy_cells, shares_of, spent_cells
from accounting.units import counted

# Why an attempt's use is not counted, in words.
REASONS = {
    "short": "too short to be sampled",
    "censored": "killed at the limit or counted in part, so only a lower bound is known",
    "contaminated": "page cache is counted too, so only an upper bound is known",
    "absent": "nothing was recorded",
}

NOTHING_HELD = (
    "what these attempts held is not known: none of them ran, or they come from a dump without AllocTRES"
)

NOTHING_MEASURED = "none was measured; `rightsizer report quality` says what to change"


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """For one dimension: how many attempts were measured, and how many were left out, by quality."""

    measured: int
    left_out: dict[str, int]


class Waste(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of `report waste`, and what they leave out."""

    rows: list[Row]
    left_out: dict[Measured, LeftOut]


def waste_of(view: View, top: int) -> Waste:
    """Return those who waste the largest share of what everything held (cores, memory or GPUs), the largest first."""
    totals = view.totals()

    def place(row: Grouped) -> tuple[float, tuple[str, ...]]:
        return -max(shares_of(row.sums, totals, "wasted").values()), row.names

    worst = [row for row in heapq.nsmallest(top, view.rows(), key=place) if place(row)[0] < 0]
    return Waste(
        rows=[_row(row, view.titles, shares_of(row.sums, totals, "wasted")) for row in worst],
        left_out={dimension: _left_out(view, dimension) for dimension in MEASURED},
    )


def waste_columns(titles: Sequence[str], *, energy: bool) -> tuple[str, ...]:
    """Return the columns of the rows of `waste_of`, also if there are no rows."""
    return tuple(_row(blank(titles, energy=energy), titles, dict.fromkeys(MEASURED, 0.0)))


def _left_out(view: View, dimension: Measured) -> LeftOut:
    return LeftOut(
        measured=int(total(view.groups, f"{dimension}_known_attempts")),
        left_out={reason: int(total(view.groups, f"{dimension}_left_{reason}")) for reason in LEFT_OUT},
    )


def left_out_in_words(left_out: Mapping[Measured, LeftOut]) -> list[str]:
    """Return a line for each dimension from which attempts were left out, with the reasons.

    If no attempt held anything, or none was measured, a line says so.
    """
    said = [said for dimension, one in left_out.items() if (said := _of_dimension(dimension, one))]
    if any(one.measured for one in left_out.values()):
        return said
    return [*said, NOTHING_MEASURED] if said else [NOTHING_HELD]


def _of_dimension(dimension: Measured, one: LeftOut) -> str | None:
    parts = [f"{count:,} {REASONS[reason]}" for reason, count in one.left_out.items() if count]
    return (
        f"{dimension}: {counted(one.measured, 'attempt')} measured; left out: {'; '.join(parts)}"
        if parts
        else None
    )


def _row(row: Grouped, titles: Sequence[str], shares: Mapping[Measured, float]) -> Row:
    worst = max(shares, key=lambda dimension: shares[dimension])
    found: Row = {
        **dict(zip(titles, row.names, strict=True)),
        "jobs": int(row.sums["attempts"]),
        "most_of": worst,
        "share_of_all_pct": round(100 * shares[worst], 3),
    }
    for dimension in UNITS:
        found |= spent_cells(row, dimension, ("wasted",))
        left = sum(row.sums[f"{dimension}_left_{reason}"] for reason in LEFT_OUT)
        found[f"{dimension}_left_out"] = int(left)
    if len(titles) > 1:
        mem_mib = row.right.mem_mib
        found["right_cores"] = row.right.cores
        found["right_mem_gib"] = None if mem_mib is None else round(mem_mib / MIB_A_GIB, 3)
        found["right_gpus"] = row.right.gpus
    return {**found, **energy_cells(row.sums)}
