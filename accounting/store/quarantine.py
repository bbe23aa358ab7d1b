"""Input that was not taken: what there is and why, taken back for another try, and forgotten once it was understood."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import msgspec
from sqlalchemy import Connection, delete, func, select

from accounting.records import Quarantined
from accounting.store.schema import quarantine

LINES_AT_ONCE = 1_000
# A job may have a hundred thousand steps, and MariaDB takes 16 MiB in a statement: what is longer is kept so far.
MOST_CHARS = 2**20


class QuarantineGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of one source that were not taken for one reason, seen first and last at these unix times."""

    source: str
    reason: str
    lines: int
    first_seen_s: int
    last_seen_s: int


def digest_of(item: Quarantined) -> str:
    """Return what an entry is known by: its line and, where that was told, the path of its file."""
    line = item.line[:MOST_CHARS]
    known_by = f"{item.path}\0{line}" if item.path else line
    return hashlib.sha256(known_by.encode(errors="replace")).hexdigest()


def list_quarantine(connection: Connection) -> list[QuarantineGroup]:
    """Return what is kept by source and reason, the most frequent first."""
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
    """Yield (digest, what was kept, but for its path) of one source, or of all, in bounded memory; nothing is removed.

    Whoever understands a line this time forgets it, by its digest, in the transaction that writes what it said.
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
    """Return what the lines of one source are known by."""
    columns = quarantine.c
    return set(connection.scalars(select(columns.digest).where(columns.source == source)))


def digests_of_file(connection: Connection, source: str, path: str) -> set[str]:
    """Return what the entries of a file are known by; entries of its name that name no path may be its own."""
    return {
        digest
        for digest, item in take_quarantined(connection, source)
        if digest in (digest_of(item), digest_of(msgspec.structs.replace(item, path=path)))
    }
