"""How far the latest jobs differ from those before, and how well the growth models still cover them. Pure.

The figure for a feature is the population stability index over tenths of the earlier values. So few jobs move it by
chance alone: what chance gives, (bins - 1)·(1/n + 1/m), stands beside it and is taken off before it is put in words
(Yurdakul and Naranjo 2020). Calibration is counted by week, on jobs that the model was not fitted to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
import numpy
import numpy.typing as npt

from models.chance import at_least

Word = Literal["stable", "shifted", "drifted", "too few to tell"]
SHIFTED, DRIFTED = 0.1, 0.25
# Of calibration: as improbable by chance.
SHIFTED_CHANCE, DRIFTED_CHANCE = 0.05, 0.001
WEEK_S = 7 * 86400
BINS = 10
# With fewer rows on either side a tenth holds too few.
LEAST_ROWS = 100
# The latest share, where what is known spans less than two weeks.
LATEST_SHARE = 0.2

Floats = npt.NDArray[numpy.float64]


class FeatureDrift(msgspec.Struct, frozen=True, kw_only=True):
    """One feature: its index, what chance gives it, on how many rows before and latest, in a word."""

    feature: str
    psi: float
    by_chance: float
    before: int
    latest: int
    word: Word


class WeekCalibration(msgspec.Struct, frozen=True, kw_only=True):
    """One week of jobs from `from_s` on: how many used more than the model allowed, where `nominal` of them may."""

    from_s: int
    jobs: int
    exceeded: int
    nominal: float
    word: Word

    @property
    def error(self) -> float:
        """The share that exceeded, less the nominal one."""
        return self.exceeded / self.jobs - self.nominal


def latest_from(submit_s: Sequence[int]) -> int:
    """Return from when on jobs are the latest: the last week, or the last fifth where all is less than two weeks."""
    ordered = sorted(submit_s)
    if ordered[-1] - ordered[0] >= 2 * WEEK_S:
        return ordered[-1] - WEEK_S
    return ordered[min(len(ordered) - 1, int(len(ordered) * (1 - LATEST_SHARE)))]


def feature_drift(
    names: Sequence[str], inputs: Sequence[Sequence[float]], submit_s: Sequence[int]
) -> tuple[FeatureDrift, ...]:
    """Compare the latest rows with those before, feature by feature, the most drifted first; rows may hold NaN."""
    if not submit_s:
        return ()
    table = numpy.asarray(inputs, dtype=numpy.float64)
    is_latest = numpy.asarray(submit_s) >= latest_from(submit_s)
    found = (
        _drift_of(name, table[~is_latest, column], table[is_latest, column])
        for column, name in enumerate(names)
    )
    return tuple(sorted(found, key=lambda one: (one.word == "too few to tell", one.by_chance - one.psi)))


def _drift_of(name: str, before: Floats, latest: Floats) -> FeatureDrift:
    psi, bins = stability(before, latest)
    few = min(len(before), len(latest))
    by_chance = (bins - 1) * (1 / len(before) + 1 / len(latest)) if few else 0.0
    return FeatureDrift(
        feature=name,
        psi=psi,
        by_chance=by_chance,
        before=len(before),
        latest=len(latest),
        word="too few to tell" if few < LEAST_ROWS else in_words(psi - by_chance),
    )


def in_words(psi: float) -> Word:
    """Return an index in a word: stable < 0.1 < shifted < 0.25 < drifted."""
    if psi < SHIFTED:
        return "stable"
    return "shifted" if psi < DRIFTED else "drifted"


def stability(before: Floats, latest: Floats) -> tuple[float, int]:
    """Return the population stability index and the number of bins that hold anything; 0 where a side is empty.

    NaN is a bin of its own. A value that many rows share is one too, so that constants and counts need no care.
    """
    if not len(before) or not len(latest):
        return 0.0, 1
    known = before[~numpy.isnan(before)]
    edges = numpy.unique(numpy.quantile(known, numpy.linspace(0, 1, BINS + 1)[1:-1])) if len(known) else known
    codes = 2 * len(edges) + 2
    first, second = (numpy.bincount(_codes(side, edges), minlength=codes) for side in (before, latest))
    held = (first + second) > 0
    bins = int(held.sum())
    # Half a row in every bin: an empty one is rare, not impossible.
    shares = [(side[held] + 0.5) / (side.sum() + 0.5 * bins) for side in (first, second)]
    return float(((shares[1] - shares[0]) * numpy.log(shares[1] / shares[0])).sum()), bins


def _codes(values: Floats, edges: Floats) -> npt.NDArray[numpy.int64]:
    """Return the bin of each value: below, on or above each edge; the last one is NaN's."""
    places = numpy.searchsorted(edges, values, "left") + numpy.searchsorted(edges, values, "right")
    return numpy.where(numpy.isnan(values), 2 * len(edges) + 1, places)


def calibration_by_week(
    excess: Sequence[float], submit_s: Sequence[int], offset: float, nominal: float
) -> tuple[WeekCalibration, ...]:
    """Count by week the jobs whose growth exceeded what a model expected by more than `offset`.

    `excess` is the log growth over the expected one, of jobs the model was not fitted to; `nominal` the share that may.
    """
    weeks: dict[int, list[float]] = {}
    first = min(submit_s, default=0)
    for value, at_s in zip(excess, submit_s, strict=True):
        weeks.setdefault(first + (at_s - first) // WEEK_S * WEEK_S, []).append(value)
    return tuple(_week(from_s, values, offset, nominal) for from_s, values in sorted(weeks.items()))


def _week(from_s: int, excess: Sequence[float], offset: float, nominal: float) -> WeekCalibration:
    exceeded = sum(value > offset for value in excess)
    chance = at_least(exceeded, len(excess), nominal)
    word: Word = "too few to tell" if len(excess) < LEAST_ROWS else "stable"
    if chance < SHIFTED_CHANCE:
        word = "drifted" if chance < DRIFTED_CHANCE else "shifted"
    return WeekCalibration(from_s=from_s, jobs=len(excess), exceeded=exceeded, nominal=nominal, word=word)


def has_drifted(found: Iterable[FeatureDrift | WeekCalibration]) -> bool:
    """Whether anything is called drifted."""
    return any(one.word == "drifted" for one in found)
