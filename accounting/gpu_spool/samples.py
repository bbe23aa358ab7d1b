"""Lines of the GPU spool: what meters next to the jobs wrote, one JSON object per line (gpu_spool/files.py).

A line is a window of one GPU for one job (`rightsizer collect` writes it: the fields of GpuUse), or one sample:

    {"job_id":123,"node":"n1","gpu":0,"instance":-1,"source":"nvml","samples":30,"first_s":1700000000,"last_s":1700000029,
     "util_max_pct":97.0,"util_mean_pct":55.1,"mem_max_mib":2000.0,"power_mean_w":350.2}
    {"job_id":"123","node":"n1","time_s":1700000000,"gpu":0,"util_pct":90,"mem_mib":2000,"source":"nvml"}

`source` appears in every report. A sandbox's simulated GPUs write `simulated`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec

from accounting.damage import UNREADABLE, Count
from accounting.records import GpuUse

# Two attempts of one job id are further apart: a requeued job waits two minutes. (If it is told to start at once, a
# GPU's use in both attempts counts for each: more than either used, never less.) No meter pauses for that long:
# between two looks of `rightsizer collect` there is a minute at most (--every), plus the time that one look takes.
ATTEMPT_GAP_S = 90
# By how much a node's clock may be ahead of ours.
CLOCK_AHEAD_S = 300
LONGEST_WINDOW_S = 86400
MOST_SAMPLES_A_S = 20
EARLIEST_S = 946_684_800  # the year 2000: an earlier clock was never set
MOST_MEM_MIB = 2**24
MOST_POWER_W = 10_000.0
# The longest name that fits into a key in every store.
NAME_CHARS = 191
SOURCE = "gpu-spool"

JobId = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]


class GpuSample(msgspec.Struct, frozen=True, kw_only=True):
    """One reading of one GPU. Utilisation in per cent, memory in MiB."""

    job_id: JobId
    node: str
    time_s: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    gpu: Count
    util_pct: float
    mem_mib: float
    source: str


def parse_line(line: bytes, now_s: int | None = None) -> tuple[GpuUse | None, str]:
    """Return the use in a line, or None and why the line is invalid."""
    try:
        if b'"time_s"' in line:
            use = as_use(msgspec.json.decode(line, type=GpuSample, strict=False))
        else:
            use = msgspec.json.decode(line, type=GpuUse, strict=False)
    except UNREADABLE as error:
        return None, str(error)
    reason = nonsense_in(use, now_s)
    return (None, reason) if reason else (use, "")


def of_cluster(use: GpuUse, cluster: str) -> GpuUse:
    """Return a use with its cluster filled in if it names none."""
    return use if use.cluster or not cluster else msgspec.structs.replace(use, cluster=cluster)


def as_use(sample: GpuSample) -> GpuUse:
    """Return one sample as a use."""
    return GpuUse(
        job_id=sample.job_id,
        node=sample.node,
        gpu=sample.gpu,
        source=sample.source,
        samples=1,
        first_s=sample.time_s,
        last_s=sample.time_s,
        util_max_pct=sample.util_pct,
        util_mean_pct=sample.util_pct,
        mem_max_mib=sample.mem_mib,
    )


def nonsense_in(use: GpuUse, now_s: int | None) -> str:
    """Return why a use cannot be true, '' if it can."""
    checks = (
        ("job id", 1 <= use.job_id < 2**63),
        ("node", 0 < len(use.node) <= NAME_CHARS),
        ("cluster", len(use.cluster) <= NAME_CHARS),
        ("source", 0 < len(use.source) <= NAME_CHARS),
        ("GPU", 0 <= use.gpu < 2**31 and -1 <= use.instance < 2**31),
        ("time", EARLIEST_S <= use.first_s <= use.last_s <= use.first_s + LONGEST_WINDOW_S),
        ("time in the future", now_s is None or use.last_s <= now_s + CLOCK_AHEAD_S),
        ("number of samples", 1 <= use.samples <= MOST_SAMPLES_A_S * (use.last_s - use.first_s + 1)),
        ("utilisation", _within(use.util_max_pct, 100.0) and _within(use.util_mean_pct, 100.0)),
        ("utilisation", (use.util_mean_pct or 0.0) <= (use.util_max_pct or 0.0) + 0.01),
        ("memory", _within(use.mem_max_mib, MOST_MEM_MIB)),
        ("power", _within(use.power_mean_w, MOST_POWER_W)),
    )
    return next((f"the {name} is not possible" for name, holds in checks if not holds), "")


def _within(value: float | None, most: float) -> bool:
    return value is None or 0.0 <= value <= most


def merge_uses(uses: Iterable[GpuUse]) -> list[GpuUse]:
    """Merge uses that follow one another without a gap, per cluster, job, node, GPU, instance and source."""
    stretches: list[list[GpuUse]] = []
    whose, until_s = None, 0
    for use in sorted(uses, key=lambda use: (_whose(use), use.first_s, use.last_s)):
        if _whose(use) != whose or use.first_s - until_s > ATTEMPT_GAP_S:
            stretches.append([])
            whose, until_s = _whose(use), use.last_s
        stretches[-1].append(use)
        until_s = max(until_s, use.last_s)
    return [_merged(stretch) for stretch in stretches]


def _whose(use: GpuUse) -> tuple[str, int, str, int, int, str]:
    return use.cluster, use.job_id, use.node, use.gpu, use.instance, use.source


def is_use_known(highest_pct: float, told: int, of: int) -> bool:
    """Whether utilisations known from `told` of `of` looks, with this maximum, say what all looks would.

    Utilisation known from a part is a lower bound; if it is zero, it says nothing about the rest.
    """
    return highest_pct > 0.0 or told == of


def _merged(stretch: Sequence[GpuUse]) -> GpuUse:
    told = [use.util_max_pct for use in stretch if use.util_max_pct is not None]
    highest = max(told, default=0.0)
    is_known = is_use_known(highest, len(told), len(stretch))
    return msgspec.structs.replace(
        stretch[0],
        samples=sum(use.samples for use in stretch),
        last_s=max(use.last_s for use in stretch),
        util_max_pct=highest if is_known else None,
        util_mean_pct=_mean((use.util_mean_pct, use.samples) for use in stretch) if is_known else None,
        mem_max_mib=max(use.mem_max_mib for use in stretch),
        power_mean_w=_mean((use.power_mean_w, use.samples) for use in stretch),
    )


def _mean(weighted: Iterable[tuple[float | None, int]]) -> float | None:
    """Return the mean of the known values, weighted by samples; None if none is known."""
    known = [(value, samples) for value, samples in weighted if value is not None]
    if not known:
        return None
    mean = sum(value * samples for value, samples in known) / sum(samples for _, samples in known)
    # Rounding must not lift a mean above the highest of its values.
    return min(mean, max(value for value, _ in known))
