"""The figures of a benchmark, and how far they meet the goals of the submission path. Pure."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field

from bench.controller import EMPTY, OURS

MOST_SUBMITTERS = 8
GAP_S = 0.1
ABSENT, HUNG = "ours, service absent", "ours, service hung"

P50_MS, P99_MS = 0.5, 2.0
# 250 jobs/s where an empty hook gives 725.
RATE_SHARE = 250 / 725
OPEN_SHARE = 0.9
HUNG_MS_IN_30_S = 75.0


@dataclass(frozen=True)
class Cell:
    """One way of loading slurmctld: a hook, a queue, so many submitters, with or without pauses."""

    hook: str
    queued: int
    submitters: int
    gap_s: float

    def beside(self, hook: str) -> Cell:
        """Return the same cell of another hook."""
        return Cell(hook, self.queued, self.submitters, self.gap_s)

    @property
    def load(self) -> str:
        """The cell without its hook, in words."""
        pauses = f"{self.gap_s * 1000:.0f} ms gaps" if self.gap_s else "hot"
        return f"{self.queued:,} queued, {self.submitters} submitter{'s' * (self.submitters > 1)}, {pauses}"


@dataclass
class Figures:
    """What was measured in a cell, all rounds together."""

    latencies_s: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    rpcs: int = 0
    rpc_us: int = 0

    @property
    def rate(self) -> float:
        """Jobs per second, the median of the rounds."""
        return statistics.median(self.rates)

    @property
    def mean_rpc_us(self) -> float:
        """Return slurmctld's own mean time for a submission."""
        return self.rpc_us / max(1, self.rpcs)

    def percentile_ms(self, share: float) -> float:
        """Return a percentile of what submitters saw, by nearest rank."""
        ordered = sorted(self.latencies_s)
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)] * 1000


Results = dict[Cell, Figures]


def rows(results: Results) -> list[dict[str, object]]:
    """Return a row a cell, ratios against the empty Lua hook under the same load first."""
    table = []
    for cell, figures in sorted(
        results.items(), key=lambda item: (item[0].queued, item[0].submitters, item[0].gap_s)
    ):
        empty = results[cell.beside(EMPTY)]
        table.append(
            {
                "load": cell.load,
                "hook": cell.hook,
                "rate / empty": round(figures.rate / empty.rate, 3),
                "p50 / empty": round(figures.percentile_ms(0.5) / empty.percentile_ms(0.5), 2),
                "p50 − empty (ms)": round(figures.percentile_ms(0.5) - empty.percentile_ms(0.5), 3),
                "p99 − empty (ms)": round(figures.percentile_ms(0.99) - empty.percentile_ms(0.99), 3),
                "jobs/s": round(figures.rate, 1),
                "p50 (ms)": round(figures.percentile_ms(0.5), 3),
                "p99 (ms)": round(figures.percentile_ms(0.99), 3),
                "slurmctld's mean (µs)": round(figures.mean_rpc_us),
                "n": len(figures.latencies_s),
            }
        )
    return table


def goals(results: Results, hung_us_per_s: float) -> list[dict[str, object]]:
    """Return a row a goal; `hung_us_per_s` is what a hung service adds to slurmctld's time for submissions."""
    table = []
    for cell in results:
        if cell.hook == OURS and cell.submitters == 1:
            ours, empty = results[cell], results[cell.beside(EMPTY)]
            for name, share, wanted in (("p50", 0.5, P50_MS), ("p99", 0.99, P99_MS)):
                added = ours.percentile_ms(share) - empty.percentile_ms(share)
                table.append(goal(f"{name} added (ms)", cell.load, added, wanted, at_most=True))
    for hook, wanted in ((OURS, RATE_SHARE), (ABSENT, OPEN_SHARE), (HUNG, OPEN_SHARE)):
        for cell in results:
            if cell == Cell(hook, cell.queued, MOST_SUBMITTERS, 0.0):
                share = results[cell].rate / results[cell.beside(EMPTY)].rate
                table.append(
                    goal("rate / empty Lua hook", f"{cell.load}, {hook}", share, wanted, at_most=False)
                )
    hung_ms = hung_us_per_s * 30 / 1000
    table.append(goal("lock time in 30 s (ms)", HUNG, hung_ms, HUNG_MS_IN_30_S, at_most=True))
    return table


def goal(name: str, where: str, measured: float, wanted: float, *, at_most: bool) -> dict[str, object]:
    """Return the row of one goal."""
    met = measured <= wanted if at_most else measured >= wanted
    return {
        "goal": name,
        "where": where,
        "wanted": f"{'≤' if at_most else '≥'} {wanted:.3g}",
        "measured": round(measured, 3),
        "met": "yes" if met else "no",
    }
