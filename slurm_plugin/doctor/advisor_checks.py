"""Checks of the advisor: whether its changes end with its lease, whether it still runs, and its journal. Pure."""

from __future__ import annotations

from slurm_plugin.doctor.finding import DAY_S, Judged, closed_to, span, unseen
from slurm_plugin.doctor.seen import AdvisorSeen, Complaint, Seen, unread_bytes
from slurm_plugin.doctor.store_checks import INGEST, UNREAD_BYTES

# This many periods without a cycle are no accident. An advisor without a cycle for a day was stopped on purpose.
SILENT_PERIODS = 5
LEAST_SILENT_S = 300.0
LOG = "see `systemctl status rightsizer-advise` and its log"
UNDO = "run `rightsizer advise --undo`, and enable rightsizer-advise-lease.timer"


def advisor(seen: Seen) -> Judged:
    """Whether the advisor still runs, and whether its changes end with its lease."""
    found = seen.advisor
    if isinstance(found, Complaint):
        return "problem", found.what, found.fix
    if not found.is_there:
        return "ok", f"not in use: {found.folder} does not exist", ""
    if not found.is_ours:
        fix = closed_to("the advisor's user")
        return "problem", f"cannot read and write {found.folder}", fix
    if found.factors and found.lease_is_over:
        return (
            "problem",
            f"{found.factors} SiteFactors of the advisor are still set after its lease has expired",
            UNDO,
        )
    return _going_on(found, seen.now_s)


def _going_on(found: AdvisorSeen, now_s: float) -> Judged:
    if found.last_cycle_s is None:
        return "ok", "no cycle yet", ""
    ago_s = now_s - found.last_cycle_s
    said = f"the last cycle was {span(ago_s)} ago, {found.factors} SiteFactors are set"
    silent_s = max(LEAST_SILENT_S, SILENT_PERIODS * found.period_s)
    return ("warning", said, LOG) if silent_s < ago_s < DAY_S else ("ok", said, "")


def advisor_journal(seen: Seen) -> Judged:
    """Whether the advisor's cycles are ingested."""
    if isinstance(seen.advisor, Complaint):
        return unseen(seen.advisor)
    if isinstance(seen.store, Complaint):
        return unseen(seen.store)
    unread = unread_bytes(seen.advisor, seen.store)
    what = f"{unread / 1024 / 1024:.1f} MiB of cycles in {seen.advisor.folder} are not ingested yet"
    return ("warning", what, INGEST) if unread > UNREAD_BYTES else ("ok", what, "")
