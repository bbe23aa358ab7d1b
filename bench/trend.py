"""Whether a process's resources grow: its memory, files and threads, sampled over time. Pure, except for /proc."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# A process warms up in the first third of its time, and frees memory now and then: up to this much more in the last
# third than in the middle one counts as flat.
FLAT_SHARE, FLAT_KIB, FLAT_COUNT = 0.05, 8192, 3


@dataclass(frozen=True)
class Sample:
    """What a process held at a moment (seconds of any clock)."""

    pid: int
    time_s: float
    rss_kib: int
    files: int
    threads: int


@dataclass(frozen=True)
class Trend:
    """A figure over time: its mean in each third, and its growth per minute by least squares."""

    what: str
    first: float
    middle: float
    last: float
    per_minute: float

    @property
    def is_flat(self) -> bool:
        """Whether the last third is no higher than the middle one, beyond normal variation."""
        room = max(FLAT_KIB, FLAT_SHARE * self.middle) if self.what == "rss_kib" else FLAT_COUNT
        return self.last <= self.middle + room


def look(pid: int, time_s: float) -> Sample | None:
    """Return what a process holds now; None if it is not running (any more)."""
    folder = Path("/proc") / str(pid)
    try:
        lines = (folder / "status").read_text(encoding="ascii", errors="replace").splitlines()
        held = dict(line.split(":", 1) for line in lines)
        return Sample(
            pid=pid,
            time_s=time_s,
            rss_kib=int(held["VmRSS"].split()[0]),
            files=sum(1 for _ in (folder / "fd").iterdir()),
            threads=int(held["Threads"]),
        )
    except (OSError, KeyError):
        return None


def longest_lived(samples: Sequence[Sample]) -> list[Sample]:
    """Return the samples of the process seen most often: a restarted one begins anew."""
    if not samples:
        return []
    pids = [sample.pid for sample in samples]
    pid = max(set(pids), key=pids.count)
    return [sample for sample in samples if sample.pid == pid]


def trends(samples: Sequence[Sample]) -> list[Trend]:
    """Return the trend of each figure of one process; none for fewer than six samples."""
    if len(samples) < 6:
        return []
    return [trend(samples, what) for what in ("rss_kib", "files", "threads")]


def trend(samples: Sequence[Sample], what: str) -> Trend:
    """Return the trend of one figure."""
    values = [float(getattr(sample, what)) for sample in samples]
    minutes = [sample.time_s / 60 for sample in samples]
    third = len(values) // 3
    return Trend(
        what=what,
        first=statistics.fmean(values[:third]),
        middle=statistics.fmean(values[third:-third]),
        last=statistics.fmean(values[-third:]),
        per_minute=statistics.linear_regression(minutes, values).slope,
    )
