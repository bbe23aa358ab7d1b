"""Compares the advisor's forecasts with what happened, and times when it acted with times when it only watched.

Pure. The effect is that of a switchback experiment: jobs submitted in blocks of time in which the advisor acted are
compared with those of control blocks drawn at random. Because blocks were drawn, not jobs, the bootstrap resamples
blocks. Neighbouring blocks share a queue: the result is the effect of switching the advisor on and off, which may
be smaller than its effect when it stays on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from accounting.frames import Floats, Ints

# Fewer blocks than this of either kind are not enough for a conclusion.
LEAST_BLOCKS = 8
RESAMPLES = 2000
SEED = 1
CONFIDENCE = 0.95

Measure = Callable[[Floats, Floats], Floats]


class Foreseen(msgspec.Struct, frozen=True, kw_only=True):
    """Of jobs that have started since: the order that was planned, what was foreseen and what happened (unix s).

    If the plan was not carried out, the foreseen start is the one without it, and there is no interval (NaN). A job
    that was advised on again has several rows; `job` identifies it.
    """

    job: Sequence[str]
    order: Sequence[str]
    acted: Sequence[bool]
    told_s: Floats
    foreseen_s: Floats
    low_s: Floats
    high_s: Floats
    started_s: Floats


def start_rows(foreseen: Foreseen) -> list[dict[str, object]]:
    """Return how accurately starts were foreseen, in total and by the order chosen; minutes, and shares in per cent."""
    orders, acted = np.array(foreseen.order, dtype=object), np.array(foreseen.acted, dtype=bool)
    if not len(orders):
        return []
    rows = [_start_row("all", "", foreseen, np.ones(len(orders), dtype=bool))]
    for order, did in sorted({(str(order), bool(did)) for order, did in zip(orders, acted, strict=True)}):
        said = "acted" if did else "watched"
        rows.append(_start_row(order, said, foreseen, (orders == order) & (acted == did)))
    return rows


START_HEADING = (
    "order", "advisor", "jobs", "foreseen", "median_error_min", "median_late_min", "with_interval",
    "within_interval_pct",
)  # fmt: skip


def _start_row(order: str, said: str, foreseen: Foreseen, which: np.ndarray) -> dict[str, object]:
    off_s = foreseen.started_s[which] - foreseen.foreseen_s[which]
    bounded = which & np.isfinite(foreseen.low_s)
    started_s = foreseen.started_s[bounded]
    # Slurm records whole seconds. An interval that ends beyond the horizon has no end.
    held = (started_s >= np.floor(foreseen.low_s[bounded])) & (
        ~np.isfinite(foreseen.high_s[bounded]) | (started_s <= foreseen.high_s[bounded])
    )
    return {
        "order": order,
        "advisor": said,
        "jobs": len(set(np.array(foreseen.job, dtype=object)[which])),
        "foreseen": int(which.sum()),
        "median_error_min": round(float(np.median(np.abs(off_s))) / 60, 2),
        "median_late_min": round(float(np.median(off_s)) / 60, 2),
        "with_interval": int(bounded.sum()),
        "within_interval_pct": round(100 * float(held.mean()), 1) if bounded.any() else None,
    }


class Blocks(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs by the block of time in which they were submitted, and whether the advisor acted in it.

    Blocks of two clusters have different numbers, since each was drawn by itself. `begun_in` says whether a job also
    started in its block.
    """

    block: Ints
    acted: Sequence[bool]
    wait_s: Floats
    slowdown: Floats
    begun_in: Sequence[bool]


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """A measure's means where the advisor acted and where it watched; how much better the first is, in per cent.

    The true effect lies between `low_pct` and `high_pct` with 95 %; they are None if there is too little data, as
    `says` explains.
    """

    measure: str
    acted: float | None
    watched: float | None
    better_pct: float | None
    low_pct: float | None
    high_pct: float | None
    acted_blocks: int
    watched_blocks: int
    acted_jobs: int
    watched_jobs: int
    begun_in_block_pct: float | None
    says: str


def effects(blocks: Blocks) -> list[Effect]:
    """Return the effect on the mean wait (minutes) and the mean bounded slowdown."""
    return [
        _effect("mean wait (min)", blocks, blocks.wait_s / 60),
        _effect("mean bounded slowdown", blocks, blocks.slowdown),
    ]


def _effect(name: str, blocks: Blocks, values: Floats) -> Effect:
    acted = np.array(blocks.acted, dtype=bool)
    sums = {arm: _sums(blocks.block[which], values[which]) for arm, which in ((1, acted), (0, ~acted))}
    means = {arm: float(s.sum() / n.sum()) if n.sum() else None for arm, (s, n) in sums.items()}
    counts = {arm: len(n) for arm, (_, n) in sums.items()}
    begun = np.array(blocks.begun_in, dtype=bool)
    better = low = high = None
    watched, did = means[0], means[1]
    if watched and did is not None:
        better = 100 * (1 - did / watched)
    if min(counts.values()) >= LEAST_BLOCKS and watched:
        low, high = _interval(sums[1], sums[0]) or (None, None)
    return Effect(
        measure=name,
        acted=_rounded(did),
        watched=_rounded(watched),
        better_pct=_rounded(better),
        low_pct=_rounded(low),
        high_pct=_rounded(high),
        acted_blocks=counts[1],
        watched_blocks=counts[0],
        acted_jobs=int(acted.sum()),
        watched_jobs=int((~acted).sum()),
        begun_in_block_pct=_rounded(100 * float(begun.mean())) if len(begun) else None,
        says=_says(counts, low, high),
    )


Sums = tuple[Floats, Floats]


def _sums(block: Ints, values: Floats) -> Sums:
    """Return the sum and the number of values in each block."""
    _, place = np.unique(block, return_inverse=True)
    return np.bincount(place, weights=values).astype(np.float64), np.bincount(place).astype(np.float64)


def _interval(acted: Sums, watched: Sums) -> tuple[float, float] | None:
    """Return a confidence interval for the effect, in per cent: percentiles over resampled blocks.

    One block fewer is drawn than there are, since a bootstrap with n draws spreads too little by n / (n - 1). None
    if too many draws have nothing to compare with, for example no job that waited.
    """
    draw = np.random.default_rng(SEED)
    means = []
    for sums, numbers in (acted, watched):
        picked = draw.integers(0, len(sums), size=(RESAMPLES, len(sums) - 1))
        means.append(sums[picked].sum(axis=1) / numbers[picked].sum(axis=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        effect = 100 * (1 - means[0] / means[1])
    known = np.isfinite(effect)
    tail = 50 * (1 - CONFIDENCE)
    # Leaving these draws out would feign certainty: those that remain are the draws in which the advisor was better.
    if 100 * known.mean() < 100 - tail:
        return None
    effect = effect[known]
    low, high = np.percentile(effect, [tail, 100 - tail])
    return float(low), float(high)


def _says(counts: dict[int, int], low: float | None, high: float | None) -> str:
    if min(counts.values()) < LEAST_BLOCKS:
        return (
            f"too few data: {counts[1]} blocks in which the advisor acted and {counts[0]} in which it "
            f"watched; {LEAST_BLOCKS} of each are needed"
        )
    if low is None or high is None:
        return "too few data: hardly any job waited while the advisor watched"
    if low > 0:
        return "better with the advisor"
    return "worse with the advisor" if high < 0 else "no difference can be shown"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
