"""Lines of the decision journal, each linked to the one before it, so that no line goes, comes or changes unseen. Pure.

    {"id":"9f2c4d",…,"link":[17,"<the link of line 16>","<its own>"]}

Its own link is BLAKE2b of its number, of the link before it, and of the line as it is without one. With a key of the
site's nobody else can make one. Without a key whoever may write the file may write all of it anew: then only what the
store has read of it tells (accounting/audit/journal.py).

A chain is what one writer writes: it is named as his files are without their days, and goes on over days and restarts.
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
    """What a line says of its place: its number, the link of the line before it, and its own, in hex."""

    number: int
    previous: bytes
    own: bytes


class Linker:
    """Makes the links of a site's key; b"" is no key."""

    def __init__(self, key: bytes = b"") -> None:
        # A key may be of any length, BLAKE2b's has at most 64 bytes.
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
        """Return what the first line of a chain of this name follows."""
        return Head(0, self.digest(b"begin " + os.fsencode(name)))

    def is_intact(self, body: bytes, link: Link) -> bool:
        """Whether a line is as it was written, by this key."""
        return self.own(link.number, link.previous, body) == link.own

    def linked(self, body: bytes, head: Head) -> tuple[bytes, Head]:
        """Return the line that follows a head, with its newline, and the head that it is then.

        `body` is a JSON object without its newline, and not an empty one.
        """
        number = head.number + 1
        own = self.own(number, head.own, body)
        return b'%b,"link":[%d,"%b","%b"]}\n' % (body[:-1], number, head.own, own), Head(number, own)


def split_line(line: bytes) -> tuple[bytes, Link] | None:
    """Return a line without its newline as it was before it was linked, and its link; None where it has none."""
    at = line.rfind(b',"link":[')
    found = _LINK.match(line, at) if at >= 0 else None
    if found is None:
        return None
    return line[:at] + b"}", Link(int(found[1]), found[2], found[3])


def newest_head(text: bytes) -> Head | None:
    """Return the head that the end of a file tells of, as it is said there; None where no line has a link.

    The last line counts also where its newline was cut off.
    """
    for line in reversed(text.split(b"\n")):
        parts = split_line(line)
        if parts is not None:
            return Head(parts[1].number, parts[1].own)
    return None


def chain_name(file_name: str) -> str:
    """Return the chain that a file is of: `decisions-20261122.jsonl` is of `decisions`; '' where it is of none."""
    found = _FILE.match(file_name)
    return found[1] if found else ""


def day_of(file_name: str) -> str:
    """Return the day of a chain's file, as YYYYMMDD in UTC; '' where it is none."""
    found = _FILE.match(file_name)
    return found[2] if found else ""


class Anchor(msgspec.Struct, frozen=True, kw_only=True):
    """What stands for the files of a chain that we have removed: its last line, and our word for it (`seal`)."""

    number: int
    own: str
    seal: str

    @property
    def head(self) -> Head:
        """What the first line that is left follows."""
        return Head(self.number, self.own.encode())


def anchor_of(name: str, head: Head, linker: Linker) -> Anchor:
    """Return the anchor of a chain whose lines up to a head are removed."""
    seal = linker.digest(b"removed %d %b " % head + os.fsencode(name))
    return Anchor(number=head.number, own=head.own.decode(), seal=seal.decode())


def read_anchor(text: bytes, name: str, linker: Linker) -> Anchor | None:
    """Return the anchor in a file; None where it is damaged, or not by this key."""
    try:
        anchor = msgspec.json.decode(text, type=Anchor)
    except UNREADABLE:
        return None
    return anchor if anchor == anchor_of(name, anchor.head, linker) else None
