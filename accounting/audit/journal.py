"""Checks the decision journal, chain by chain: against its own links, and against what the store has read of it.

It decides nothing of its own: journal/chain_check.py says what is wrong with lines.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from sqlalchemy import Connection

from accounting.decisions.decision import REFUSED, Decision, decode_decision
from accounting.errors import StoreError
from accounting.journal.chain_check import ChainCheck, Found, Place, numbered
from accounting.journal.chains import chains_in, check_chain
from accounting.journal.files import opened
from accounting.journal.links import split_line
from accounting.pseudonyms import Pseudonyms
from accounting.store.audit import ReadChain, newest_links, read_links, stored_origin
from accounting.store.records import read_decisions

LINES_AT_ONCE = 2_000


class ChainReport(msgspec.Struct, kw_only=True):
    """What a chain consists of: linked lines, how many of these lack the site's key, and lines without a link.

    `found` is what is wrong with it.
    """

    name: str
    files: int
    lines: int
    without_key: int
    unlinked: int
    found: list[Found]


def audit_chain(
    name: str,
    files: Sequence[Path],
    key: bytes,
    connection: Connection | None,
    read: Sequence[ReadChain],
    hide: Pseudonyms | None,
) -> ChainReport:
    """Check a chain and, if there is a store, whether the two agree; StoreError if a file or the store cannot be read.

    `read` is what the store had read of the chain before; what it reads meanwhile is left out. `hide` makes the
    pseudonyms that the store uses for names.
    """
    check = check_chain(name, files, key)
    found = list(check.finish())
    if connection is not None:
        found += gone(connection, check, read)
        for file in files:
            found += differing(connection, file, hide)
    return ChainReport(
        name=name,
        files=len(files),
        lines=check.lines,
        without_key=check.without_key,
        unlinked=check.unlinked,
        found=found,
    )


def gone(connection: Connection, check: ChainCheck, read: Sequence[ReadChain]) -> Iterator[Found]:
    """Yield the lines that the store has read and the journal lacks; consecutive numbers make one finding.

    Lines before the chain's first line are left out: we removed them, or they are reported already.
    """
    first = last = 0
    where = ""
    before = check.first.number - 1 if check.first else 0
    newest = max((one.number for one in read), default=0)
    for link in read_links(connection, check.name, before, [one.origin for one in read]):
        if link.number > newest or check.owns.has(link.number, link.own.encode()):
            continue
        if last and (link.number > last + 1 or link.file != where):
            yield _gone(where, first, last)
            first = 0
        first, last, where = first or link.number, link.number, link.file
    if last:
        yield _gone(where, first, last)


def _gone(file: str, first: int, last: int) -> Found:
    what = (
        f"{numbered(first, last)} unlike what the store has read: removed, rewritten, or lost in a power cut"
    )
    return Found(Place(file, 0), "removed", what)


def differing(connection: Connection, file: Path, hide: Pseudonyms | None) -> Iterator[Found]:
    """Yield the lines whose decision differs from the store's; those that the store does not have do not matter."""
    for batch in _batches(file):
        known = read_decisions(connection, [decision.id for _, decision in batch])
        for place, decision in batch:
            stored = known.get(decision.id)
            told = decision if hide is None else hide.decision(decision)
            if stored is None or stored.from_token or stored == told:
                continue
            fields = differing_fields(told, stored)
            if fields:
                what = f"decision {decision.id}: the store has a different {', '.join(fields)}"
                yield Found(place, "changed", what)


def differing_fields(told: Decision, stored: Decision) -> list[str]:
    """Return the fields in which two decisions differ; the hook's refusal, which only the store knows, is left out."""
    names = [name for name in Decision.__struct_fields__ if getattr(told, name) != getattr(stored, name)]
    if stored.reason.startswith(REFUSED) and not stored.applied:
        names = [name for name in names if name not in ("reason", "applied")]
    return names


def _batches(file: Path) -> Iterator[list[tuple[Place, Decision]]]:
    batch: list[tuple[Place, Decision]] = []
    with opened(file) as lines:
        for number, line in enumerate(lines, 1):
            decision = decode_decision(line)
            # Lines from before there were links are skipped: nothing shows which of the two versions is right.
            if decision is not None and split_line(line.rstrip(b"\n")) is not None:
                batch.append((Place(file.name, number), decision))
            if len(batch) >= LINES_AT_ONCE:
                yield batch
                batch = []
    yield batch


def audit_journal(
    folder: Path, key: bytes, connection: Connection | None, hide: Pseudonyms | None = None, reader: str = ""
) -> list[ChainReport]:
    """Check every chain of a folder, and those that only the store knows.

    `reader` is this host's name as a reader (IngestSettings.reader): chains that other hosts read are checked there.
    """
    known = newest_links(connection) if connection is not None else []
    chains = chains_in(folder)
    reports = []
    for name, files in chains.items():
        read = own_chains(connection, name, files, known, reader) if connection is not None else ()
        reports.append(audit_chain(name, files, key, connection, read, hide))
    for one in known:
        if one.chain not in chains and one.reader in ("", reader):
            what = f"the store has read {one.number} lines of this chain, but none of its files is left"
            lost = Found(Place(f"{one.chain}-*.jsonl", 0), "removed", what)
            reports.append(
                ChainReport(name=one.chain, files=0, lines=0, without_key=0, unlinked=0, found=[lost])
            )
    return reports


def refuse_closed(folder: Path) -> None:
    """Raise StoreError if the journal's folder cannot be read: a search would find no files, and so nothing wrong."""
    try:
        with os.scandir(folder):
            return
    except FileNotFoundError:
        raise StoreError(
            f"the folder {folder} does not exist; check service.journal (the service creates the folder "
            "when it starts)"
        ) from None
    except OSError as error:
        raise StoreError(
            f"cannot read the journal's folder {folder}: {error.strerror}; run this as a user who may read it"
        ) from None


def own_chains(
    connection: Connection, name: str, files: Sequence[Path], known: Sequence[ReadChain], reader: str
) -> list[ReadChain]:
    """Return which stored chains of a name belong to these files, by the files' first linked lines or by the reader.

    Links of earlier releases record neither; they count if the store has nobody else's chain of that name.
    """
    named = [one for one in known if one.chain == name]
    origins = {origin for file in files if (origin := _origin(connection, file)) is not None}
    own = [one for one in named if one.origin and (one.origin in origins or one.reader == reader)]
    others = [one for one in named if one.origin and one not in own]
    return own if others else named


def _origin(connection: Connection, file: Path) -> str | None:
    """Return the chain of a file, by its first linked line, if the store has it."""
    with opened(file) as lines:
        links = (parts[1] for line in lines if (parts := split_line(line.rstrip(b"\n"))) is not None)
        first = next(links, None)
    return stored_origin(connection, first.own.decode()) if first is not None else None


def journalled_from_s(folder: Path) -> float | None:
    """Return the time (unix seconds) from which the journal has a line for every decision; None if it has none."""
    first = (_first_s(files) for files in chains_in(folder).values())
    return min((time_s for time_s in first if time_s is not None), default=None)


def _first_s(files: Sequence[Path]) -> float | None:
    """Return when the first linked decision of a chain was made."""
    times = (decision.time_s for file in files for batch in _batches(file) for _, decision in batch)
    return next(times, None)
