"""Whose pseudonyms a store holds: no name comes back among them, and no other key's stand beside them."""

from __future__ import annotations

from sqlalchemy import Connection, Engine, select

from accounting.errors import StoreError
from accounting.pseudonyms import CHARS, Pseudonyms
from accounting.store import schema
from accounting.store.database import writing
from accounting.store.records import windows_read, write_rows

# How a user's pseudonym looks to SQL.
_USER = "user-" + CHARS * "_"
# The name of these marks beside those of what was read: a key's stands where others have a cluster.
PSEUDONYMS = "pseudonyms"


def hold_to_key(engine: Engine, pseudonyms: Pseudonyms | None, now_s: int) -> None:
    """Remember whose pseudonyms a store without names holds from now on (unix seconds).

    StoreError where it holds those of another key, or any where names are to be written. One that had names before its
    first pseudonym takes both.
    """
    mark = "" if pseudonyms is None else pseudonyms.mark
    with engine.connect() as connection:
        known = windows_read(connection, PSEUDONYMS)
        is_first = bool(mark) and not known and not _has_names(connection)
    if known and mark not in known:
        given = "another key was given" if mark else "no key was given, so that names would come back"
        raise StoreError(
            f"this store holds pseudonyms, and {given}: give the key that it was filled with (--pseudonymise, or "
            "accounting.pseudonym_key), or ingest into a store of its own (store.url)"
        )
    if is_first:
        with writing(engine) as connection:
            row = {"source": PSEUDONYMS, "cluster": mark, "read_until_s": now_s}
            write_rows(connection, schema.windows, [row])


def _has_names(connection: Connection) -> bool:
    user = schema.attempts.c.user
    query = select(user).where(user != "", user.not_like(_USER)).limit(1)
    return connection.execute(query).first() is not None
