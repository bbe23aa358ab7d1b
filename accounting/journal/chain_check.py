"""Finds which lines of a chain were changed, removed, inserted or moved since they were written. Pure.

A write cut off by a crash or a full disk is recognised as such: it was never in the chain, which continues as if it
were not there. A line that somebody shortened was in the chain, and its number is missing.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from accounting.decisions.decision import decode_decision
from accounting.journal.links import LINK_BYTES, Head, Link, Linker, split_line

Kind = Literal["changed", "removed", "inserted", "moved", "torn", "without link"]
# What happens without anybody's doing.
HARMLESS: frozenset[Kind] = frozenset({"torn", "without link"})
# How a line of the journal begins.
_BEGINNING = b'{"id":'


class Place(msgspec.Struct, frozen=True, order=True):
    """A line of a file, counted from 1; 0 means the whole file."""

    file: str
    line: int


class Found(msgspec.Struct, frozen=True):
    """What is wrong at a place, in one word and in full."""

    place: Place
    kind: Kind
    what: str


class Gap(msgspec.Struct, frozen=True):
    """Numbers of a chain that are missing, and the place where that was noticed."""

    first: int
    last: int
    place: Place


class Owns:
    """The links of a chain by number, sixteen bytes each; empty for missing lines."""

    def __init__(self, first: int) -> None:
        """Start at a number; links before it are not kept."""
        self._first = first
        self._held = bytearray()

    def keep(self, number: int, own: bytes) -> None:
        """Keep a link; numbers must rise, and a gap before one costs no more than its memory."""
        self._held += bytes((number - self._first) * LINK_BYTES - len(self._held)) + bytes.fromhex(
            own.decode()
        )

    def put(self, number: int, own: bytes) -> None:
        """Keep the link of a line that was missing."""
        at = (number - self._first) * LINK_BYTES
        if at >= 0:
            self._held[at : at + LINK_BYTES] = bytes.fromhex(own.decode())

    def has(self, number: int, own: bytes) -> bool:
        """Whether the line with this number has this link."""
        at = (number - self._first) * LINK_BYTES
        return at >= 0 and self._held[at : at + LINK_BYTES] == bytes.fromhex(own.decode())


# A number this far beyond the last one is forged: nobody removes so many lines of one chain.
_MOST_GAP = 1_000_000


class ChainCheck:
    """Takes a chain's lines in file order and finds what is wrong with them.

    `start` is what the first line should follow (the anchor, or the chain's beginning); if None, the first line's
    own statement is accepted. Lines without a key are valid until the first line with it. Lines without links, of
    earlier releases, are counted as such before the first line with a link.
    """

    def __init__(self, name: str, key: bytes, start: Head | None) -> None:
        self.name = name
        self.owns = Owns(1)
        self.lines = self.unlinked = self.without_key = 0
        self.found: list[Found] = []
        self.first: Link | None = None
        self.head = start or Head(0, b"")
        self._trusting = start is None
        self._keyed = Linker(key) if key else None
        self._plain = Linker()
        self._any_keyed = self._is_doubtful = self._is_newest_keyed = False
        self._gaps: list[Gap] = []
        self._doubted: tuple[Place, Link] | None = None
        self._last_unlinked: Place | None = None

    def take(self, place: Place, line: bytes, *, is_whole: bool = True) -> None:
        """Take the next line, without its newline; `is_whole` is false if it had none."""
        if not line:
            return
        parts = split_line(line)
        if parts is None:
            self._take_unlinked(place, line, is_whole=is_whole)
            return
        self.lines += 1
        body, link = parts
        is_intact = self._is_intact(body, link)
        if self.first is None:
            self._seek_beginning(place, link, is_intact=is_intact)
        if is_intact:
            self._take_intact(place, link)
        else:
            self._say(place, "changed", f"line {link.number} of the chain was changed after it was written")
            if self.first is not None and link.number == self.head.number + 1:
                self._accept(link)
                self._is_doubtful = True

    @property
    def newest_is_keyed(self) -> bool:
        """Whether the last linked line was made with the key; true if there is no line."""
        return self._is_newest_keyed or not self.lines

    def finish(self) -> list[Found]:
        """Return everything that is wrong, ordered by place."""
        if self.first is None and self._doubted is not None:
            self._begin(*self._doubted)
        for gap in self._gaps:
            self._say(
                gap.place, "removed", f"{numbered(gap.first, gap.last)} of the chain missing before this line"
            )
        self._gaps = []
        return sorted(self.found, key=lambda one: one.place)

    def _seek_beginning(self, place: Place, link: Link, *, is_intact: bool) -> None:
        """Begin with this line, or with the changed line before it; its number may be the change if neither fits."""
        doubted, self._doubted = self._doubted, None
        if doubted is not None and link.number == doubted[1].number + 1:
            self._begin(*doubted)
            self._accept(doubted[1])
            self._is_doubtful = True
        elif is_intact or (link.number == self.head.number + 1 and not self._trusting):
            self._begin(place, link)
        else:
            self._doubted = place, link

    def _begin(self, place: Place, link: Link) -> None:
        self.first = link
        # Also after a crash between writing the anchor and removing the files before it.
        if self._trusting or link.number <= self.head.number:
            self.head = Head(link.number - 1, link.previous)
        elif self.head.number == 0 and self._plain.begin(self.name).own == link.previous:
            self.head = self._plain.begin(self.name)
        if link.number > self.head.number + 1:
            self._gaps.append(Gap(self.head.number + 1, link.number - 1, place))
            self.head = Head(link.number - 1, link.previous)
            if self._last_unlinked is not None:
                self._say(
                    self._last_unlinked, "changed", "this line has no link, and one is missing after it"
                )
        self.owns = Owns(link.number)

    def _is_intact(self, body: bytes, link: Link) -> bool:
        if self._keyed is not None and self._keyed.is_intact(body, link):
            self._any_keyed = self._is_newest_keyed = True
            return True
        self._is_newest_keyed = False
        if self._any_keyed or not self._plain.is_intact(body, link):
            return False
        self.without_key += self._keyed is not None
        return True

    def _take_intact(self, place: Place, link: Link) -> None:
        beyond = link.number - self.head.number - 1
        if beyond == 0:
            if link.previous != self.head.own and not self._is_doubtful:
                self._say(
                    place, "changed", f"line {link.number} of the chain does not follow the line before it"
                )
            self._accept(link)
        elif beyond > _MOST_GAP:
            self._say(place, "inserted", f"its number, {link.number}, is far from the numbers around it")
        elif beyond > 0:
            self._gaps.append(Gap(self.head.number + 1, link.number - 1, place))
            self._accept(link)
        else:
            self._take_earlier(place, link)

    def _take_earlier(self, place: Place, link: Link) -> None:
        """Take an intact line whose number was passed already."""
        if self.owns.has(link.number, link.own):
            self._say(place, "inserted", f"a copy of line {link.number} of the chain")
        elif self._fills(link):
            self._say(
                place, "moved", f"line {link.number} of the chain is placed after line {self.head.number}"
            )
        else:
            self._say(
                place,
                "inserted",
                f"there is another line {link.number} of the chain: two processes wrote at once, or it "
                "was rewritten",
            )

    def _fills(self, link: Link) -> bool:
        """Whether a line was missing; from then on it no longer is."""
        for at, gap in enumerate(self._gaps):
            if gap.first <= link.number <= gap.last:
                rest = (Gap(gap.first, link.number - 1, gap.place), Gap(link.number + 1, gap.last, gap.place))
                self._gaps[at : at + 1] = [one for one in rest if one.first <= one.last]
                self.owns.put(link.number, link.own)
                return True
        return False

    def _accept(self, link: Link) -> None:
        self._is_doubtful = False
        self.head = Head(link.number, link.own)
        self.owns.keep(link.number, link.own)

    def _take_unlinked(self, place: Place, line: bytes, *, is_whole: bool) -> None:
        is_decision = decode_decision(line) is not None
        if is_decision and not self.lines:
            self.unlinked += 1
            self._last_unlinked = place
        elif is_decision and is_whole:
            self._say(
                place,
                "inserted",
                "a decision without a link: an earlier release wrote it, or somebody added it",
            )
        elif not is_whole or is_cut_off(line):
            self._say(place, "torn", "a write that was cut off; the chain continues without it")
        elif not self.lines:
            self._say(place, "without link", "not a decision, from before lines had links")
        else:
            self._say(place, "inserted", "neither a decision nor a write that was cut off")

    def _say(self, place: Place, kind: Kind, what: str) -> None:
        self.found.append(Found(place, kind, what))


def is_cut_off(line: bytes) -> bool:
    """Whether a line may be the beginning of a decision, or what a power cut leaves of one (zeros)."""
    text = line.rstrip(b"\0")
    return not text.endswith(b"}") and (_BEGINNING.startswith(text) or text.startswith(_BEGINNING))


def numbered(first: int, last: int) -> str:
    """Return one or several line numbers in words, to be followed by what is wrong with them."""
    return f"line {first} is" if first == last else f"lines {first} to {last} are"
