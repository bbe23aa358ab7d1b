"""Timeouts for database servers: PyMySQL has no separate timeout for a server's first answer.

Its `connect_timeout` covers only TCP, and the kernel accepts TCP connections for a server that hangs. Its
`read_timeout` covers every answer, from the first one to that of an hour-long statement. Here each has its own.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import URL, Dialect
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError

CONNECT_WAIT_S = 10
PYMYSQL = "pymysql"


def unless_said(url: URL, **waits_s: int) -> dict[str, int]:
    """Return those of a driver's timeouts, by the driver's names for them, that the URL does not set itself."""
    return {name: wait_s for name, wait_s in waits_s.items() if name not in url.query}


def connect_in_time(
    dialect: Dialect, _record: object, arguments: list[Any], options: dict[str, Any]
) -> DBAPIConnection | None:
    """Connect with PyMySQL, with `connect_timeout` for each answer of the server until the login is complete.

    A handler for SQLAlchemy's event `do_connect`. Returns None for other drivers, so that SQLAlchemy connects.
    Raises ArgumentError if the URL has options that PyMySQL does not know, or names a file that does not exist.
    """
    if dialect.driver != PYMYSQL:
        return None
    to_connect = {**options, "read_timeout": options["connect_timeout"]}
    try:
        session: Any = dialect.connect(*arguments, **to_connect)
    # A server that refuses the connection raises PyMySQL's own errors, which pass through.
    except (TypeError, ValueError, AttributeError, OSError) as error:
        raise ArgumentError(f"PyMySQL refuses the options: {error}") from None
    session._read_timeout = options["read_timeout"]  # noqa: SLF001 - it has no name for it once it is connected
    return session  # type: ignore[no-any-return]
