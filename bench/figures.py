"""The figures of a benchmark, and whether they meet the goals of the submission path. Pure."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from typing import Literal

from bench.controller import EMPTY, OURS

MOST_SUBMITTERS = 8
GAP_S = 0.1
RUNNING, ABSENT, HUNG = "running", "absent", "hung"
Jobs = Literal["new", "alike", "repeated"]

P50_MS, P99_MS = 0.5, 2.0
# 250 jobs/s where an empty hook reaches 725.
RATE_SHARE = 250 / 725
OPEN_SHARE = 0.9
HUNG_MS_IN_30_S = 75.0


@dataclass(frozen=True)
class Cell:
    """One way of loading slurmctld: a number of submitters, with or without pauses, on top of a queue.

    New jobs all ask for a different amount, alike ones differ only in their limit, repeated ones are a few jobs
    over and over. `service` is the state of the service that our hook asks.
    """

    queued: int
    submitters: int
    gap_s: float
    jobs: Jobs = "new"
    service: str = RUNNING

    @property
    def words(self) -> str:
        """A description for people."""
        pauses = f"{self.gap_s * 1000:.0f} ms gaps" if self.gap_s else "hot"
        plural = "s" * (self.submitters > 1)
        told = f"{self.queued:,} queued, {self.submitters} submitter{plural}, {pauses}, {self.jobs} jobs"
        return told if self.service == RUNNING else f"{told}, service {self.service}"


@dataclass
class Figures:
    """Measurements of one hook in one cell, batch by batch; hooks alternate from batch to batch."""

    batches_s: list[tuple[float, ...]] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    rpcs: int = 0
    rpc_us: int = 0

    @property
    def count(self) -> int:
        """The number of submissions measured."""
        return sum(len(batch) for batch in self.batches_s)

    @property
    def rate(self) -> float:
        """Jobs per second, the median of the batches."""
        return statistics.median(self.rates)

    @property
    def mean_rpc_us(self) -> float:
        """Return slurmctld's own mean time for a submission."""
        return self.rpc_us / max(1, self.rpcs)

    def percentile_ms(self, share: float) -> float:
        """Return a percentile of the latencies that submitters saw in all batches together, by nearest rank."""
        ordered = sorted(latency_s for batch in self.batches_s for latency_s in batch)
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)] * 1000


# By cell and hook.
Results = dict[tuple[Cell, str], Figures]


def added_p50_ms(figures: Figures, floor: Figures) -> float:
    """Return what a hook adds to the median latency, as the median over pairs of batches.

    A pair is measured within a second, so that other load on the machine affects both.
    """
    pairs = zip(figures.batches_s, floor.batches_s, strict=True)
    return statistics.median(statistics.median(one) - statistics.median(other) for one, other in pairs) * 1000


def rate_share(figures: Figures, floor: Figures) -> float:
    """Return a hook's rate over the floor's, as the median over pairs of batches."""
    return statistics.median(one / other for one, other in zip(figures.rates, floor.rates, strict=True))


def rows(results: Results) -> list[dict[str, object]]:
    """Return a row for each cell and hook; ratios to the empty Lua hook in the same cell come first."""
    table = []
    for (cell, hook), figures in sorted(results.items(), key=lambda item: _order(item[0][0])):
        empty = results[cell, EMPTY]
        table.append(
            {
                "load": cell.words,
                "hook": hook,
                "rate / empty": round(rate_share(figures, empty), 3),
                "p50 − empty (ms)": round(added_p50_ms(figures, empty), 3),
                "p99 − empty (ms)": round(figures.percentile_ms(0.99) - empty.percentile_ms(0.99), 3),
                "jobs/s": round(figures.rate, 1),
                "p50 (ms)": round(figures.percentile_ms(0.5), 3),
                "p99 (ms)": round(figures.percentile_ms(0.99), 3),
                "slurmctld's mean (µs)": round(figures.mean_rpc_us),
                "n": figures.count,
            }
        )
    return table


def _order(cell: Cell) -> tuple[object, ...]:
    return cell.service != RUNNING, cell.service, cell.queued, cell.submitters, cell.gap_s, cell.jobs


def goals(results: Results, hung_ms: float, hung_s: float) -> list[dict[str, object]]:
    """Return a row per goal; `hung_ms` is what a service that hung for `hung_s` added to slurmctld's own time."""
    table = []
    cells = [cell for cell, hook in results if hook == OURS]
    for cell in cells:
        ours, empty = results[cell, OURS], results[cell, EMPTY]
        if cell.submitters == 1 and cell.service == RUNNING:
            p99_ms = ours.percentile_ms(0.99) - empty.percentile_ms(0.99)
            table.append(goal("p50 added (ms)", cell.words, added_p50_ms(ours, empty), P50_MS, at_most=True))
            table.append(goal("p99 added (ms)", cell.words, p99_ms, P99_MS, at_most=True))
    for cell in cells:
        if cell.submitters > 1 and not cell.gap_s:
            wanted = RATE_SHARE if cell.service == RUNNING else OPEN_SHARE
            share = rate_share(results[cell, OURS], results[cell, EMPTY])
            table.append(goal("rate / empty Lua hook", cell.words, share, wanted, at_most=False))
    in_30_s = hung_ms * 30 / hung_s
    table.append(goal("lock time in 30 s (ms)", "service hung", in_30_s, HUNG_MS_IN_30_S, at_most=True))
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
