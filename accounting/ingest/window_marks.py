"""From where on to read accounting, by the marks of what was read before: each cluster has its own. Pure.

Most records reach slurmdbd within seconds of a job's end. Those that slurmctld kept while it could not reach it come
hours later, with the ends that the jobs had, before the mark of what was read by then. So some days are read again once
a day.
"""

from __future__ import annotations

from collections.abc import Mapping

from accounting.errors import SlurmError
from accounting.slurm.windows import DAY_S

NOBODYS = ""
# Marks when late records were last read.
LATE = "late records"


def read_before_s(marks: Mapping[str, int], cluster: str, first_s: int) -> int | None:
    """Return until when a cluster's accounting has been read for sure (unix seconds); None for not yet.

    `marks` are by cluster. A cluster without one of its own cannot know how much of it stands behind nobody's mark (of
    an earlier release, or of a run that could not tell its cluster): that counts as far as `first_s` at most. Who
    cannot tell its cluster goes on from the latest mark, and moves nobody else's: who can tell reads it all again.
    SlurmError where it cannot, and several clusters are read into this store.
    """
    if cluster != NOBODYS:
        own, nobodys = marks.get(cluster), marks.get(NOBODYS)
        return own if own is not None or nobodys is None else min(nobodys, first_s)
    named = sorted(marks.keys() - {NOBODYS})
    if len(named) > 1:
        raise SlurmError(
            f"several clusters are read into this store ({', '.join(named)}), and it is not known which one sacct "
            "tells of here; set accounting.cluster, or see that `scontrol show config` answers"
        )
    return max(marks.values(), default=None)


def late_since_s(late_days: int, now_s: int, late_s: int | None) -> int | None:
    """Return from when on to read late records now (unix seconds); None where that is not due.

    `late_s` is when that was last done, None for never. A mark that is ahead of the clock says nothing.
    """
    is_due = late_s is None or not now_s - DAY_S < late_s <= now_s
    return now_s - late_days * DAY_S if late_days and is_due else None
