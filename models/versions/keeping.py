"""Which versions of a registry stay, and why: what answers, what may answer again, what answered lately. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

import msgspec

from models.versions.succession import Promotion

DAY_S = 86400
# A training that has not promoted its version yet takes less than this.
YOUNG_S = DAY_S
# As a training names its version. A folder of another name was put there by a person, who may remove it.
OURS = re.compile(r"\d{8}T\d{6}\.\d{3}Z-[0-9a-f]{6}\Z")


class Keep(msgspec.Struct, frozen=True):
    """How much is kept: what was current in the last `days` days, and the `newest` of all others."""

    days: int
    newest: int


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """A registry: when each version was made, the oldest first, and until when it is known to have been current.

    Times are unix seconds. A rollback goes to one of `back_to`, or may once it can be read. Each of `held` is loaded,
    or is being loaded or written, by some process.
    """

    made_s: Mapping[str, float]
    current: str | None
    current_until_s: Mapping[str, float]
    back_to: Collection[str] = ()
    held: Collection[str] = ()


def current_until_s(promotions: Sequence[Promotion]) -> dict[str, float]:
    """Return until when each version is known to have been current (unix seconds), by the promotion log."""
    until_s: dict[str, float] = {}
    for one in promotions:
        for version in filter(None, (one.before, one.version)):
            until_s[version] = max(one.time_s, until_s.get(version, one.time_s))
    return until_s


def why_kept(known: Known, keep: Keep, now_s: float) -> dict[str, str]:
    """Return for every version why it stays; "" for those that go."""
    why = {version: _own_reason(version, known, keep, now_s) for version in known.made_s}
    others = [version for version, reason in why.items() if not reason]
    newest = dict.fromkeys(others[len(others) - min(keep.newest, len(others)) :], "among the newest others")
    return {**why, **newest}


def _own_reason(version: str, known: Known, keep: Keep, now_s: float) -> str:
    """Return why a version stays whatever else there is; "" if there is no such reason."""
    reasons = {
        "current": version == known.current,
        "a rollback would go back to it": version in known.back_to,
        "in use by a running process": version in known.held,
        "was current recently": known.current_until_s.get(version, 0.0) > now_s - keep.days * DAY_S,
        "made within a day": known.made_s[version] > now_s - YOUNG_S,
        "its name is not one that a training gives": not OURS.match(version),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")
