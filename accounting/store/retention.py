"""Deletes what is older than a site wants to keep, in bounded transactions: if it is cut off, run it again.

A decision is deleted only when no attempt in the store names it any more: every stored job can still be explained.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Table,
    and_,
    bindparam,
    delete,
    exists,
    func,
    select,
)

from accounting.errors import StoreError
from accounting.store import schema
from accounting.store.audit import newest_links, not_newest
from accounting.store.database import writing
from accounting.store.recorded import named_for_clients

ROWS_AT_ONCE = 20_000
# SQLite's file is rebuilt if this share of it is empty: for a while that takes as much space again.
WORTH_SHRINKING = 0.1

# Everything that stays goes through a temporary table, which database.py would keep in memory: gigabytes.
_SHRINK_SQLITE = ["PRAGMA temp_store=FILE", "VACUUM", "PRAGMA temp_store=MEMORY"]

_ATTEMPT_KEY = ("cluster", "job_id", "submit_s", "start_s")
_STEPS_KEY = ("cluster", "job_id", "submit_s", "attempt_start_s")


class Pruned(msgspec.Struct):
    """How many rows were deleted; `kept_room` says why the database did not free their space, '' if it did."""

    attempts: int = 0
    steps: int = 0
    gpu_use: int = 0
    decisions: int = 0
    quarantine: int = 0
    advised_jobs: int = 0
    advisor_cycles: int = 0
    journal_links: int = 0
    recoveries: int = 0
    kept_room: str = ""

    @property
    def rows(self) -> int:
        """The total."""
        own = self.attempts + self.steps + self.gpu_use + self.decisions + self.quarantine
        return own + self.advised_jobs + self.advisor_cycles + self.journal_links + self.recoveries


def prune(engine: Engine, before_s: int, progress: Callable[[int], None] = lambda _rows: None) -> Pruned:
    """Delete attempts that ended before `before_s` (unix seconds) with their steps, and other rows that old.

    `progress` is called with the number of rows deleted so far. Raises StoreError if the database refuses; what was
    deleted by then stays deleted.
    """
    pruned = Pruned()
    while _prune_attempts(engine, before_s, pruned):
        progress(pruned.rows)
    _prune_decisions(engine, before_s, pruned, progress)
    with engine.connect() as connection:
        newest = newest_links(connection)
    others = (
        (schema.gpu_use, schema.gpu_use.c.last_s < before_s),
        (schema.quarantine, schema.quarantine.c.seen_s < before_s),
        (schema.advised_jobs, schema.advised_jobs.c.time_s < before_s),
        (schema.advisor_cycles, schema.advisor_cycles.c.time_s < before_s),
        (schema.journal_links, and_(schema.journal_links.c.time_s < before_s, not_newest(newest))),
        (schema.recoveries, schema.recoveries.c.time_s < before_s),
    )
    for table, is_old in others:
        while gone := _prune_some(engine, table, is_old):
            setattr(pruned, table.name, getattr(pruned, table.name) + gone)
            progress(pruned.rows)
    pruned.kept_room = _give_room_back(engine, pruned)
    return pruned


def _prune_attempts(engine: Engine, before_s: int, pruned: Pruned) -> int:
    """Delete some of the oldest attempts with all of their steps, in one transaction; return how many attempts."""
    columns = schema.attempts.c
    query = select(*(columns[name] for name in _ATTEMPT_KEY)).where(columns.end_s < before_s)
    with writing(engine) as connection:
        old = connection.execute(query.order_by(columns.end_s).limit(ROWS_AT_ONCE)).all()
        pruned.steps += _delete(connection, schema.steps, _STEPS_KEY, old)
        pruned.attempts += _delete(connection, schema.attempts, _ATTEMPT_KEY, old)
    return len(old)


def _prune_decisions(engine: Engine, before_s: int, pruned: Pruned, progress: Callable[[int], None]) -> None:
    """Delete old decisions that no attempt named at the start: all attempts are read for this, once."""
    own = schema.decisions.c
    with engine.connect() as connection:
        named = named_for_clients(connection)
        query = select(own.id).where(own.time_s < before_s, _unnamed(engine))
        found = connection.execution_options(yield_per=ROWS_AT_ONCE).execute(query).scalars()
        old = [(decision_id,) for decision_id in found if decision_id not in named]
    for begin in range(0, len(old), ROWS_AT_ONCE):
        with writing(engine) as connection:
            part = old[begin : begin + ROWS_AT_ONCE]
            pruned.decisions += _delete(connection, schema.decisions, ("id",), part)
        progress(pruned.rows)


def _prune_some(engine: Engine, table: Table, is_old: ColumnElement[bool]) -> int:
    key = table.primary_key.columns.keys()
    with writing(engine) as connection:
        query = select(*table.primary_key.columns).where(is_old).limit(ROWS_AT_ONCE)
        return _delete(connection, table, key, connection.execute(query).all())


def _delete(connection: Connection, table: Table, names: Sequence[str], keys: Sequence[Sequence[Any]]) -> int:
    """Delete the rows whose columns `names` have one of these values, and return how many there were."""
    if not keys:
        return 0
    statement = delete(table).where(*(table.c[name] == bindparam(f"key_{name}") for name in names))
    values = [{f"key_{name}": value for name, value in zip(names, key, strict=True)} for key in keys]
    return connection.execute(statement, values).rowcount


def _unnamed(engine: Engine) -> ColumnElement[bool]:
    """Whether no attempt names a decision, in the form in which each database reads the attempts only once."""
    decision_id, named = schema.decisions.c.id, schema.attempts.c.decision_id
    if engine.dialect.name == "postgresql":
        return ~exists().where(named == decision_id)
    return decision_id.not_in(select(named))


def _give_room_back(engine: Engine, pruned: Pruned) -> str:
    """Let the database free its empty space; return why it could not, '' if it did or little is empty."""
    # MariaDB copies every table as a whole: not worth it for the space of one day, which the next day fills.
    is_much = engine.dialect.name == "mariadb" and _share_gone(engine, pruned) > WORTH_SHRINKING
    statements = {
        "sqlite": _SHRINK_SQLITE if _share_empty(engine) > WORTH_SHRINKING else [],
        "postgresql": [f"VACUUM {name}" for name in schema.metadata.tables],
        "mariadb": [f"OPTIMIZE TABLE {name}" for name in schema.metadata.tables if is_much],
    }
    try:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for statement in statements[engine.dialect.name]:
                connection.exec_driver_sql(statement).close()
    except StoreError as error:  # the rows are deleted all the same
        return str(error)
    return ""


def _share_gone(engine: Engine, pruned: Pruned) -> float:
    """Return the share of attempts or of decisions, whichever is larger, that was deleted just now."""
    with engine.connect() as connection:
        left = [
            int(connection.execute(select(func.count()).select_from(table)).scalar() or 0)
            for table in (schema.attempts, schema.decisions)
        ]
    gone = (pruned.attempts, pruned.decisions)
    return max(one / max(1, one + rest) for one, rest in zip(gone, left, strict=True))


def _share_empty(engine: Engine) -> float:
    if engine.dialect.name != "sqlite":
        return 0.0
    with engine.connect() as connection:
        empty, pages = (
            int(connection.exec_driver_sql(f"PRAGMA {name}").scalar() or 0)
            for name in ("freelist_count", "page_count")
        )
    return empty / max(1, pages)
