"""Marks whose pseudonyms a store holds, so that neither names nor another key's pseudonyms are mixed in with them."""

from __future__ import annotations

from sqlalchemy import Connection, Engine, select

from accounting.errors import StoreError
from accounting.pseudonyms import CHARS, Pseudonyms
from accounting.store import schema
from accounting.store.database import writing
from accounting.store.records import windows_read, write_rows

# The form of a user's pseudonym, as an SQL pattern.
_USER = "user-" + CHARS * "_"
# The name of these marks among those of what was read: the key's mark is in the column for the cluster.
PSEUDONYMS = "pseudonyms"


def hold_to_key(engine: Engine, pseudonyms: Pseudonyms | None, now_s: int) -> None:
    """Remember, from `now_s` on (unix seconds), which key's pseudonyms a store without names holds.

    Raises StoreError if the store holds another key's pseudonyms, or any if names are to be written. A store that
    had names before its first pseudonym accepts both.
    """
    mark = "" if pseudonyms is None else pseudonyms.mark
    with engine.connect() as connection:
        known = windows_read(connection, PSEUDONYMS)
        is_first = bool(mark) and not known and not _has_names(connection)
    if known and mark not in known:
        given = "another key was given" if mark else "no key was given, so real names would be stored"
        raise StoreError(
            f"this store holds pseudonyms, but {given}; give the key with which it was filled "
            "(--pseudonymise, or accounting.pseudonym_key), or use another store (store.url)"
        )
    if is_first:
        with writing(engine) as connection:
            row = {"source": PSEUDONYMS, "cluster": mark, "read_until_s": now_s}
            write_rows(connection, schema.windows, [row])


def _has_names(connection: Connection) -> bool:
    user = schema.attempts.c.user
    query = select(user).where(user != "", user.not_like(_USER)).limit(1)
    return connection.execute(query).first() is not None
