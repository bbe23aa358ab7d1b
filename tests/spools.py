"""A spool of GPU samples, read whole."""

from __future__ import annotations

from pathlib import Path

from accounting.gpu_spool.files import read_spool_on
from accounting.gpu_spool.samples import merge_uses
from accounting.records import GpuUse, Quarantined


def read_spool(folder: Path) -> tuple[list[GpuUse], list[Quarantined]]:
    """Return the GPU use in all files of the spool, from their beginning; a spool that does not exist is empty."""
    parts = list(read_spool_on(folder, {}))
    uses = merge_uses(use for part in parts for use in part.uses)
    return uses, [line for part in parts for line in part.quarantined]
