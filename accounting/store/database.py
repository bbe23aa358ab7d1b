"""Opens a store: connection settings, a schema that is neither foreign nor newer than this program, and the write lock.

All writing is done inside `writing`: one writer at a time, the others wait. Whatever a database refuses, then or
later, reaches the caller as one StoreError (`_refuse`).
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config as AlembicConfig
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, Engine, ExceptionContext, create_engine, event, inspect, text
from sqlalchemy.engine import make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from accounting.database_waits import CONNECT_WAIT_S, connect_in_time, unless_said
from accounting.errors import StoreError, install_with
from accounting.owned_files import fix_for, make_folder, open_owned
from accounting.presence import is_there
from accounting.store.complaints import busy, complaint, shown
from accounting.store.schema import COLLATION, metadata

# How long writing the largest window of a busy site may take, with a margin.
WRITE_WAIT_S = 120
READ_WAIT_S = 30
# As long as the whole run of rightsizer-ingest.service may take. A query that sorts all attempts gives no answer
# for some 15 s per million.
ANSWER_WAIT_S = 3 * 3600
# The drivers that the bulk paths use.
DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "mariadb": "mariadb+pymysql"}
SQLITE_PRAGMAS = (
    "synchronous=FULL",  # a finished transaction survives a power cut
    "foreign_keys=ON",
    f"busy_timeout={READ_WAIT_S * 1000}",
    "cache_size=-131072",  # KiB: the inner pages of a large store's indices
    "temp_store=MEMORY",
)
# For a program that runs for months: it would come to hold as much as the store is large, up to the size above.
_LITTLE = "cache_size=-16384"
_WAIT_S = "rightsizer_write_wait_s"  # a connection's option: its transactions are for writing
_NO_SUCH_TABLE = 1146  # MariaDB
# Alembic has one context for all threads of a process.
_MIGRATING = threading.Lock()
_ADVISORY_LOCK = 7_163_874_112_004  # of this program, within one PostgreSQL database


def open_store(
    url: str, *, create: bool = False, tell: Callable[[str, str], None] = lambda _before, _after: None
) -> Engine:
    """Return an engine on the store at `url`, with this program's schema.

    With `create`, an empty or missing database becomes a store, and an older schema is upgraded, after `tell` is
    called with both revisions. Without it nothing is changed, and these cases raise StoreError. In any case, so
    does a database that is broken, unreachable, not ours, or of a newer schema.
    """
    return _opened(_engine(url, create=create), lambda engine: _settle_schema(engine, tell, create=create))


def open_to_take_back(url: str) -> Engine:
    """Return an engine on a store of this or an older schema, without changing it; StoreError for anything else.

    If an earlier attempt to take the store back was cut off, its schema may be one in between.
    """
    return _opened(_engine(url, create=False), _look_at_schema)


def _opened(engine: Engine, settle: Callable[[Engine], None]) -> Engine:
    try:
        settle(engine)
    except BaseException as error:
        engine.dispose()
        if isinstance(error, SQLAlchemyError):  # not the database's own, which _refuse has handled
            raise complaint(engine.url, error) from None
        raise
    return engine


@contextmanager
def writing(engine: Engine, wait_s: float = WRITE_WAIT_S) -> Iterator[Connection]:
    """Yield a connection in a transaction that no other writer disturbs; committed at the end, unless it raises.

    Waits for another writer for `wait_s` at most, then raises StoreError. Readers neither wait nor are waited for.
    """
    with ExitStack() as undo, engine.connect() as plain:
        connection = plain.execution_options(**{_WAIT_S: wait_s})
        if engine.dialect.name == "mariadb":
            # The lock belongs to the session and ends with it, after the commit, whatever happens.
            undo.callback(_close, connection.connection.dbapi_connection)
            connection.detach()
        with connection.begin():
            _take_turn(connection, wait_s)
            yield connection


def _close(session: Any) -> None:  # noqa: ANN401 - PyMySQL's connection, which has no types
    """Close a detached session: SQLAlchemy forgets a session that was lost, but its socket is still open."""
    if session.open:
        session.close()


def _take_turn(connection: Connection, wait_s: float) -> None:
    """Take the lock of this store; SQLite's was taken when the transaction began (_begin_sqlite)."""
    name = connection.dialect.name
    if name == "postgresql":
        connection.execute(text(f"SET LOCAL lock_timeout = {int(wait_s * 1000) or 1}"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _ADVISORY_LOCK})
        connection.execute(text("SET LOCAL lock_timeout = DEFAULT"))
    elif name == "mariadb":
        database = str(connection.engine.url.database)
        lock = "rightsizer-" + hashlib.sha256(database.encode()).hexdigest()[:32]
        taken = connection.execute(text("SELECT GET_LOCK(:lock, :wait_s)"), {"lock": lock, "wait_s": wait_s})
        if taken.scalar() != 1:
            raise busy(connection.engine.url)


