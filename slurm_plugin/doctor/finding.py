"""What a check finds, and the words that several checks share. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

from slurm_plugin.doctor.seen import Complaint

State = Literal["ok", "warning", "problem", "unknown"]
Judged = tuple[State, str, str]

DAY_S, HOUR_S = 86400, 3600
# A clock may be ahead by as much.
CLOCK_S = 300


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found: what it saw, and the fix in one line ("" where none is needed)."""

    check: str
    state: State
    what: str
    fix: str = ""


def unseen(why: Complaint) -> Judged:
    """Judge what could not be seen."""
    return "unknown", why.what, why.fix


def closed_to(user: str) -> str:
    """Return the fix where a folder is closed to whoever asks, and should be open to a user."""
    return f"run this as {user}; if you did, give that user the folder (chown; ReadWritePaths= in a unit)"


def by_age(what: str, age_s: float, most_s: float, fix: str) -> Judged:
    """Judge an age that should be at most `most_s`."""
    if age_s < -CLOCK_S:
        return "warning", f"{what} in {span(-age_s)}", "correct this machine's clock (timedatectl)"
    aged = f"{what} {span(age_s)} ago"
    return ("warning", aged, fix) if age_s > most_s else ("ok", aged, "")


def span(seconds: float) -> str:
    """Return a span of time in the largest unit that it has two of."""
    for unit, unit_s in (("days", DAY_S), ("hours", HOUR_S), ("minutes", 60)):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
