"""An empty store, on SQLite only."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from accounting.store.database import open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Engine]:
    engine = open_store(f"sqlite:///{tmp_path}/store.db", create=True)
    yield engine
    engine.dispose()
