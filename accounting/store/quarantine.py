"""Rejected input: what there is and why, read for another try, and forgotten once it was understood."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import msgspec
from sqlalchemy import Connection, delete, func, select

from accounting.records import Quarantined
from accounting.store.schema import quarantine

LINES_AT_ONCE = 1_000
# A job may have a hundred thousand steps, and MariaDB accepts 16 MiB in a statement: longer entries are truncated here.
MOST_CHARS = 2**20


class QuarantineGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of one source, rejected for one reason, with the unix times when such a line was first and last seen."""

    source: str
    reason: str
    lines: int
    first_seen_s: int
    last_seen_s: int


def digest_of(item: Quarantined) -> str:
    """Return the digest that identifies an entry: of its line and, if recorded, its file's path."""
    line = item.line[:MOST_CHARS]
    known_by = f"{item.path}\0{line}" if item.path else line
    return hashlib.sha256(known_by.encode(errors="replace")).hexdigest()


def list_quarantine(connection: Connection) -> list[QuarantineGroup]:
    """Return the stored entries by source and reason, the most frequent first."""
    columns, lines = quarantine.c, func.count()
    query = (
        select(columns.source, columns.reason, lines, func.min(columns.seen_s), func.max(columns.seen_s))
        .group_by(columns.source, columns.reason)
        .order_by(lines.desc(), columns.source, columns.reason)
    )
    return [
        QuarantineGroup(source=source, reason=reason, lines=count, first_seen_s=first_s, last_seen_s=last_s)
        for source, reason, count, first_s, last_s in connection.execute(query)
    ]


def take_quarantined(connection: Connection, source: str | None = None) -> Iterator[tuple[str, Quarantined]]:
    """Yield (digest, entry without its path) of one source, or of all, in bounded memory; nothing is removed.

    A caller that understands a line this time must forget it, by its digest, in the transaction that writes its
    contents.
    """
    columns, after = quarantine.c, ""
    while True:
        query = select(quarantine).where(columns.digest > after).order_by(columns.digest).limit(LINES_AT_ONCE)
        if source is not None:
            query = query.where(columns.source == source)
        found = connection.execute(query).all()
        for row in found:
            yield row.digest, Quarantined(line=row.line, reason=row.reason, source=row.source)
        if len(found) < LINES_AT_ONCE:
            return
        after = found[-1].digest


def forget_quarantined(connection: Connection, digests: Iterable[str]) -> int:
    """Remove lines by their digests and return how many there were."""
    listed, gone = list(digests), 0
    for begin in range(0, len(listed), LINES_AT_ONCE):
        chunk = listed[begin : begin + LINES_AT_ONCE]
        gone += connection.execute(delete(quarantine).where(quarantine.c.digest.in_(chunk))).rowcount
    return gone


def digests_of(connection: Connection, source: str) -> set[str]:
    """Return the digests of one source's entries."""
    columns = quarantine.c
    return set(connection.scalars(select(columns.digest).where(columns.source == source)))


def digests_of_file(connection: Connection, source: str, path: str) -> set[str]:
    """Return the digests of a file's entries; entries with its name and no path may be its own, too."""
    return {
        digest
        for digest, item in take_quarantined(connection, source)
        if digest in (digest_of(item), digest_of(msgspec.structs.replace(item, path=path)))
    }
