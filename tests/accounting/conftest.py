"""Stores on the three databases: SQLite in a folder, PostgreSQL and MariaDB on private servers started once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import Engine

from accounting.store.database import open_store
from tests import servers

KINDS = ("sqlite", servers.POSTGRESQL, servers.MARIADB)


@pytest.fixture(scope="session")
def database_server() -> Iterator[Callable[[str], servers.Server]]:
    """A function that returns the private server of a kind, started when it is first requested."""
    running: dict[str, servers.Server] = {}
    start = {servers.POSTGRESQL: servers.postgresql, servers.MARIADB: servers.mariadb}
    with ExitStack() as undo:

        def server(kind: str) -> servers.Server:
            reason = servers.missing(kind)
            if reason:
                pytest.skip(reason)
            if kind not in running:
                running[kind] = undo.enter_context(start[kind]())
            return running[kind]

        yield server


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Each database in turn."""
    return str(request.param)


@pytest.fixture
def url(kind: str, tmp_path: Path, database_server: Callable[[str], servers.Server]) -> Iterator[str]:
    """The URL of a store that does not exist yet."""
    if kind == "sqlite":
        yield f"sqlite:///{tmp_path}/deep/store.db"
        return
    server = database_server(kind)
    made = server.new_database()
    yield made
    server.drop_database(made)


@pytest.fixture
def store(url: str) -> Iterator[Engine]:
    """An empty store."""
    engine = open_store(url, create=True)
    yield engine
    engine.dispose()
