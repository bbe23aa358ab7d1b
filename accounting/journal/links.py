"""Links each line of the decision journal to the one before, so that no line is removed, added or changed unseen. Pure.

    {"id":"9f2c4d",…,"link":[17,"<the link of line 16>","<its own>"]}

A line's own link is the BLAKE2b of its number, of the previous line's link, and of the line without a link. With a
site's key, nobody else can make one. Without a key, anybody who may write the file can rewrite all of it: then only
what the store has read of it shows that (accounting/audit/journal.py).

A chain is what one writer writes. It is named like the writer's files without their days, and continues over days
and restarts.
"""

from __future__ import annotations

import hashlib
import os
import re
from typing import NamedTuple

import msgspec

from accounting.damage import UNREADABLE

_LINK = re.compile(rb',"link":\[(\d{1,18}),"([0-9a-f]{32})","([0-9a-f]{32})"\]\}\Z')
_FILE = re.compile(r"(.+)-(\d{8})\.jsonl\Z")
LINK_BYTES = 16


class Head(NamedTuple):
    """The newest line of a chain: its number, counted from 1, and its own link, in hex."""

    number: int
    own: bytes


class Link(NamedTuple):
    """A line's place in its chain: its number, the link of the line before it, and its own link, in hex."""

    number: int
    previous: bytes
    own: bytes


class Linker:
    """Makes links with a site's key; b"" for no key."""

    def __init__(self, key: bytes = b"") -> None:
        # A key may have any length; BLAKE2b's has at most 64 bytes.
        long_key = hashlib.blake2b(key).digest() if key else b""
        self._begun = hashlib.blake2b(digest_size=LINK_BYTES, key=long_key, person=b"rightsizer-chain")

    def digest(self, text: bytes) -> bytes:
        """Return the digest of a text, in hex."""
        digest = self._begun.copy()
        digest.update(text)
        return digest.hexdigest().encode()

    def own(self, number: int, previous: bytes, body: bytes) -> bytes:
        """Return the link of a line, in hex; `body` is the line without it."""
        return self.digest(b"%d %b " % (number, previous) + body)

    def begin(self, name: str) -> Head:
        """Return the head that the first line of a chain with this name follows."""
        return Head(0, self.digest(b"begin " + os.fsencode(name)))

    def is_intact(self, body: bytes, link: Link) -> bool:
        """Whether a line is as it was written with this key."""
        return self.own(link.number, link.previous, body) == link.own

    def linked(self, body: bytes, head: Head) -> tuple[bytes, Head]:
        """Return the line that follows a head, with its newline, and the new head.

        `body` is a JSON object without its newline, and not an empty one.
        """
        number = head.number + 1
        own = self.own(number, head.own, body)
        return b'%b,"link":[%d,"%b","%b"]}\n' % (body[:-1], number, head.own, own), Head(number, own)


def split_line(line: bytes) -> tuple[bytes, Link] | None:
    """Split a line (without its newline) into the line before linking and its link; None if it has no link."""
    at = line.rfind(b',"link":[')
    found = _LINK.match(line, at) if at >= 0 else None
    if found is None:
        return None
    return line[:at] + b"}", Link(int(found[1]), found[2], found[3])


def newest_head(text: bytes) -> Head | None:
    """Return the head recorded in the end of a file, unchecked; None if no line has a link.

    The last line counts even if its newline was cut off.
    """
    for line in reversed(text.split(b"\n")):
        parts = split_line(line)
        if parts is not None:
            return Head(parts[1].number, parts[1].own)
    return None


def chain_name(file_name: str) -> str:
    """Return the chain of a file: `decisions-20261122.jsonl` is of `decisions`; '' if it is of none."""
    found = _FILE.match(file_name)
    return found[1] if found else ""


def day_of(file_name: str) -> str:
    """Return the day of a chain's file, as YYYYMMDD in UTC; '' if it has none."""
    found = _FILE.match(file_name)
    return found[2] if found else ""


class Anchor(msgspec.Struct, frozen=True, kw_only=True):
    """What replaces the removed files of a chain: their last line, and proof that we removed them (`seal`)."""

    number: int
    own: str
    seal: str

    @property
    def head(self) -> Head:
        """What the first remaining line follows."""
        return Head(self.number, self.own.encode())


def anchor_of(name: str, head: Head, linker: Linker) -> Anchor:
    """Return the anchor of a chain whose lines up to a head are removed."""
    seal = linker.digest(b"removed %d %b " % head + os.fsencode(name))
    return Anchor(number=head.number, own=head.own.decode(), seal=seal.decode())


def read_anchor(text: bytes, name: str, linker: Linker) -> Anchor | None:
    """Return the anchor in a file; None if it is damaged, or not made with this key."""
    try:
        anchor = msgspec.json.decode(text, type=Anchor)
    except UNREADABLE:
        return None
    return anchor if anchor == anchor_of(name, anchor.head, linker) else None
