"""How long a database server is waited for: PyMySQL bounds a connection's first answer by no time of its own.

Its `connect_timeout` is that of TCP alone, whose connections the kernel takes for a server that hangs; `read_timeout`
bounds each answer, the first one and that of a statement of an hour. So each has its own here.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import URL, Dialect
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError

CONNECT_WAIT_S = 10
PYMYSQL = "pymysql"


def unless_said(url: URL, **waits_s: int) -> dict[str, int]:
    """Return those of a driver's waits, by its names for them, that a URL does not say itself."""
    return {name: wait_s for name, wait_s in waits_s.items() if name not in url.query}


def connect_in_time(
    dialect: Dialect, _record: object, arguments: list[Any], options: dict[str, Any]
) -> DBAPIConnection | None:
    """Connect by PyMySQL, with `connect_timeout` for each answer of a server until it has let us in.

    For SQLAlchemy's event `do_connect`; None, which leaves it to SQLAlchemy, for another driver. ArgumentError where a
    URL has options that PyMySQL does not know, or that name a file that is not there.
    """
    if dialect.driver != PYMYSQL:
        return None
    to_connect = {**options, "read_timeout": options["connect_timeout"]}
    try:
        session: Any = dialect.connect(*arguments, **to_connect)
    # What a server refuses is an error of PyMySQL's own.
    except (TypeError, ValueError, AttributeError, OSError) as error:
        raise ArgumentError(f"PyMySQL refuses the options: {error}") from None
    session._read_timeout = options["read_timeout"]  # noqa: SLF001 - it has no name for it once it is connected
    return session  # type: ignore[no-any-return]
