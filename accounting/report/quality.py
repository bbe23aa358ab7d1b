"""How far labels can be trusted: the share of attempts with each quality, by what measured them. Pure: counts to rows.

Only attempts that ran are counted, and for GPUs only those that held one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, get_args

import msgspec

from accounting.records import Quality

Labelled = Literal["memory", "cores", "wall", "gpus", "gpu_memory", "io", "energy"]
LABELLED: tuple[Labelled, ...] = get_args(Labelled)
QUALITIES: tuple[Quality, ...] = get_args(Quality)

# The column of the table attempts with the quality of each.
QUALITY_COLUMNS: dict[Labelled, str] = {
    "memory": "memory_quality",
    "cores": "cores_quality",
    "wall": "wall_quality",
    "gpus": "gpu_quality",
    "gpu_memory": "gpu_quality",
    "io": "io_quality",
    "energy": "energy_quality",
}

Counts = dict[Labelled, dict[Quality, int]]
Row = dict[str, object]


class Segment(msgspec.Struct, kw_only=True):
    """The attempts of a cluster that one release and one plugin measured.

    `above_memory` used more memory than they held, `without_memory` neither requested memory nor held any,
    `commented` have a comment. `gpus_added_up` held several GPUs whose use Slurm recorded as one figure, which does
    not show how many were busy; they are among the `absent` ones. `last_s` is when the last of them ended.
    `with_steps` says whether the store has any steps of the cluster: Slurm records one for every job, and steps
    hold what was measured. `purged` had lost their steps before they were read; `since` is the segment of those
    that ended from `since_s` on (unix seconds), which had not.
    """

    cluster: str
    release: str
    gather: str
    last_s: int = 0
    attempts: int = 0
    never_started: int = 0
    above_memory: int = 0
    without_memory: int = 0
    commented: int = 0
    gpus_added_up: int = 0
    with_steps: bool = True
    purged: int = 0
    since_s: int = 0
    since: Segment | None = None
    counts: Counts = {}

    def of(self, dimension: Labelled) -> int:
        """Return how many attempts a dimension applies to."""
        return sum(self.counts.get(dimension, {}).values())

    def share(self, dimension: Labelled, quality: Quality) -> float:
        """Return the share (0..1) of a dimension's attempts with a quality; 0 if there are none."""
        whole = self.of(dimension)
        return self.counts[dimension].get(quality, 0) / whole if whole else 0.0


def segments_of(rows: Iterable[Mapping[str, object]]) -> list[Segment]:
    """Add up rows, each of which counts attempts with the same labels (quality_reading.py)."""
    found: dict[tuple[str, str, str], Segment] = {}
    for row in rows:
        key = (str(row["cluster"]), str(row["slurm_release"]), str(row["gather"]))
        segment = found.setdefault(key, Segment(cluster=key[0], release=key[1], gather=key[2]))
        _count(segment, {name: row[name] for name in row})
    return sorted(found.values(), key=lambda segment: (-segment.last_s, segment.cluster, segment.release))


def _count(segment: Segment, row: Mapping[str, object]) -> None:
    number = _whole(row["attempts"])
    segment.last_s = max(segment.last_s, _whole(row["last_s"]))
    if not row["ran"]:
        segment.never_started += number
        return
    segment.attempts += number
    segment.above_memory += _whole(row["above"])
    segment.without_memory += _whole(row["without"])
    segment.commented += _whole(row["commented"])
    for dimension, column in QUALITY_COLUMNS.items():
        if row["on_gpus"] or column != "gpu_quality":
            counts = segment.counts.setdefault(dimension, {})
            quality = msgspec.convert(row[column], Quality)
            counts[quality] = counts.get(quality, 0) + number


def _whole(value: object) -> int:
    return int(str(value))


QUALITY_HEADING = (
    "dimension",
    "cluster",
    "slurm",
    "gather",
    "attempts",
    *(f"{one}_pct" for one in QUALITIES),
)


def quality_rows(segments: Iterable[Segment]) -> list[Row]:
    """Return the rows of `report quality`, in per cent of the attempts that a dimension applies to."""
    return [
        {
            "dimension": dimension,
            "cluster": segment.cluster,
            "slurm": segment.release or "not known",
            "gather": segment.gather or "not known",
            "attempts": segment.of(dimension),
            **{f"{quality}_pct": round(100 * segment.share(dimension, quality), 2) for quality in QUALITIES},
        }
        for dimension in LABELLED
        for segment in segments
        if segment.of(dimension)
    ]
