"""Reads a spool of GPU samples, trusting only files of the current user."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from accounting.gpu_spool.files import Owners, SpoolPart, read_spool_on
from accounting.gpu_spool.samples import merge_uses
from accounting.records import GpuUse, Quarantined

OURSELVES = Owners(frozenset({0, os.geteuid()}), lambda _uid, uses: [False] * len(uses))


def read_on(folder: Path, offsets: Mapping[str, int], now_s: int, cluster: str = "") -> Iterator[SpoolPart]:
    """Yield what is new in the spool, part by part."""
    return read_spool_on(folder, offsets, now_s, cluster, OURSELVES)


def read_spool(folder: Path) -> tuple[list[GpuUse], list[Quarantined]]:
    """Return the GPU use in all files of the spool, from their beginning; empty if there is no spool."""
    parts = list(read_on(folder, {}, int(time.time())))
    uses = merge_uses(use for part in parts for use in part.uses)
    return uses, [line for part in parts for line in part.quarantined]