def _engine(url: str, *, create: bool) -> Engine:
    parsed = _parsed(url)
    try:
        engine = create_engine(parsed, **_engine_options(parsed))
    except ImportError as error:
        extra = parsed.get_backend_name()
        raise StoreError(
            f"store.url {shown(url)!r} needs a driver ({error}); {install_with(extra)}"
        ) from None
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise _unusable(url, error) from None
    if engine.dialect.name == "sqlite":
        if parsed.database:
            _prepare_folder(Path(parsed.database), create=create)
        event.listen(engine, "connect", _tune_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    else:
        # Before SQLAlchemy looks at the session: otherwise it would quote by the server's sql_mode, not by ours.
        tune = _tune_mariadb if engine.dialect.name == "mariadb" else _tune_postgresql
        event.listen(engine, "connect", tune, insert=True)
        event.listen(engine, "do_connect", connect_in_time)
    event.listen(engine, "handle_error", _refuse)
    return engine


def check_url(url: str) -> None:
    """Raise StoreError if a URL cannot name a store, whatever exists there."""
    _parsed(url)


def _parsed(url: str) -> URL:
    try:
        parsed = _with_driver(make_url(url))
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        raise _unusable(url, error) from None
    except ValueError:
        raise _unusable(url, "its port is not a number") from None
    if parsed.get_backend_name() == "sqlite" and _is_in_memory(parsed):
        raise _unusable(url, "it names no file, and SQLite would lose all data when the command ends")
    if parsed.get_backend_name() == "sqlite" and not (parsed.database or "").removeprefix("file:").startswith(
        "/"
    ):
        raise _unusable(url, "its path is relative, which would be another file in each working directory")
    return parsed


def _is_in_memory(url: URL) -> bool:
    """Whether SQLite keeps this database in memory, or, for an empty name, in a file that it deletes."""
    name = url.database or ""
    in_uri = name.startswith("file:") and (":memory:" in name or url.query.get("mode") == "memory")
    return name in ("", ":memory:") or in_uri


def _unusable(url: str, error: object) -> StoreError:
    return StoreError(
        f"store.url {shown(url)!r} cannot be used: {error}; write for example "
        "sqlite:////var/lib/rightsizer/store.db"
    )


def _with_driver(url: URL) -> URL:
    backend = url.get_backend_name()
    if backend not in DRIVERS:
        url.get_dialect()  # raises an error if it does not know it
        raise ArgumentError(f"{backend} is not one of {', '.join(DRIVERS)}")
    if url.drivername not in (backend, DRIVERS[backend]):
        raise ArgumentError(f"the driver must be {DRIVERS[backend]}")
    return url.set(drivername=DRIVERS[backend])


def _engine_options(url: URL) -> dict[str, Any]:
    if url.get_backend_name() == "sqlite":
        return {}
    # Connections are not pooled: a server closes an idle one when sacct takes longer than its wait_timeout
    # (idle_session_timeout), or when it restarts.
    kept: dict[str, Any] = {"poolclass": NullPool}
    if url.get_backend_name() == "mariadb":
        # client_flag 0 means without SQLAlchemy's FOUND_ROWS: a row that is stored unchanged must not count as written.
        waits = unless_said(
            url, connect_timeout=CONNECT_WAIT_S, read_timeout=ANSWER_WAIT_S, write_timeout=ANSWER_WAIT_S
        )
        return {**kept, "connect_args": {"client_flag": 0, **waits}, "isolation_level": "READ COMMITTED"}
    # psycopg's own is two minutes.
    return {**kept, "connect_args": unless_said(url, connect_timeout=CONNECT_WAIT_S)}


def _refuse(context: ExceptionContext) -> None:
    """Turn whatever the database refuses, now or later, into one line for the caller: damage, a lock, a full disk."""
    error = context.original_exception
    if _asks_for_a_table(error) or not isinstance(error, Exception):
        return
    raise complaint(context.engine.url if context.engine else "store", error)


def _asks_for_a_table(error: BaseException) -> bool:
    """Whether MariaDB has no such table: SQLAlchemy itself uses this error to find out whether there is one."""
    return bool(error.args) and error.args[0] == _NO_SUCH_TABLE


@contextmanager
def refusing(connection: Connection) -> Iterator[None]:
    """Turn the errors of a driver used directly, without SQLAlchemy, into one line."""
    driver = connection.dialect.loaded_dbapi
    try:
        yield
    except driver.Error as error:
        if connection.dialect.is_disconnect(error, connection.connection.dbapi_connection, None):
            connection.invalidate(error)  # or a rollback's complaint would hide this error
        raise complaint(connection.engine.url, error) from None


def _prepare_folder(file: Path, *, create: bool) -> None:
    try:
        if not create and not is_there(file):
            raise StoreError(f"the store {file} does not exist; run `rightsizer ingest` first")
        make_folder(file.parent)
        if create and not str(file).startswith((":", "file:")) and not is_there(file):
            # SQLite treats an empty file as a new database. Made here, it has the right owner, and so have the
            # files that SQLite puts next to it.
            os.close(open_owned(file, os.O_WRONLY | os.O_CREAT, 0o644))
    except OSError as error:
        what, fix = (
            (
                "make",
                fix_for(
                    error,
                    "run this as the service's user, give that user the folder (chown), or set store.url",
                ),
            )
            if create
            else ("read", "run this as the user who owns the store")
        )
        raise StoreError(f"cannot {what} {file.parent}: {error.strerror}; {fix}") from None


def _tune_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # the driver must not begin transactions: _begin_sqlite does
    for pragma in SQLITE_PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")


def hold_little(engine: Engine) -> None:
    """Keep few pages of a store in memory from now on; no effect if a server keeps them."""
    if engine.dialect.name == "sqlite":
        engine.dispose()
        event.listen(engine, "connect", lambda connection, _: connection.execute(f"PRAGMA {_LITTLE}"))


def _begin_sqlite(connection: Connection) -> None:
    """Begin a transaction. A writer takes the lock at once: a transaction that has read cannot wait for it."""
    options = connection.get_execution_options()
    wait_s = options.get(_WAIT_S)
    if options.get("isolation_level") == "AUTOCOMMIT":
        return
    if wait_s is None:
        connection.exec_driver_sql("BEGIN")
        return
    connection.exec_driver_sql(f"PRAGMA busy_timeout={int(wait_s * 1000)}")
    connection.exec_driver_sql("BEGIN IMMEDIATE")
    connection.exec_driver_sql(f"PRAGMA busy_timeout={READ_WAIT_S * 1000}")


def _tune_postgresql(connection: Any, _record: object) -> None:  # noqa: ANN401 - psycopg is an extra
    """Make texts UTF-8, whatever the server's or database's default, and plan cursors for reading all of a result.

    By default they are planned for the first tenth of it, which makes a join of millions take hours.
    """
    connection.execute("SET client_encoding = 'UTF8'")
    connection.execute("SET cursor_tuple_fraction = 1")
    connection.commit()


def _tune_mariadb(connection: DBAPIConnection, _record: object) -> None:
    """Let nothing be truncated, names compare exactly, a backslash escape, and tables have transactions and long keys.

    This holds whatever the server's defaults are.
    """
    with closing(connection.cursor()) as cursor:
        cursor.execute("SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'")
        cursor.execute("SET SESSION default_storage_engine = InnoDB")
        cursor.execute(f"SET NAMES utf8mb4 COLLATE {COLLATION}")


def migrations() -> AlembicConfig:
    """Return Alembic's configuration for our migrations, except for the connection."""
    config = AlembicConfig()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    return config


def _look_at_schema(engine: Engine) -> None:
    with engine.connect() as connection:
        _is_current(connection, ScriptDirectory.from_config(migrations()), create=False)


def _settle_schema(engine: Engine, tell: Callable[[str, str], None], *, create: bool) -> None:
    config = migrations()
    scripts = ScriptDirectory.from_config(config)
    with engine.connect() as connection:
        if _is_current(connection, scripts, create=create):
            return
    if not create:
        raise StoreError(
            f"the store {shown(engine.url)} has the schema of an older version; run `rightsizer "
            "ingest`, which upgrades it"
        )
    if engine.dialect.name == "sqlite":
        # Stays with the file: the analyst reads while ingest writes. Not before the file is known to be ours.
        with engine.connect() as connection, refusing(connection):
            connection.connection.cursor().execute("PRAGMA journal_mode=WAL")
    with writing(engine) as connection:
        if not _is_current(connection, scripts, create=create):  # nobody else was faster
            before = MigrationContext.configure(connection).get_current_revision()
            if before is not None:
                tell(before, scripts.get_current_head() or "")
            config.attributes["connection"] = connection
            with _MIGRATING:
                command.upgrade(config, "head")


def _is_current(connection: Connection, scripts: ScriptDirectory, *, create: bool) -> bool:
    """Return whether the schema is this program's; StoreError if the store cannot be upgraded to it."""
    current = MigrationContext.configure(connection).get_current_revision()
    if current != scripts.get_current_head():
        _refuse_foreign(connection, current, scripts, create=create)
        return False
    return True


def _refuse_foreign(
    connection: Connection, current: str | None, scripts: ScriptDirectory, *, create: bool
) -> None:
    where, tables = shown(connection.engine.url), set(inspect(connection).get_table_names())
    # MariaDB keeps what an interrupted creation made: our tables, and a version table without a version.
    unfinished = "alembic_version" in tables and tables - {"alembic_version"} <= set(metadata.tables)
    if current is not None:
        if current not in {script.revision for script in scripts.walk_revisions()}:
            raise StoreError(
                f"the store {where} has schema {current}, which this version does not know: a newer "
                "slurm-rightsizer wrote it; install that version, or set another store.url"
            )
    elif tables and not unfinished:
        raise StoreError(f"{where} is a database, but not a store of rightsizer; set another store.url")
    elif not create:
        raise StoreError(f"the store {where} is empty; run `rightsizer ingest` first")
