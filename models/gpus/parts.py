"""Which part of a GPU a job could do with, and how much longer it would run there at most. Pure.

MIG cuts a GPU into instances of fixed sizes, each with its own processors and memory (NVIDIA Multi-Instance GPU User
Guide, "Supported MIG Profiles"): in units of a seventh of the processors and an eighth of the memory, or of a quarter
of both. Slurm's shards are parts by count alone: the jobs on one GPU take turns, and nothing keeps them from each
other's memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

MIB_A_GIB = 1024
# The share of an instance's named memory that is left for programs is 0.91 (H200) to 0.95 (A100). The same is assumed
# of a whole GPU, of which each job's context takes some.
USABLE = 0.9


class Sizes(NamedTuple):
    """Into how many parts MIG cuts processors and memory, and its instances, as numbers of both parts."""

    processors: int
    memory: int
    instances: tuple[tuple[int, int], ...]


# By the largest number of instances.
MIG = {
    7: Sizes(7, 8, ((1, 1), (1, 2), (2, 2), (3, 4), (4, 4))),
    4: Sizes(4, 4, ((1, 1), (2, 2))),
}


class Part(NamedTuple):
    """A part of a GPU: the memory (MiB) that a job has there, and the share of a GPU that it takes from others (0..1).

    `speed` (0..1) is the least share that the job has there of the GPU's processors and of its memory bandwidth.
    """

    name: str
    mem_mib: float
    share: float
    speed: float


def mig_instances(gpu_mem_gib: float, most: int) -> list[Part]:
    """Return the instances of a GPU with this much memory, as in its name; named like the profiles (`1g.10gb`).

    `most` is a key of MIG.
    """
    sizes = MIG[most]
    return [
        Part(
            name=f"{processors}g.{_rounded(gpu_mem_gib * memory / sizes.memory)}gb",
            mem_mib=gpu_mem_gib * memory / sizes.memory * MIB_A_GIB * USABLE,
            share=max(processors / sizes.processors, memory / sizes.memory),
            speed=min(processors / sizes.processors, memory / sizes.memory),
        )
        for processors, memory in sizes.instances
    ]


def _rounded(gib: float) -> int:
    return math.floor(gib + 0.5)


def shards(gpu_mem_gib: float, count: int) -> list[Part]:
    """Return the parts from one shard of a GPU (`shard:1`) to all but one, next to one-shard jobs that never rest.

    All jobs that compute take turns of equal length, however many shards each holds.
    """
    return [
        Part(
            name=f"shard:{held}",
            mem_mib=gpu_mem_gib * held / count * MIB_A_GIB * USABLE,
            share=held / count,
            speed=1 / (count - held + 1),
        )
        for held in range(1, count)
    ]


def times_at_most(busy: float, speed: float) -> float:
    """Return how many times as long a job that keeps a GPU `busy` runs at most with `speed` of it (both 0..1).

    Its work on the GPU takes 1 / speed as long if it can use all of one, less if it cannot; the rest takes as long as
    before.
    """
    return 1.0 + busy * (1.0 / speed - 1.0)


def least_part(parts: Iterable[Part], mem_mib: float, busy: float, most_times: float) -> Part | None:
    """Return the part in which a job takes least of a GPU's time, among those with enough memory and speed.

    None if there is none, or if all of them take as much as the whole GPU does.
    """
    enough = {
        part: part.share * times
        for part in parts
        if part.mem_mib >= mem_mib and (times := times_at_most(busy, part.speed)) <= most_times
    }
    best = min(enough, key=lambda part: (enough[part], part.share, part.name), default=None)
    return best if best is not None and enough[best] < 1 else None
