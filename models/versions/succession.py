"""Which version of a registry followed which, by its log of promotions: what is current, and what was before. Pure.

A promotion is logged before the link is swapped, with the version that was current until then. So the log alone shows
what became of each promotion. If the next promotion began from the version that this one began from, a crash came
between log and link, and this version never was current. If the next one began from any third version, somebody
changed the link by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from accounting.damage import UNREADABLE

Why = Literal["gate", "always", "by hand", "rollback"]


class Promotion(msgspec.Struct, frozen=True, kw_only=True):
    """A version was made current at `time_s` (unix seconds), by a user, for a reason; `before` was current then.

    `manifest` is the SHA-256 of its manifest at that moment; '' in logs of earlier releases.
    """

    time_s: float
    who: str
    version: str
    why: Why
    before: str | None
    manifest: str = ""


class Held(msgspec.Struct, frozen=True):
    """A version that is or was current, and by which promotion; None where the log does not say."""

    version: str
    by: Promotion | None


class Succession(msgspec.Struct, frozen=True):
    """What a rollback goes through, the oldest first and the current version last, without what was rolled back.

    `from_the_first`: nothing was current before the oldest. If it is False, the log does not reach that far back.
    """

    held: tuple[Held, ...] = ()
    from_the_first: bool = True

    @property
    def current(self) -> str | None:
        """The version that is current; None before the first."""
        return self.held[-1].version if self.held else None


def succession(promotions: Sequence[Promotion], current: str | None) -> Succession:
    """Return what the log and the link together say; `current` is what the link names now."""
    # What each promotion, and finally the reader, found to be current.
    found = (*(one.before for one in promotions), current)
    at, before = Succession(), Succession()
    for one, after in zip(promotions, found[1:], strict=True):
        before = _found(at, one.before)
        at = _moved(before, one)
        if after == one.before != one.version:
            at = before
    return _found(at, current)


def _found(at: Succession, version: str | None) -> Succession:
    """Return the succession after the link is seen to name `version`, whatever the log says."""
    if version == at.current:
        return at
    if version is None:
        return Succession()
    # If nothing is logged before, something may still have been current.
    return Succession((*at.held, Held(version, None)), from_the_first=bool(at.held) and at.from_the_first)


def _moved(at: Succession, promotion: Promotion) -> Succession:
    if promotion.version == at.current:
        return Succession((*at.held[:-1], Held(promotion.version, promotion)), at.from_the_first)
    if promotion.why != "rollback":
        return Succession((*at.held, Held(promotion.version, promotion)), at.from_the_first)
    earlier = [place for place, held in enumerate(at.held) if held.version == promotion.version]
    kept = at.held[: earlier[-1]] if earlier else ()
    return Succession((*kept, Held(promotion.version, promotion)), bool(earlier) and at.from_the_first)


def decode_promotions(lines: Iterable[bytes]) -> list[Promotion]:
    """Return the promotions of a log; skip lines that a crash cut off, or that are damaged otherwise."""
    promotions: list[Promotion] = []
    for line in lines:
        try:
            promotions.append(msgspec.json.decode(line, type=Promotion))
        except UNREADABLE:
            continue
    return promotions


def encode_promotion(promotion: Promotion) -> bytes:
    """Return the log's line of a promotion, with its newline."""
    return msgspec.json.encode(promotion) + b"\n"
