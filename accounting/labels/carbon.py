"""Carbon intensity of electricity, hour by hour. Pure: text and moments in, grams out."""

from __future__ import annotations

import bisect
import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone, tzinfo
from itertools import pairwise

from accounting.errors import ConfigError

HOUR_S = 3600
# Beyond a year daily differences average out, and an attempt that long is a damaged record.
LONGEST_WALK_S = 366 * 86400
HEADING = ("time", "gCO2_per_kWh")
MOST_G_PER_KWH = 10_000.0


@dataclass(frozen=True)
class CarbonSeries:
    """Carbon intensity from given moments on: `from_s` are rising unix seconds; a value holds for an hour at most."""

    from_s: tuple[int, ...]
    g_per_kwh: tuple[float, ...]


@dataclass(frozen=True)
class CarbonIntensity:
    """gCO2 per kWh: by hour of the local day (24 values, or one for all), and from a series where it has a value.

    `zone` is the time zone of that day; None means this machine's own.
    """

    g_per_kwh: tuple[float, ...]
    zone: tzinfo | None = None
    series: CarbonSeries | None = None

    def at(self, moment_s: float) -> float:
        """Return gCO2 per kWh at a moment in unix seconds."""
        if self.series is not None:
            place = bisect.bisect_right(self.series.from_s, moment_s) - 1
            if place >= 0 and moment_s < self.series.from_s[place] + HOUR_S:
                return self.series.g_per_kwh[place]
        if len(self.g_per_kwh) == 1:
            return self.g_per_kwh[0]
        return self.g_per_kwh[self._local(moment_s).hour]

    def mean(self, begin_s: float, end_s: float) -> float:
        """Return the mean gCO2 per kWh between two moments, for a constant load."""
        if end_s <= begin_s:
            return self.at(begin_s)
        if self.series is None and len(self.g_per_kwh) == 1:
            return self.g_per_kwh[0]
        if end_s - begin_s > LONGEST_WALK_S:
            return sum(self.g_per_kwh) / len(self.g_per_kwh)
        pieces = pairwise([*self._changes(begin_s, end_s), end_s])
        return sum((later - earlier) * self.at(earlier) for earlier, later in pieces) / (end_s - begin_s)

    def _changes(self, begin_s: float, end_s: float) -> Iterator[float]:
        """Yield the moments at which the figure may change: full local hours, and where a series begins or lapses."""
        moment_s = begin_s
        while moment_s < end_s:
            yield moment_s
            local = self._local(moment_s)
            # Clocks change at full local hours, so that no change is skipped.
            next_s = moment_s + HOUR_S - (local.minute * 60 + local.second + local.microsecond / 1e6)
            moment_s = min(next_s, self._next_of_series(moment_s))

    def _next_of_series(self, moment_s: float) -> float:
        if self.series is None:
            return math.inf
        place = bisect.bisect_right(self.series.from_s, moment_s)
        lapses_s = self.series.from_s[place - 1] + HOUR_S if place else math.inf
        begins_s = self.series.from_s[place] if place < len(self.series.from_s) else math.inf
        return min(begins_s, lapses_s if lapses_s > moment_s else math.inf)

    def _local(self, moment_s: float) -> datetime:
        return datetime.fromtimestamp(moment_s, timezone.utc).astimezone(self.zone)


def parse_carbon_series(text: str, source: str) -> CarbonSeries:
    """Parse CSV with the heading `time,gCO2_per_kWh`; a time is unix seconds, or ISO 8601 with its offset.

    Times must rise. A row holds until the next one, for an hour at most. ConfigError names `source` and the line.
    """
    try:
        rows = list(csv.reader(text.splitlines()))
    except csv.Error as error:
        raise ConfigError(f"{source} is not a CSV file ({error}); export it again") from None
    if not rows or tuple(name.strip() for name in rows[0]) != HEADING:
        raise ConfigError(f"{source}: the first line must be `{','.join(HEADING)}`; add it")
    points: list[tuple[int, float]] = []
    for number, row in enumerate(rows[1:], start=2):
        if row:
            points.append(_point(row, f"{source}, line {number}"))
    for (earlier_s, _), (later_s, _) in pairwise(points):
        if later_s <= earlier_s:
            raise ConfigError(
                f"{source}: times must increase, but do not at {_iso(later_s)}; sort the file by time"
            )
    return CarbonSeries(tuple(time_s for time_s, _ in points), tuple(grams for _, grams in points))


def _point(row: list[str], where: str) -> tuple[int, float]:
    if len(row) != len(HEADING):
        raise ConfigError(f"{where}: {len(row)} columns instead of {len(HEADING)}; write `time,gCO2_per_kWh`")
    time_s = _moment(row[0].strip())
    if time_s is None:
        raise ConfigError(
            f"{where}: `{row[0]}` is not a time; write unix seconds, or 2026-01-31T14:00:00+01:00 with "
            "its offset"
        )
    try:
        grams = float(row[1])
    except ValueError:
        grams = math.nan
    if not 0 <= grams <= MOST_G_PER_KWH:
        raise ConfigError(
            f"{where}: `{row[1]}` is not a number of gCO2 per kWh; write a number from 0 to "
            f"{MOST_G_PER_KWH:.0f}"
        )
    return time_s, grams


def _moment(text: str) -> int | None:
    if text.isascii() and text.isdigit() and len(text) <= 11:
        return int(text)
    try:
        # Python parses the `Z` of UTC only from 3.11 on.
        moment = datetime.fromisoformat(f"{text[:-1]}+00:00" if text.endswith("Z") else text)
    except ValueError:
        return None
    unix_s = -1 if moment.tzinfo is None else int(moment.timestamp())
    return unix_s if unix_s >= 0 else None


def _iso(time_s: int) -> str:
    return datetime.fromtimestamp(time_s, timezone.utc).isoformat()
