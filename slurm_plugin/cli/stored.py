"""The attempts of the configured store, for the commands that learn from them or judge by them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurm_plugin.config.secret_urls import store_url
from slurm_plugin.config.settings import Config

if TYPE_CHECKING:
    from accounting.records import Attempt
    from models.past.columns import PastColumns


def check_store(config: Config) -> None:
    """Raise StoreError where the configured store cannot be used: before a command imports what takes many seconds."""
    from accounting.store.database import open_store

    open_store(store_url(config)).dispose()


def stored_attempts(config: Config, submitted_from_s: int | None = None) -> list[Attempt]:
    """Return all attempts of the configured store, or those submitted from a time (unix seconds) on."""
    from accounting.store.database import open_store
    from accounting.store.records import read_attempts

    engine = open_store(store_url(config))
    try:
        return read_attempts(engine, submitted_from_s=submitted_from_s)
    finally:
        engine.dispose()


def stored_past(config: Config) -> PastColumns:
    """Return all attempts of the configured store in columns."""
    from accounting.store.database import open_store
    from accounting.store.records import read_attempt_columns
    from models.past.columns import COLUMNS, columns_of

    engine = open_store(store_url(config))
    try:
        return columns_of(read_attempt_columns(engine, COLUMNS))
    finally:
        engine.dispose()
