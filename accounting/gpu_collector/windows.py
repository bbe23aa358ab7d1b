"""Turns samples into spool lines: one per job, GPU and window. Pure: the caller supplies the time."""

from __future__ import annotations

from dataclasses import dataclass

from accounting.gpu_collector.attribution import Sample
from accounting.gpu_spool.samples import is_use_known
from accounting.records import GpuUse

SOURCE = "nvml"


@dataclass
class _Mean:
    """The mean and the maximum of the known values."""

    count: int = 0
    total: float = 0.0
    highest: float = 0.0

    def add(self, value: float | None) -> None:
        if value is not None:
            self.count += 1
            self.total += value
            self.highest = max(self.highest, value)

    @property
    def mean(self) -> float | None:
        return round(self.total / self.count, 2) if self.count else None


@dataclass
class _Open:
    """What one GPU did for one job since its last line."""

    first_s: int
    last_s: int
    util: _Mean
    power: _Mean
    samples: int = 0
    mem_max_mib: float = 0.0


class Windows:
    """Open windows of all jobs on all GPUs, closed by `flush`; however long they are, as large as one pass."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int, int, int], _Open] = {}

    def add(self, sample: Sample, now_s: int) -> None:
        """Add one sample, with its time in unix seconds."""
        key = (sample.job.node, sample.job.job_id, sample.gpu, sample.instance)
        window = self._open.get(key)
        if window is None:
            window = self._open[key] = _Open(now_s, now_s, _Mean(), _Mean())
        # A clock that is set back moves the beginning, but never puts a window's end before it.
        window.first_s, window.last_s = min(window.first_s, now_s), max(window.last_s, now_s)
        window.samples += 1
        window.mem_max_mib = max(window.mem_max_mib, sample.mem_mib)
        window.util.add(sample.util_pct)
        # If a GPU was shared for part of a window, its power is not one job's.
        window.power.add(sample.power_w)

    def flush(self) -> list[GpuUse]:
        """Close all windows and return them."""
        lines = [_line(key, window) for key, window in self._open.items()]
        self._open.clear()
        return lines


def _line(key: tuple[str, int, int, int], window: _Open) -> GpuUse:
    node, job_id, gpu, instance = key
    alone = window.power.count == window.samples
    util = window.util
    is_util_known = is_use_known(util.highest, util.count, window.samples)
    return GpuUse(
        job_id=job_id,
        node=node,
        gpu=gpu,
        instance=instance,
        source=SOURCE,
        samples=window.samples,
        first_s=window.first_s,
        last_s=window.last_s,
        util_max_pct=util.highest if is_util_known else None,
        util_mean_pct=util.mean if is_util_known else None,
        mem_max_mib=round(window.mem_max_mib, 1),
        power_mean_w=window.power.mean if alone else None,
    )
