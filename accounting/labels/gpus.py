"""Which GPUs an attempt really used, from whoever saw them. Pure.

Two may have: a meter beside the job (`rightsizer collect`, gpu_use) and Slurm itself (gres/gpuutil and gres/gpumem of
the steps). The meter wins wherever it saw anything of the attempt, because it tells one GPU from another. Slurm adds up
a task's GPUs: of several it cannot be said whether one was busy or all a little, so its word counts only where there
is nothing to tell apart: one busy GPU, all of them idle, or as much use as only all of them together can have. A
GPU whose memory alone is used says nothing: so it looks under MPS, whose server is seen to do its clients' work, and on
MIG.
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

# A GPU counts as used from this utilisation on. A context that was opened and never used shows 0 or 1 % (an H100):
# rather some of those count as used than a GPU as idle of which little was asked.
BUSY_GPU_PCT = 1.0
# So much of a run may have passed unseen: a meter finds a job at its next look, and may have been started again.
MISSED_S, MISSED_SHARE = 90, 0.2
SLURM = "slurm"


class GpuLabel(msgspec.Struct, frozen=True, kw_only=True):
    """The GPU figures of Use: `gpus` were ever busy, `gpu_mem_mib` is the most that was used of any one of them."""

    gpus: int
    gpu_mem_mib: float
    quality: Quality
    source: str


@dataclass(frozen=True)
class RecordedGpus:
    """What Slurm's own figures say of attempts' GPUs; NaN where they say nothing."""

    gpus: Floats
    gpu_mem_mib: Floats


def metered_gpus(gpu_use: Sequence[GpuUse], nodes: int, start_s: int, end_s: int) -> GpuLabel:
    """Return what meters saw during an attempt on so many nodes; they must have seen something.

    Of nodes that nobody watched, or not for all of its time (unix seconds), it is not known whether their GPUs were
    busy: what was seen is a lower bound then.
    """
    # What was ingested piece by piece is one again. A GPU comes more than once where its meter paused, or two watch it.
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
    """Return the nodes that a meter watched all the time, but for what it may miss; the best of their GPUs tells."""
    seen_s = Counter[tuple[str, int, int, str]]()
    for use in uses:
        within_s = min(use.last_s, end_s) - max(use.first_s, start_s)
        seen_s[use.node, use.gpu, use.instance, use.source] += within_s
    enough_s = end_s - start_s - max(MISSED_S, MISSED_SHARE * (end_s - start_s))
    return {node for (node, *_), of_gpu_s in seen_s.items() if of_gpu_s >= enough_s}


def _was_busy(use: GpuUse) -> bool:
    if use.util_max_pct is None:
        # NVML has none of a MIG instance, nor of MPS's clients: a process that holds memory is taken as using it.
        return use.mem_max_mib > 0.0
    return use.util_max_pct >= BUSY_GPU_PCT


def recorded_gpus(allocated: Floats, util_pct: Floats, mem_mib: Floats) -> RecordedGpus:
    """Return what Slurm recorded: the GPUs it gave, and the highest figures of any of an attempt's steps."""
    told = (allocated > 0) & ~np.isnan(util_pct)
    busy = util_pct >= BUSY_GPU_PCT
    idle = told & ~busy & (mem_mib == 0)
    every = told & busy & (np.ceil(util_pct / 100) >= allocated)
    none, nothing = np.full(len(allocated), np.nan), np.zeros(len(allocated))
    return RecordedGpus(
        gpus=np.select([idle, every], [nothing, allocated], none),
        gpu_mem_mib=np.select([idle, told & (allocated == 1)], [nothing, mem_mib], none),
    )
