"""How fast a kind of job runs next to another on one GPU, as a share of its speed alone. Pure state, without a clock.

A second of work alone takes 1 + s_A · d_B seconds next to another job: s_A says how much A suffers, d_B how much B
disturbs. Both are learned from all pairs that were seen, in logs, by ridge regression: a kind that was seen little
stays near the mean of all. So pairs that never ran together are predicted.

    speed of A beside B = (PREDICTION_S · predicted + work done) / (PREDICTION_S + seconds seen)

What is seen moves an estimate with a weight of its seconds, whether from a table measured off line or from what runs
now. Nothing is forgotten. The idea of modelling interference off line and updating it on line is G-Share's (Lin et
al., Computer Engineering & Science 48(3), 2026); the model is ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy

from accounting.errors import ModelError
from models.scheduling.room import Floats, Mask

# A prediction weighs as much as this many seconds of two jobs seen side by side.
PREDICTION_S = 600.0
# The weight of one pair of a table measured off line.
MEASURED_S = 36_000.0
# Each kind's suffering and disturbing are drawn to the mean as strongly as by half a pair seen there.
SHRINKAGE = 0.5
# Bounds of a stretch before its log is taken: below the least, two jobs hardly affect each other, and how little says
# nothing about others.
LEAST_STRETCH, MOST_STRETCH = 0.02, 50.0
# The error that predictions are assumed to have before anything is seen, in logs of the stretch; it weighs this many
# pairs.
FIRST_SPREAD, FIRST_PAIRS = 0.5, 4.0
# Deviations of a normal distribution that contain eight of ten values.
WITHIN = 1.2816


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """How fast a kind ran next to another, as a share of its speed alone, and for how long; 0: both did not fit."""

    kind: str
    beside: str
    speed: float
    seconds: float = MEASURED_S


def cramped(mem_mib: Mapping[str, float], gpu_mem_mib: float) -> list[Pair]:
    """Return the pairs of kinds that together need more memory than a GPU has; `mem_mib` is what each kind needs."""
    return [
        Pair(kind=kind, beside=beside, speed=0.0, seconds=0.0)
        for kind in mem_mib
        for beside in mem_mib
        if mem_mib[kind] + mem_mib[beside] > gpu_mem_mib
    ]


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """The expected speed of a kind next to another (1: as alone; 0: they do not fit); in low..high with 80 %.

    `seconds` is how long the two were seen side by side; 0: the speed is a prediction.
    """

    speed: float
    low: float
    high: float
    seconds: float


class Interference:
    """What is known of how kinds of jobs disturb each other."""

    def __init__(self, kinds: Sequence[str], pairs: Iterable[Pair] = ()) -> None:
        self.kinds = tuple(kinds)
        self._number = {kind: number for number, kind in enumerate(self.kinds)}
        if len(self._number) < len(self.kinds):
            raise ModelError("a kind of job is listed twice; list each kind once")
        size = len(self.kinds)
        self._seconds = numpy.zeros((size, size))
        self._work_s = numpy.zeros((size, size))
        self._fits = numpy.ones((size, size), dtype=numpy.bool_)
        self._speeds: Floats | None = None
        self._spread: Floats = numpy.zeros((size, size))
        for pair in pairs:
            self.learn(pair)

    def learn(self, pair: Pair) -> None:
        """Learn what was seen of a kind next to another."""
        if not (pair.speed >= 0 and 0 <= pair.seconds < numpy.inf):
            raise ModelError(
                f"{pair.kind} beside {pair.beside}: speed {pair.speed:g} for {pair.seconds:g} s is not "
                "valid; both must be 0 or more, and the speed is a share of the speed alone"
            )
        one, other = self.number(pair.kind), self.number(pair.beside)
        if pair.speed == 0:
            self._fits[one, other] = self._fits[other, one] = False
        self._seconds[one, other] += pair.seconds
        self._work_s[one, other] += pair.seconds * min(pair.speed, 1.0)
        self._speeds = None

    def number(self, kind: str) -> int:
        """Return the position of a kind in what `speeds` and `fits` return."""
        if kind not in self._number:
            raise ModelError(f"the kind of job {kind!r} is not known; add it to the kinds")
        return self._number[kind]

    @property
    def fits(self) -> Mask:
        """Which kinds fit next to each other, as far as is known."""
        return self._fits

    @property
    def speeds(self) -> Floats:
        """Return the expected speed of each kind (row) next to each (column); 0 if they do not fit."""
        if self._speeds is None:
            stretch, self._spread = _fitted(self._seconds, self._work_s, self._fits)
            seen = PREDICTION_S + self._seconds
            mean = (PREDICTION_S / (1 + stretch) + self._work_s) / seen
            self._spread = self._spread * numpy.sqrt(PREDICTION_S / seen)
            self._speeds = numpy.where(self._fits, mean, 0.0)
        return self._speeds

    def hoped(self, spreads: float) -> Floats:
        """Return speeds better than expected by this many standard deviations; 0 if kinds do not fit."""
        expected = numpy.maximum(self.speeds, 1 / (1 + MOST_STRETCH))
        stretch = (1 / expected - 1) / numpy.exp(spreads * self._spread)
        return numpy.where(self._fits, 1 / (1 + stretch), 0.0)

    def estimate(self, kind: str, beside: str) -> Estimate:
        """Return what is expected of a kind next to another, and how certain that is."""
        at = self.number(kind), self.number(beside)
        speed, seconds = float(self.speeds[at]), float(self._seconds[at])
        if not self._fits[at]:
            return Estimate(speed=0.0, low=0.0, high=0.0, seconds=seconds)
        stretch = max(1 / speed - 1, LEAST_STRETCH)
        factor = float(numpy.exp(WITHIN * self._spread[at]))
        return Estimate(
            speed=speed,
            low=min(speed, 1 / (1 + stretch * factor)),
            high=max(speed, 1 / (1 + stretch / factor)),
            seconds=seconds,
        )


def _fitted(seconds: Floats, work_s: Floats, fits: Mask) -> tuple[Floats, Floats]:
    """Return the predicted stretch of each pair, and by how much its log may be off."""
    size = len(seconds)
    weight = numpy.where(fits, seconds / (seconds + PREDICTION_S), 0.0)
    speed = numpy.divide(work_s, seconds, out=numpy.ones_like(seconds), where=seconds > 0)
    speed = numpy.clip(speed, 1 / (1 + MOST_STRETCH), 1 / (1 + LEAST_STRETCH))
    log = numpy.log(1 / speed - 1)
    suffers, disturbs = weight.sum(axis=1), weight.sum(axis=0)
    # The mean and each kind's two parts at once: the normal equations of the ridge regression.
    left = numpy.zeros((1 + 2 * size, 1 + 2 * size))
    left[0, 0] = max(weight.sum(), 1e-9)
    left[0, 1 : size + 1] = left[1 : size + 1, 0] = suffers
    left[0, size + 1 :] = left[size + 1 :, 0] = disturbs
    left[1 : size + 1, 1 : size + 1] = numpy.diag(suffers + SHRINKAGE)
    left[size + 1 :, size + 1 :] = numpy.diag(disturbs + SHRINKAGE)
    left[1 : size + 1, size + 1 :] = weight
    left[size + 1 :, 1 : size + 1] = weight.T
    told = weight * log
    solved = numpy.linalg.solve(left, numpy.concatenate([[told.sum()], told.sum(axis=1), told.sum(axis=0)]))
    predicted = solved[0] + solved[1 : size + 1, None] + solved[None, size + 1 :]
    used = (suffers / (suffers + SHRINKAGE)).sum() + (disturbs / (disturbs + SHRINKAGE)).sum()
    off = FIRST_PAIRS * FIRST_SPREAD**2 + (weight * (log - predicted) ** 2).sum()
    variance = off / (FIRST_PAIRS + max(weight.sum() - used, 0.0))
    of_kinds = 1 / (suffers + SHRINKAGE)[:, None] + 1 / (disturbs + SHRINKAGE)[None, :]
    return numpy.exp(predicted), numpy.sqrt(variance * (1 + of_kinds))
