"""Which GPUs an attempt really used, from whatever metered them. Pure.

Two sources are possible: a meter next to the job (`rightsizer collect`, gpu_use) and Slurm itself (gres/gpuutil and
gres/gpumem of the steps). The meter wins if it saw anything of the attempt, because it distinguishes GPUs. Slurm
adds up a task's GPUs: of several, it is unknown whether one was busy or all a little. So Slurm's figure counts only
if there is nothing to distinguish: one busy GPU, all of them idle, or as much use as only all of them together can
have. A GPU of which only memory is used says nothing: that is also what is seen under MPS, whose server appears to
do its clients' work, and on MIG.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from accounting.frames import Floats
from accounting.gpu_spool.samples import merge_uses
from accounting.records import GpuUse, Quality

# A GPU counts as used from this utilisation on. A context that was opened and never used shows 0 or 1 % (an H100).
# It is better that some of those count as used than that a lightly used GPU counts as idle.
BUSY_GPU_PCT = 1.0
# How much of a run may be unseen: a meter finds a job only at its next look, and may have been restarted.
MISSED_S, MISSED_SHARE = 90, 0.2
SLURM = "slurm"


class GpuLabel(msgspec.Struct, frozen=True, kw_only=True):
    """The GPU figures of Use: `gpus` were ever busy, `gpu_mem_mib` is the most used on any one of them."""

    gpus: int
    gpu_mem_mib: float
    quality: Quality
    source: str


@dataclass(frozen=True)
class RecordedGpus:
    """Slurm's own figures of attempts' GPUs; NaN where they say nothing."""

    gpus: Floats
    gpu_mem_mib: Floats


def metered_gpus(gpu_use: Sequence[GpuUse], nodes: int, start_s: int, end_s: int) -> GpuLabel:
    """Return what meters saw during an attempt on `nodes` nodes; `gpu_use` must not be empty.

    For nodes that were not watched, or not for the whole time (unix seconds), it is unknown whether their GPUs were
    busy: the figures are then a lower bound.
    """
    # Joins what was ingested piece by piece. A GPU still comes more than once if its meter paused, or if two watch it.
    uses = merge_uses(gpu_use)
    busy = {(use.node, use.gpu, use.instance) for use in uses if _was_busy(use)}
    seen_often = any(use.samples > 1 for use in uses)
    on_all = len(_watched(uses, start_s, end_s)) >= nodes
    return GpuLabel(
        gpus=len(busy),
        gpu_mem_mib=max(use.mem_max_mib for use in uses),
        quality="short" if not seen_often else "sampled" if on_all else "censored",
        source="+".join(sorted({use.source for use in uses})),
    )


def _watched(uses: Sequence[GpuUse], start_s: int, end_s: int) -> set[str]:
    """Return the nodes watched all the time, except for what a meter may miss, by the best-watched GPU of each."""
    seen_s = Counter[tuple[str, int, int, str]]()
    for use in uses:
        within_s = min(use.last_s, end_s) - max(use.first_s, start_s)
        seen_s[use.node, use.gpu, use.instance, use.source] += within_s
    enough_s = end_s - start_s - max(MISSED_S, MISSED_SHARE * (end_s - start_s))
    return {node for (node, *_), of_gpu_s in seen_s.items() if of_gpu_s >= enough_s}


def _was_busy(use: GpuUse) -> bool:
    if use.util_max_pct is None:
        # NVML has none for MIG instances or MPS's clients: a process that holds memory counts as using the GPU.
        return use.mem_max_mib > 0.0
    return use.util_max_pct >= BUSY_GPU_PCT


def recorded_gpus(allocated: Floats, util_pct: Floats, mem_mib: Floats) -> RecordedGpus:
    """Return what Slurm recorded: the GPUs allocated, and the highest figures of any of an attempt's steps."""
    told = (allocated > 0) & ~np.isnan(util_pct)
    busy = util_pct >= BUSY_GPU_PCT
    idle = told & ~busy & (mem_mib == 0)
    every = told & busy & (np.ceil(util_pct / 100) >= allocated)
    none, nothing = np.full(len(allocated), np.nan), np.zeros(len(allocated))
    return RecordedGpus(
        gpus=np.select([idle, every], [nothing, allocated], none),
        gpu_mem_mib=np.select([idle, told & (allocated == 1)], [nothing, mem_mib], none),
    )
