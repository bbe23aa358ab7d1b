"""Opening a store: connection settings, and a schema that is neither foreign nor newer than this program."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from alembic import command
from alembic.config import Config as AlembicConfig
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, ExceptionContext, create_engine, event, inspect
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from accounting.errors import StoreError

SQLITE_WAIT_S = 30


def open_store(url: str, *, create: bool = False) -> Engine:
    """Return an engine on the store at `url`, its schema brought forward to this program's.

    With `create` an empty or missing database becomes a store; without it that is a StoreError, as is a database
    that is broken, unreachable, not ours, or of a newer schema.
    """
    engine = _engine(url, create=create)
    try:
        _settle_schema(engine, url, create=create)
    except SQLAlchemyError as error:
        engine.dispose()
        raise StoreError(
            f"cannot use the store {_shown(url)}: {_first_line(error)}; check store.url"
        ) from None
    except StoreError:
        engine.dispose()
        raise
    return engine


def _engine(url: str, *, create: bool) -> Engine:
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite" and parsed.database:
            _prepare_folder(Path(parsed.database), create=create)
        engine = create_engine(parsed)
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        raise StoreError(
            f"store.url {_shown(url)!r} is not usable: {error}; write for example sqlite:////var/lib/rightsizer/store.db"
        ) from None
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _tune_sqlite)
    event.listen(engine, "handle_error", _refuse)
    return engine


def _refuse(context: ExceptionContext) -> None:
    """Whatever the database refuses, now or later, is one line for the caller: damage, a lock, a full disk."""
    url = context.engine.url.render_as_string() if context.engine else "store"
    reason = str(context.original_exception).splitlines() or [type(context.original_exception).__name__]
    raise StoreError(f"cannot use the store {url}: {reason[0]}; check store.url and the database behind it")


def _prepare_folder(file: Path, *, create: bool) -> None:
    try:
        if not create and not file.exists():
            raise StoreError(f"there is no store at {file}; run `rightsizer ingest` first")
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot make {file.parent}: {error.strerror}; set store.url to a folder you may write"
        ) from None


def _tune_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    """FULL keeps a finished transaction through a power cut."""
    cursor = connection.cursor()
    for pragma in ("synchronous=FULL", "foreign_keys=ON", f"busy_timeout={SQLITE_WAIT_S * 1000}"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _settle_schema(engine: Engine, url: str, *, create: bool) -> None:
    config = AlembicConfig()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    scripts = ScriptDirectory.from_config(config)
    with engine.connect() as connection:
        current = MigrationContext.configure(connection).get_current_revision()
        if current == scripts.get_current_head():
            return
        _refuse_foreign(connection, current, scripts, url, create=create)
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        connection.commit()
        if engine.dialect.name == "sqlite":
            # Stays with the file: the analyst reads while ingest writes. Not before the file is known to be ours.
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")


def _refuse_foreign(
    connection: Connection, current: str | None, scripts: ScriptDirectory, url: str, *, create: bool
) -> None:
    if current is not None:
        if current not in {script.revision for script in scripts.walk_revisions()}:
            raise StoreError(
                f"the store {_shown(url)} has schema {current}, which this version does not know; "
                "it was written by a newer slurm-rightsizer: install that one, or set another store.url"
            )
    elif inspect(connection).get_table_names():
        raise StoreError(f"{_shown(url)} is a database, but not a rightsizer store; set another store.url")
    elif not create:
        raise StoreError(f"the store {_shown(url)} is empty; run `rightsizer ingest` first")


def _shown(url: str) -> str:
    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return url


def _first_line(error: SQLAlchemyError) -> str:
    return str(getattr(error, "orig", None) or error).splitlines()[0]
