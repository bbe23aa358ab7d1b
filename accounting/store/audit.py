"""Stores and reads the journal's links, and recoveries. Every write is idempotent by its primary key."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, false, func, or_, select

from accounting.journal.files import JournalLink
from accounting.journal.recoveries import Recovered
from accounting.store import schema
from accounting.store.counts import Counts
from accounting.store.records import write_rows
from accounting.store.schema import rows_among


class ReadLink(NamedTuple):
    """A line of the journal as the store has read it."""

    own: str
    number: int
    decision_id: str
    file: str


class ReadChain(NamedTuple):
    """A chain of the journal as the store has read it: its name, which one of that name, its reader, its last line."""

    chain: str
    origin: str
    reader: str
    number: int


def write_links(connection: Connection, links: Iterable[JournalLink]) -> Counts:
    """Store links of the journal's lines."""
    named = {column.name for column in schema.journal_links.columns}
    rows = (msgspec.structs.asdict(link) for link in links)
    kept = ({name: value for name, value in row.items() if name in named} for row in rows)
    return write_rows(connection, schema.journal_links, kept)


def origin_of(connection: Connection, first: JournalLink) -> str:
    """Return the chain that a file continues, by its first link: that of the line before it, else one that begins here.

    A chain is identified by its first line, as far as the store knows: it stays the same, whoever has its files.
    """
    link = schema.journal_links.c
    before = select(link.origin).where(link.own == first.previous)
    # Links of earlier releases have none, and may be those of several hosts.
    return connection.execute(before).scalar() or (first.own if first.number == 1 else first.previous)


def stored_origin(connection: Connection, own: str) -> str | None:
    """Return the chain of a stored line, by the line's own link; None if the line is not stored."""
    link = schema.journal_links.c
    found = connection.execute(select(link.origin).where(link.own == own)).scalar()
    return None if found is None else str(found)


def read_links(
    connection: Connection, chain: str, after: int, origins: Collection[str]
) -> Iterator[ReadLink]:
    """Yield the links of lines after a number, in their order, of the chains with this name that are in `origins`."""
    link = schema.journal_links.c
    query = select(link.own, link.number, link.decision_id, link.file)
    meant = query.where(link.chain == chain, link.origin.in_(origins), link.number > after)
    for row in connection.execution_options(yield_per=10_000).execute(meant.order_by(link.number, link.own)):
        yield ReadLink(*row)


def newest_links(connection: Connection) -> list[ReadChain]:
    """Return the chains that were read, each with its newest line."""
    link = schema.journal_links.c
    query = select(link.chain, link.origin, func.max(link.reader), func.max(link.number))
    grouped = query.group_by(link.chain, link.origin).order_by(link.chain, link.origin)
    return [ReadChain(*row) for row in connection.execute(grouped)]


def not_newest(newest: Iterable[ReadChain]) -> ColumnElement[bool]:
    """Whether a link is not its chain's newest, which is kept whatever its age, because the next one follows it."""
    link = schema.journal_links.c
    older = (
        and_(link.chain == one.chain, link.origin == one.origin, link.number < one.number) for one in newest
    )
    return or_(false(), *older)


def write_recoveries(connection: Connection, recoveries: Iterable[Recovered]) -> Counts:
    """Store the outcomes of recoveries, by the last line about each run; the counts are of runs."""
    return write_rows(connection, schema.recoveries, (msgspec.structs.asdict(one) for one in recoveries))


def read_recoveries_of(connection: Connection, job_ids: Sequence[int]) -> dict[int, list[Recovered]]:
    """Return the outcomes of jobs' failed runs, oldest first, by job id."""
    table, found = schema.recoveries, dict[int, list[Recovered]]()
    query = select(table).order_by(table.c.time_s)
    for row in rows_among(connection, query, table.c.job_id, job_ids):
        found.setdefault(int(row.job_id), []).append(Recovered(**row._asdict()))
    return found
