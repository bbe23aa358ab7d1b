"""Which GPUs an attempt really used, from whoever saw them. Pure.

Two may have: a meter beside the job (`rightsizer collect`, gpu_use) and Slurm itself (gres/gpuutil and gres/gpumem of
the steps). The meter wins wherever it saw anything of the attempt, because it tells one GPU from another. Slurm adds up
a task's GPUs: of several it cannot be said whether one was busy or all a little, so its word counts only where there
is nothing to tell apart: one GPU, all of them idle, or as much use as only all of them together can have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from accounting.records import GpuUse, Quality, Step

# A GPU counts as used from this utilisation on. A context that was opened and never used stays below it.
BUSY_GPU_PCT = 1.0
SLURM = "slurm"


class GpuLabel(msgspec.Struct, frozen=True, kw_only=True):
    """The GPU figures of Use: `gpus` were ever busy, `gpu_mem_mib` is the most that was used of any one of them."""

    gpus: int | None = None
    gpu_mem_mib: float | None = None
    quality: Quality = "absent"
    source: str = ""


def gpu_label(alloc_gpus: int | None, steps: Sequence[Step], gpu_use: Sequence[GpuUse]) -> GpuLabel:
    """Return what an attempt used of the GPUs it was allocated; `gpu_use` is what meters saw during it."""
    if gpu_use:
        return _metered(gpu_use)
    return _recorded(alloc_gpus or 0, steps)


def _metered(gpu_use: Sequence[GpuUse]) -> GpuLabel:
    # A GPU comes more than once where its meter paused, or where two meters watch it.
    busy = {(use.node, use.gpu, use.instance) for use in gpu_use if _was_busy(use)}
    seen_often = any(use.samples > 1 for use in gpu_use)
    return GpuLabel(
        gpus=len(busy),
        gpu_mem_mib=max(use.mem_max_mib for use in gpu_use),
        quality="sampled" if seen_often else "short",
        source="+".join(sorted({use.source for use in gpu_use})),
    )


def _was_busy(use: GpuUse) -> bool:
    if use.util_max_pct is None:
        # NVML has no utilisation of a MIG instance: a process that holds its memory is taken as using it.
        return use.mem_max_mib > 0.0
    return use.util_max_pct >= BUSY_GPU_PCT


def _recorded(allocated: int, steps: Sequence[Step]) -> GpuLabel:
    util_pct = max((step.gpu_util_pct for step in steps if step.gpu_util_pct is not None), default=None)
    mem_mib = max((step.gpu_mem_mib for step in steps if step.gpu_mem_mib is not None), default=None)
    if not allocated or util_pct is None:
        return GpuLabel()
    if util_pct < BUSY_GPU_PCT and not mem_mib:
        return GpuLabel(gpus=0, gpu_mem_mib=0.0, quality="sampled", source=SLURM)
    if allocated == 1:
        busy = int(util_pct >= BUSY_GPU_PCT)
        return GpuLabel(gpus=busy, gpu_mem_mib=mem_mib, quality="sampled", source=SLURM)
    if math.ceil(util_pct / 100) >= allocated:
        return GpuLabel(gpus=allocated, quality="sampled", source=SLURM)
    return GpuLabel()
