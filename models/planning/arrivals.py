"""Sample what may be submitted soon from what was submitted before, for a plan. Pure and seeded.

Each hour of the horizon gets the submissions of the same hour on one of the last days, drawn at random; days of the
same weekday are more likely to be drawn. So bursts stay bursts, and quiet nights stay quiet. If less than a day of
the past is known, one of the known hours is drawn instead. Decides nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence

import msgspec
import numpy

from models.planning.problem import Coming
from models.scheduling.room import Floats

HOUR_S, DAY_S, WEEK_DAYS = 3600.0, 86_400.0, 7
LOOKED_BACK_DAYS = 28
# How far ahead a plan sees arrivals: the hundreds of arrivals of a whole day would hide what waits now
# (docs/decisions/0038).
FORESEEN_S = 2 * HOUR_S
# The same day of the week is drawn this many times as often as another day.
SAME_DAY = 3.0
# The most arrivals of a sample. They suffice for any plan, which looks at hundreds of starts.
MOST_COMING = 2_000


def drawn_arrivals(
    times_s: Sequence[float] | Floats,
    past: Callable[[int, int], Sequence[Coming]],
    now_s: float,
    horizon_s: float,
    samples: int,
    seed: int,
) -> tuple[tuple[Coming, ...], ...]:
    """Return samples of the arrivals within a horizon, each in order of arrival; no samples if no past is known.

    `times_s` are the times of submission, sorted and on the clock of `now_s`; those at `now_s` or later are ignored.
    `past` returns the arrivals from one index in `times_s` up to another, each with its time of submission, and the
    priority that Slurm itself would give it now.
    """
    known = times_s[: bisect_left(times_s, now_s)]
    if not len(known):
        return ()
    draw = numpy.random.default_rng([seed, round(now_s)])
    return tuple(_sample(known, past, now_s, horizon_s, draw) for _ in range(samples))


def _sample(
    times_s: Sequence[float] | Floats,
    past: Callable[[int, int], Sequence[Coming]],
    now_s: float,
    horizon_s: float,
    draw: numpy.random.Generator,
) -> tuple[Coming, ...]:
    found: list[Coming] = []
    for hour in range(math.ceil(horizon_s / HOUR_S)):
        from_s = now_s + hour * HOUR_S
        length_s = min(HOUR_S, horizon_s - hour * HOUR_S)
        back_s = _drawn_back_s(from_s, length_s, float(times_s[0]), now_s, draw)
        first, last = (bisect_left(times_s, at_s - back_s) for at_s in (from_s, from_s + length_s))
        found += [msgspec.structs.replace(one, at_s=one.at_s + back_s - now_s) for one in past(first, last)]
        if len(found) >= MOST_COMING:
            break
    return tuple(found[:MOST_COMING])


def _drawn_back_s(
    from_s: float, length_s: float, first_s: float, now_s: float, draw: numpy.random.Generator
) -> float:
    """Draw how far back (seconds) the hour lies that stands for this one: whole days, or hours if no day is known."""
    nearest = max(1, math.ceil((from_s + length_s - now_s) / DAY_S))
    days = [day for day in range(nearest, LOOKED_BACK_DAYS + 1) if from_s - day * DAY_S >= first_s]
    if days:
        chances = numpy.array([1.0 if day % WEEK_DAYS else SAME_DAY for day in days])
        return float(days[int(draw.choice(len(days), p=chances / chances.sum()))]) * DAY_S
    hours = round((from_s - now_s) / HOUR_S)
    known = max(1, math.floor((now_s - first_s) / HOUR_S))
    return (hours + 1 + int(draw.integers(known))) * HOUR_S
