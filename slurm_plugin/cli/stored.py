"""Open the configured store and read its attempts, for all commands that use them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from slurm_plugin.config.secret_urls import store_url
from slurm_plugin.config.settings import Config
from slurm_plugin.freed_memory import give_back_memory

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from accounting.records import Attempt
    from models.past.columns import PastColumns


def check_store(config: Config) -> None:
    """Raise StoreError if the store cannot be used; called before a command imports modules that take many seconds."""
    from accounting.store.database import open_store

    open_store(store_url(config)).dispose()


@contextmanager
def opened_store(config: Config) -> Iterator[Engine]:
    """Yield the configured store, and close it afterwards; StoreError if it cannot be used."""
    from accounting.store.database import open_store

    engine = open_store(store_url(config))
    try:
        yield engine
    finally:
        engine.dispose()


def stored_attempts(config: Config) -> Iterator[Attempt]:
    """Yield all attempts of the configured store in order of submission, while they are read."""
    from accounting.store.records import all_attempts

    with opened_store(config) as engine:
        yield from all_attempts(engine)


def stored_past(config: Config) -> PastColumns:
    """Return the attempts of the configured store that have ended by now, in columns.

    The ends of jobs that ran while a clock was ahead are still to come. The promotion gate judges on jobs that are
    newer than all that the current model learned from: with such jobs among these, there would be none for so long.
    """
    from accounting.store.records import read_attempt_columns
    from models.past.columns import COLUMNS, columns_of

    with opened_store(config) as engine:
        past = columns_of(read_attempt_columns(engine, COLUMNS))
    has_ended = past.end_s <= time.time()
    if not has_ended.all():
        past = past.part(has_ended)
    # Memory that the allocator kept after reading would add to what training needs.
    give_back_memory()
    return past
