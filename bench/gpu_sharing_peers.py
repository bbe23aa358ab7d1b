"""Other ways to share GPUs, or not to, for the benchmark: policies of models/simulation/shared_gpus.py.

Exclusive: first come, first served; shortest first, which knows run times; least attained service, which suspends
in slots (Tiresias). Packing of two, each job as it comes: on the first GPU where it fits, a random one, or the one
that is then least busy by the use of each alone. All know which kinds fit next to each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy

from models.scheduling.room import Floats
from models.simulation.shared_gpus import Seen

Decided = dict[int, int | None]
# Bounds of run time of Tiresias' queues: of twelve tried on other seeds, the best for mean completion time.
QUEUES_S = (3_600.0, 28_800.0)


class Blind:
    """A policy that learns nothing."""

    def saw(self, kind: int, beside: int, seconds: float, speed: float) -> None:
        """Learn nothing."""


class Exclusive(Blind):
    """One job per GPU, in an order; nothing moves."""

    def __init__(self, key: Callable[[int], float] = float) -> None:
        self.key = key

    def decide(self, seen: Seen) -> Decided:
        """Give free GPUs to the first in the order."""
        free = [gpu for gpu, jobs in enumerate(seen.on_gpus) if not jobs]
        return dict(zip(sorted(seen.waiting, key=self.key), free, strict=False))


class LeastAttained(Blind):
    """One job per GPU; in a slot, the jobs that ran least have one, by queues, and within a queue the first to come."""

    def decide(self, seen: Seen) -> Decided:
        """Suspend and start in slots; between slots, give free GPUs to jobs as they come."""
        if not seen.slot:
            return Exclusive().decide(seen)
        place = {job: gpu for gpu, jobs in enumerate(seen.on_gpus) for job in jobs}
        queue = numpy.searchsorted(QUEUES_S, seen.ran_s, side="right")
        ranked = sorted([*place, *seen.waiting], key=lambda job: (queue[job], job))
        chosen = set(ranked[: len(seen.on_gpus)])
        decided: Decided = {job: None for job in place if job not in chosen}
        held = {gpu for job, gpu in place.items() if job in chosen}
        free = [gpu for gpu in range(len(seen.on_gpus)) if gpu not in held]
        return decided | dict(zip(sorted(chosen - place.keys()), free, strict=False))


Choose = Callable[[int, dict[int, int], Sequence[int]], int]


class Packing(Blind):
    """A free GPU, else one with another job, picked by `choose` from the kind, kinds by GPU, and GPUs where it fits."""

    def __init__(self, speed: Floats, choose: Choose) -> None:
        self.fits, self.choose = speed > 0, choose

    def decide(self, seen: Seen) -> Decided:
        """Place jobs in the order of arrival."""
        decided: Decided = {}
        kind = seen.kind
        free = [gpu for gpu, jobs in enumerate(seen.on_gpus) if not jobs]
        alone = {gpu: int(kind[jobs[0]]) for gpu, jobs in enumerate(seen.on_gpus) if len(jobs) == 1}
        for job in seen.waiting:
            if free:
                gpu = free.pop(0)
                alone[gpu] = int(kind[job])
            else:
                where = [gpu for gpu, other in alone.items() if self.fits[kind[job], other]]
                if not where:
                    continue
                gpu = self.choose(int(kind[job]), alone, where)
                del alone[gpu]
            decided[job] = gpu
        return decided


def first_fit(speed: Floats) -> Packing:
    """Pack each job on the first GPU where it fits."""
    return Packing(speed, lambda _kind, _alone, where: min(where))


def random_pairs(speed: Floats, seed: int) -> Packing:
    """Pack each job on a random GPU where it fits."""
    draw = numpy.random.default_rng((seed, 11))
    return Packing(speed, lambda _kind, _alone, where: where[int(draw.integers(len(where)))])


def by_utilisation(speed: Floats, use: Floats) -> Packing:
    """Pack each job next to the one that keeps its GPU least busy."""
    return Packing(speed, partial(_least_busy, use))


def _least_busy(use: Floats, _kind: int, alone: dict[int, int], where: Sequence[int]) -> int:
    return min(where, key=lambda gpu: (use[alone[gpu]], gpu))
