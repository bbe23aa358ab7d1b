"""The check of the brakes: which are pulled, why, and since when. Pure."""

from __future__ import annotations

from slurm_plugin.brakes.judging import figures
from slurm_plugin.brakes.words import release_of, words_of
from slurm_plugin.doctor.finding import Judged, closed_to, span
from slurm_plugin.doctor.seen import Complaint, Seen

CLOSED = closed_to("the service's user")
DAMAGED = (
    "nothing is cut until this is fixed; look in the service's log for the brakes that were pulled, "
    "then run `rightsizer enable --all`"
)


def brakes(seen: Seen) -> Judged:
    """Whether a brake is pulled: one on a family is a warning, one on a partition or on everything a problem."""
    found = seen.brakes
    if isinstance(found, Complaint):
        return "unknown", found.what, found.fix
    if found.stopped.damaged:
        return "problem", found.stopped.damaged, DAMAGED
    pulled = found.stopped.pulled
    if not pulled and found.closed:
        return (
            "problem",
            f"cannot read and write {found.closed}: brakes are lost when the service stops",
            CLOSED,
        )
    if not pulled:
        lost = f"; {found.lost}" if found.lost else ""
        return "ok", f"no brake is pulled; {figures(found.counts)}{lost}", ""
    told = "; ".join(
        f"{words_of(one.brake)}, {span(seen.now_s - one.time_s)} ago ({one.why})" for one in pulled
    )
    fix = "find out why (`rightsizer explain JOBID`), then run: " + "; ".join(
        release_of(one.brake) for one in pulled
    )
    wide = any(one.brake.level != "family" for one in pulled)
    return "problem" if wide else "warning", f"not cut: {told}", fix
