"""Counts of ended jobs, and what they show about a family, a partition or everything. Pure."""

from __future__ import annotations

import msgspec

from models.past.trials import Trial
from models.sequential import ALONE, COMPARED, Wealth, anew, beginning, judged, other


class Counts(msgspec.Struct, frozen=True, array_like=True):
    """Cut jobs, how many of them failed, and how many for want of cut memory; other jobs, and how many failed.

    `memory_whole` of the cut jobs had all the memory that was asked for.
    """

    shrunk: int = 0
    failed: int = 0
    wanted: int = 0
    whole: int = 0
    whole_failed: int = 0
    memory_whole: int = 0

    @property
    def killed_share(self) -> float | None:
        """The share of jobs with less memory that were killed for that; None if there are none."""
        of_memory = self.shrunk - self.memory_whole
        return self.wanted / of_memory if of_memory > 0 else None

    def __add__(self, more: Counts) -> Counts:
        """Add count by count."""
        return Counts(*(getattr(self, name) + getattr(more, name) for name in self.__struct_fields__))


def counts_of(trial: Trial) -> Counts:
    """Return one run as counts."""
    if not trial.shrunk:
        return Counts(whole=1, whole_failed=int(trial.failed))
    return Counts(
        shrunk=1,
        failed=int(trial.failed),
        wanted=int(trial.wanted == "out_of_memory"),
        memory_whole=int(trial.memory_whole),
    )


class Tally(msgspec.Struct, frozen=True, array_like=True):
    """What is known of one family, partition, or everything.

    `kills` is the evidence that more of the cut jobs than the bound are killed for memory that was taken from them,
    whatever becomes of others; `fails` that they fail more often than the others, by more than the bound.
    """

    counts: Counts = Counts()
    kills: Wealth = beginning(ALONE)
    fails: Wealth = beginning(COMPARED)


def added(tally: Tally, counts: Counts, bound: float) -> Tally:
    """Return a tally with one more outcome on each side that has jobs: the shares in these counts."""
    kills, fails = tally.kills, tally.fails
    if counts.killed_share is not None:
        kills = judged(kills, ALONE, counts.killed_share, bound)
    if counts.shrunk:
        fails = judged(fails, COMPARED, counts.failed / counts.shrunk, bound)
    if counts.whole:
        fails = other(fails, COMPARED, counts.whole_failed / counts.whole)
    return Tally(counts=tally.counts + counts, kills=kills, fails=fails)


def begun_anew(tally: Tally) -> Tally:
    """Return a tally that knows nothing of cut jobs."""
    others = Counts(whole=tally.counts.whole, whole_failed=tally.counts.whole_failed)
    return msgspec.structs.replace(tally, counts=others, kills=anew(tally.kills), fails=anew(tally.fails))
