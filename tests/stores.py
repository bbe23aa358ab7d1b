"""Compares the contents of stores; and starts a process that writes windows into one, to be killed or starved."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import Connection as Pipe
from multiprocessing.process import BaseProcess
from typing import Any

import msgspec
from sqlalchemy import Connection, Engine, select

from accounting.records import Attempt, JobRow
from accounting.store import schema
from accounting.store.bulk import upsert_attempts
from accounting.store.database import open_store, writing
from accounting.store.records import Counts, windows_read, write_rows
from bench import site_rows
from tests.builders import Step

WINDOWS = 12
JOBS_A_WINDOW = 60
SOURCE = "windows"
# Its children start at once: they are forked from a process that has already imported everything.
_starter = multiprocessing.get_context("forkserver")
_starter.set_forkserver_preload(["tests.stores"])


def store_attempts(url: str, attempts: Sequence[Attempt]) -> None:
    """Open or create a store, and write attempts."""
    engine = open_store(url, create=True)
    with engine.begin() as connection:
        write_attempts(connection, attempts)
    engine.dispose()


def write_attempts(connection: Connection, attempts: Sequence[Attempt]) -> Counts:
    """Store attempts; the counts are of attempts."""
    return write_rows(connection, schema.attempts, (attempt_row(attempt) for attempt in attempts))


def attempt_row(attempt: Attempt) -> dict[str, Any]:
    """Return an attempt as a row of the store's table."""
    own = {name: getattr(attempt, name) for name in attempt.__struct_fields__ if name not in ("row", "use")}
    return {**msgspec.structs.asdict(attempt.row), **msgspec.structs.asdict(attempt.use), **own}


def write_steps(connection: Connection, steps: Iterable[tuple[JobRow, Step]]) -> Counts:
    """Store the steps of attempts."""
    return write_rows(connection, schema.steps, (_step_row(row, step) for row, step in steps))


def _step_row(row: JobRow, step: Step) -> dict[str, Any]:
    key = {
        "cluster": row.cluster,
        "job_id": row.job_id,
        "submit_s": row.submit_s,
        "attempt_start_s": row.start_s,
    }
    return {**key, **msgspec.structs.asdict(step)}


def content(engine: Engine, leave_out: frozenset[str] = frozenset()) -> dict[str, list[tuple[Any, ...]]]:
    """Return everything in a store, table by table, in an order that does not depend on the database."""
    with engine.connect() as connection:
        return {
            table.name: sorted(
                (tuple(row) for row in connection.execute(select(*_columns(table.columns, leave_out)))),
                key=repr,
            )
            for table in schema.metadata.tables.values()
        }


def _columns(columns: Any, leave_out: frozenset[str]) -> list[Any]:
    return [column for column in columns if column.name not in leave_out]


def write_windows(
    engine: Engine,
    windows: int = WINDOWS,
    jobs: int = JOBS_A_WINDOW,
    rounds: int = 1,
    written: Callable[[], None] = lambda: None,
) -> None:
    """Write windows from the last marked one on, marking each in its own transaction; then from the first again.

    This is what ingest does, without Slurm. `written` is called after each window.
    """
    chunks = [site_rows.chunk(number, jobs) for number in range(windows)]
    with engine.connect() as connection:
        done = windows_read(connection, SOURCE).get("", 0)
    for number in range(max(0, done - 1), rounds * windows):
        with writing(engine) as connection:
            upsert_attempts(connection, *chunks[number % windows])
            mark = {"source": SOURCE, "cluster": "", "read_until_s": min(windows, number + 1)}
            write_rows(connection, schema.windows, [mark])
        written()


def start_writing(url: str, rounds: int) -> tuple[BaseProcess, Pipe]:
    """Start a process that opens the store and writes windows, round after round; the pipe reports each one."""
    mine, its = _starter.Pipe()
    process = _starter.Process(target=_write, args=(url, rounds, its))
    process.start()
    its.close()
    return process, mine


def _write(url: str, rounds: int, pipe: Pipe) -> None:
    engine = open_store(url, create=True)
    write_windows(engine, rounds=rounds, written=lambda: pipe.send("written"))
    engine.dispose()
