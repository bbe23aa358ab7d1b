"""Checks of the journal's links, and of whether jobs that failed because we cut them are requeued. Pure."""

from __future__ import annotations

from accounting.units import counted
from slurm_plugin.doctor.finding import Judged, by_age, unseen
from slurm_plugin.doctor.seen import Complaint, Seen

SHOWN = 3
# A round may take long if many jobs failed at once.
SILENT_ROUNDS, LEAST_SILENT_S = 5, 300.0
AUDIT = "run `rightsizer audit --journal`, keep the files unchanged, and check who may write them"
RESTART = "restart the services that write the journal: they were started without the key"
ENABLE = (
    "enable rightsizer-recover.service (docs/recovery.md); otherwise jobs that fail because they were cut "
    "are not requeued"
)
REFUSED = (
    "see the log of rightsizer-recover for the reason, for example a slurm_job_modify of the site "
    "(docs/recovery.md)"
)
LOG = "see `systemctl status rightsizer-recover` and its log"


def journal_chain(seen: Seen) -> Judged:
    """Whether the newest files of the journal are as they were written."""
    if isinstance(seen.chains, Complaint):
        return "problem", seen.chains.what, seen.chains.fix
    broken = seen.chains.broken
    if broken:
        more = f" and {len(broken) - SHOWN} more" if len(broken) > SHOWN else ""
        return (
            "problem",
            f"{counted(len(broken), 'line')} changed since the journal was written: {', '.join(broken[:SHOWN])}{more}",
            AUDIT,
        )
    what = f"{seen.chains.lines:,} lines of the newest files are linked without a gap"
    if not seen.chains.has_key:
        return "ok", f"{what}; they are linked without a key", ""
    return (
        ("ok", what, "")
        if seen.chains.linked_by_key
        else ("warning", f"{what}, but without the key", RESTART)
    )


def recovery(seen: Seen) -> Judged:
    """Whether recovery looks for jobs that fail because we cut them, if any job is cut at all."""
    found = seen.recovery
    if isinstance(found, Complaint):
        return unseen(found)
    if found.last_round_s is None:
        if not found.enforced:
            return "ok", "not in use: no rule enforces", ""
        return "warning", f"{found.folder} records no round of `rightsizer recover --apply`", ENABLE
    most_s = max(LEAST_SILENT_S, SILENT_ROUNDS * found.period_s)
    state, what, fix = by_age("the last recovery round was", seen.now_s - found.last_round_s, most_s, LOG)
    stuck = sum(begun_s < seen.now_s - LEAST_SILENT_S for begun_s in found.begun_s)
    if stuck and state == "ok":
        return (
            "warning",
            f"{counted(stuck, 'job')} held: Slurm refuses to restore the original request, or many failed at once",
            REFUSED,
        )
    return (state, what, fix) if found.enforced else ("ok", what, "")
