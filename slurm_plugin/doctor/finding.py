"""The result of a check, and helpers that several checks share. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

from slurm_plugin.doctor.seen import Complaint

State = Literal["ok", "warning", "problem", "unknown"]
Judged = tuple[State, str, str]

DAY_S, HOUR_S = 86400, 3600
# How far a clock may be ahead, in seconds.
CLOCK_S = 300


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found: what it saw, and the fix in one line ("" if none is needed)."""

    check: str
    state: State
    what: str
    fix: str = ""


def unseen(why: Complaint) -> Judged:
    """Return the judgement on something that could not be seen."""
    return "unknown", why.what, why.fix


def closed_to(user: str) -> str:
    """Return the fix for a folder that this process cannot use, and that `user` should be able to use."""
    return f"run this as {user}; if you did, give that user the folder (chown; ReadWritePaths= in a unit)"


def by_age(what: str, age_s: float, most_s: float, fix: str) -> Judged:
    """Judge an age that should be at most `most_s`; an age in the future means a wrong clock."""
    if age_s < -CLOCK_S:
        return "warning", f"{what} in {span(-age_s)}", "correct this machine's clock (timedatectl)"
    aged = f"{what} {span(age_s)} ago"
    return ("warning", aged, fix) if age_s > most_s else ("ok", aged, "")


def span(seconds: float) -> str:
    """Return a span of time in words, in the largest unit of which it has at least two."""
    for unit, unit_s in (("days", DAY_S), ("hours", HOUR_S), ("minutes", 60)):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
