"""From where to read accounting, by the marks of earlier reads, one per cluster. Pure.

Most records reach slurmdbd within seconds of a job's end. Those that slurmctld held while it could not reach
slurmdbd come hours later, with the jobs' own end times, which lie before the mark of what was read by then. So some
days are read again once a day.
"""

from __future__ import annotations

from collections.abc import Mapping

from accounting.errors import SlurmError
from accounting.slurm.windows import DAY_S

NOBODYS = ""
# Marks when late records were last read.
LATE = "late records"


def read_before_s(marks: Mapping[str, int], cluster: str, first_s: int) -> int | None:
    """Return until when a cluster's accounting has certainly been read (unix seconds); None if never.

    `marks` are by cluster. If a cluster has no mark of its own but there is an unnamed one (of an earlier release,
    or of a run that could not tell its cluster), nobody knows how much that covers: it counts up to `first_s` at
    most. A run that cannot tell its cluster continues from the latest mark and moves only the unnamed one: a run
    that can tell reads it all again. Raises SlurmError if the cluster is not known and several clusters are read
    into this store.
    """
    if cluster != NOBODYS:
        own, nobodys = marks.get(cluster), marks.get(NOBODYS)
        return own if own is not None or nobodys is None else min(nobodys, first_s)
    named = sorted(marks.keys() - {NOBODYS})
    if len(named) > 1:
        raise SlurmError(
            f"this store holds several clusters ({', '.join(named)}), and it is not known which of them "
            "sacct reads here; set accounting.cluster, or make sure that `scontrol show config` answers"
        )
    return max(marks.values(), default=None)


def late_since_s(late_days: int, now_s: int, late_s: int | None) -> int | None:
    """Return from when to read late records now (unix seconds); None if that is not due.

    `late_s` is when that was last done, None for never. A mark ahead of the clock says nothing.
    """
    is_due = late_s is None or not now_s - DAY_S < late_s <= now_s
    return now_s - late_days * DAY_S if late_days and is_due else None
