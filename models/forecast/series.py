"""A panel from a table of times and demand, such as a site's own meters write as CSV. Pure.

A row is a sample; samples within a step are averaged. A step without a sample gets the last value, unless more than
`MOST_GAP` such steps follow each other; the past before such a gap is left out. The notes mention both. Times without
a zone are UTC: local times would have one hour twice, and one missing, when the clocks change.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

import numpy as np

from accounting.errors import SeriesError
from accounting.units import counted
from models.forecast.panel import Floats, Ints, Panel

MOST_GAP = 3
# The year 3000: no time of any demand is as late, but milliseconds since 1970 are.
LATEST_S = 32_503_680_000
# No demand is this large, and models that compute in 32 bits accept no more.
MOST = 1e30


@dataclass(frozen=True)
class Table:
    """Samples as they were read: when (unix seconds, ascending), and the value of each series; NaN: none."""

    names: tuple[str, ...]
    times_s: Ints
    values: Floats


@dataclass(frozen=True)
class Read:
    """A panel, and notes on what was filled or left out."""

    panel: Panel
    notes: tuple[str, ...]


def read_table(lines: Iterable[str], columns: Sequence[str] = ()) -> Table:
    """Read CSV: a header, whose first column is the time (ISO 8601 or unix seconds); the others are series.

    Given `columns`, read only those. SeriesError names the line that cannot be used.
    """
    rows = csv.reader(lines)
    header = next(rows, [])
    if len(header) < 2:
        raise SeriesError(
            "the CSV needs a header: a column of times, then one column for each series, separated by commas"
        )
    unknown = [name for name in columns if name not in header[1:]]
    if unknown:
        raise SeriesError(f"the CSV has no column {unknown[0]}; it has {', '.join(header[1:])}")
    names = tuple(columns) or tuple(header[1:])
    if len(set(header)) < len(header):
        raise SeriesError("two columns of the CSV have the same name; rename one")
    places = [header.index(name) for name in names]
    times: list[int] = []
    values: list[list[float]] = []
    for line, row in enumerate(rows, start=2):
        if not row:
            continue
        if len(row) != len(header):
            raise SeriesError(
                f"line {line} of the CSV has {len(row)} fields, but its header has {len(header)}; "
                "correct that line"
            )
        times.append(_time_s(row[0], line))
        if len(times) > 1 and times[-1] <= times[-2]:
            raise SeriesError(
                f"line {line} of the CSV is not later than the line before it; sort the file, and write "
                "times in UTC (local times occur twice when clocks are set back)"
            )
        values.append([_value(row[place], line) for place in places])
    return Table(
        names, np.array(times, np.int64), np.array(values, np.float64).reshape(len(times), len(names))
    )


def _time_s(text: str, line: int) -> int:
    """Return a time in unix seconds; SeriesError if it is not a time, or so far off that it must be something else."""
    try:
        time_s = _unix_s(text.strip())
    except ValueError:
        raise SeriesError(
            f"line {line} of the CSV: {text!r} is not a time; write for example 2026-01-31T13:00:00Z"
        ) from None
    if abs(time_s) > LATEST_S:
        raise SeriesError(
            f"line {line} of the CSV: {text} is not a time in unix seconds; divide milliseconds by "
            "1000, or write for example 2026-01-31T13:00:00Z"
        )
    return time_s


def _unix_s(text: str) -> int:
    """Return unix seconds, or an ISO 8601 time in unix seconds; ValueError if it is neither."""
    if text.lstrip("-").isdigit():
        return int(text)
    time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return int((time if time.tzinfo else time.replace(tzinfo=timezone.utc)).timestamp())


def _value(text: str, line: int) -> float:
    """Return a value; NaN if there is none."""
    if text.strip().lower() in ("", "nan", "na", "null"):
        return float("nan")
    try:
        value = float(text)
    except ValueError:
        raise SeriesError(
            f"line {line} of the CSV: {text!r} is not a number; write for example 12.5, or leave it empty"
        ) from None
    if not 0 <= value <= MOST:
        raise SeriesError(
            f"line {line} of the CSV: {text} is not a valid demand; it must be 0 to {MOST:g}, or empty "
            "if it is not known"
        )
    return value


def panel_of(table: Table, step_s: int) -> Read:
    """Return the means over each whole step, without gaps."""
    if not len(table.times_s):
        raise SeriesError("the CSV has no rows below its header")
    place = table.times_s // step_s
    first, steps = int(place[0]), int(place[-1] - place[0]) + 1
    if steps > 100 * len(table.times_s) + 1000:
        raise SeriesError(
            "the CSV's times are too far apart for this --step; check that they are unix seconds"
        )
    values = np.column_stack([_means(column, place - first, steps) for column in table.values.T])
    is_whole = _is_whole(table.times_s, (first + steps) * step_s)
    values, begin, filled = _without_gaps(values if is_whole else values[:-1])
    notes = [] if is_whole else ["the last step is left out, because the last row comes before its end"]
    notes += (
        [f"{counted(filled, 'step')} without a value filled with the last value before"] if filled else []
    )
    if begin and len(values):
        notes.append(
            f"left out: the first {begin} of {counted(steps, 'step')}, because a gap of more than {MOST_GAP} "
            "steps follows"
        )
    elif begin:
        notes.append(_why_nothing_is_left(table))
    panel = Panel(table.names, values, (first + begin) * step_s, step_s)
    return Read(panel, tuple(notes))


def _why_nothing_is_left(table: Table) -> str:
    """Return which columns end before the others do, or never begin."""
    last = [table.times_s[~np.isnan(column)].max(initial=-LATEST_S) for column in table.values.T]
    ended = [
        name for name, at_s in zip(table.names, last, strict=True) if at_s < max(last) or at_s == -LATEST_S
    ]
    which = ", ".join(ended or table.names)
    return (
        f"no step is left: {which} has no value at the end; leave out that series, or the rows after its "
        "last value"
    )


def _is_whole(times_s: Ints, end_s: int) -> bool:
    """Whether the last sample, which covers the usual time between two samples, reaches the end of the last step."""
    usual_s = float(np.median(np.diff(times_s))) if len(times_s) > 1 else np.inf
    return float(times_s[-1]) + usual_s >= end_s


def _means(column: Floats, place: Ints, steps: int) -> Floats:
    there = ~np.isnan(column)
    counts = np.bincount(place[there], minlength=steps)
    sums = np.bincount(place[there], weights=column[there], minlength=steps)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def _without_gaps(values: Floats) -> tuple[Floats, int, int]:
    """Return what follows the last long gap, where that gap ends, and how many steps were filled."""
    missing = np.isnan(values)
    run, begin = np.zeros(values.shape[1], np.int64), 0
    for step, none in enumerate(missing):
        run = np.where(none, run + 1, 0)
        if (run > MOST_GAP).any() or (step == begin and none.any()):
            begin = step + 1
            run[:] = 0
    kept, filled = values[begin:].copy(), int(missing[begin:].any(axis=1).sum())
    for step in range(1, len(kept)):
        kept[step] = np.where(np.isnan(kept[step]), kept[step - 1], kept[step])
    return kept, begin, filled
