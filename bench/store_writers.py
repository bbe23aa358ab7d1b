"""Processes that write a site's rows into a store: ours, and what each database's own driver does at best.

Each runs separately, so that its memory is its own, and writes a chunk when told to, in one transaction. Making the
rows, and what the bare drivers get (tuples for executemany, bytes for COPY), is not included in the measured time.
"""

from __future__ import annotations

import multiprocessing
import resource
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from typing import Any

import pyarrow as pa
import pyarrow.csv as pcsv
from sqlalchemy.engine import make_url

from accounting.store import schema
from accounting.store.bulk import upsert, upsert_attempts
from accounting.store.database import SQLITE_PRAGMAS, open_store, writing
from bench import site_rows

OURS, BARE, AGAIN = "ours", "bare", "ours, again"
ROWS_A_CALL = 20_000
TABLES = (schema.attempts, schema.steps)

Chunk = tuple[pa.Table, pa.Table]
# Does what is not timed, and returns what is.
Prepare = Callable[[Chunk], Callable[[], None]]


@dataclass(frozen=True)
class Written:
    """One chunk: how many rows in how many seconds, and the process's peak memory so far."""

    rows: int
    seconds: float
    peak_mib: float


@dataclass(frozen=True)
class Writer:
    """A process that writes chunks."""

    pipe: Pipe

    def write(self, number: int) -> Written:
        """Write a chunk in the process."""
        self.pipe.send(number)
        answer = self.pipe.recv()
        if not isinstance(answer, Written):
            raise SystemExit(f"a writer failed: {answer}")
        return answer


@contextmanager
def writer(way: str, url: str, each: int) -> Iterator[Writer]:
    """Start a process that writes chunks of `each` jobs to the store at `url` in one of the ways above."""
    context = multiprocessing.get_context("spawn")
    mine, its = context.Pipe()
    process = context.Process(target=_serve, args=(its, way, url, each), daemon=True)
    process.start()
    try:
        yield Writer(mine)
    finally:
        mine.send(None)
        process.join()


def _serve(pipe: Pipe, way: str, url: str, each: int) -> None:
    with _ways(url)[way](url) as prepare:
        while (number := pipe.recv()) is not None:
            chunk = site_rows.chunk(number, each)
            write = prepare(chunk)
            begin_s = time.perf_counter()
            write()
            seconds = time.perf_counter() - begin_s
            peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            pipe.send(Written(sum(part.num_rows for part in chunk), seconds, peak_mib))


def _ways(url: str) -> dict[str, Any]:
    bare = {"sqlite": _bare_sqlite, "postgresql": _bare_postgresql, "mariadb": _bare_mariadb}
    return {OURS: _ours, AGAIN: _ours_again, BARE: bare[make_url(url).get_backend_name()]}


@contextmanager
def _ours(url: str) -> Iterator[Prepare]:
    engine = open_store(url)

    def write(chunk: Chunk) -> None:
        with writing(engine) as connection:
            upsert_attempts(connection, *chunk)

    yield lambda chunk: lambda: write(chunk)
    engine.dispose()


@contextmanager
def _ours_again(url: str) -> Iterator[Prepare]:
    """Only the upserts: leftover steps are not looked for, as if digests had shown that nothing changed."""
    engine = open_store(url)

    def write(chunk: Chunk) -> None:
        with writing(engine) as connection:
            for table, rows in zip(TABLES, chunk, strict=True):
                upsert(connection, table, rows)

    yield lambda chunk: lambda: write(chunk)
    engine.dispose()


@contextmanager
def _bare_sqlite(url: str) -> Iterator[Prepare]:
    connection = sqlite3.connect(str(make_url(url).database), isolation_level=None)
    for pragma in SQLITE_PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")

    def prepare(chunk: Chunk) -> Callable[[], None]:
        parts = [(_insert(name, rows, "?"), _tuples(rows)) for name, rows in _named(chunk)]

        def write() -> None:
            connection.execute("BEGIN")
            for statement, tuples in parts:
                connection.executemany(statement, tuples)
            connection.execute("COMMIT")

        return write

    yield prepare
    connection.close()


@contextmanager
def _bare_mariadb(url: str) -> Iterator[Prepare]:
    engine = open_store(url)
    connection: Any = engine.raw_connection()

    def prepare(chunk: Chunk) -> Callable[[], None]:
        parts = [(_insert(name, rows, "%s", "`"), _tuples(rows)) for name, rows in _named(chunk)]

        def write() -> None:
            with connection.cursor() as cursor:
                for statement, tuples in parts:
                    cursor.executemany(statement, tuples)
            connection.commit()

        return write

    yield prepare
    connection.close()
    engine.dispose()


@contextmanager
def _bare_postgresql(url: str) -> Iterator[Prepare]:
    engine = open_store(url)
    connection: Any = engine.raw_connection()

    def prepare(chunk: Chunk) -> Callable[[], None]:
        parts = [(name, _quoted(rows), list(_csv(rows))) for name, rows in _named(chunk)]

        def write() -> None:
            with connection.cursor() as cursor:
                for name, columns, texts in parts:
                    with cursor.copy(f"COPY bare.{name} ({columns}) FROM STDIN (FORMAT csv)") as copy:
                        for text in texts:
                            copy.write(text)
            connection.commit()

        return write

    yield prepare
    connection.close()
    engine.dispose()


def _named(chunk: Chunk) -> Iterator[tuple[str, pa.Table]]:
    """Yield each table's name and its rows, with the columns in the table's order."""
    for table, rows in zip(TABLES, chunk, strict=True):
        yield table.name, rows.select([column.name for column in table.columns])


def _insert(name: str, rows: pa.Table, place: str, quote: str = '"') -> str:
    columns = _quoted(rows, quote)
    return f"INSERT INTO {name} ({columns}) VALUES ({', '.join([place] * rows.num_columns)})"  # noqa: S608


def _quoted(rows: pa.Table, quote: str = '"') -> str:
    return ", ".join(f"{quote}{name}{quote}" for name in rows.column_names)


def _tuples(rows: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def _csv(rows: pa.Table) -> Iterator[bytes]:
    for begin in range(0, rows.num_rows, ROWS_A_CALL):
        sink = pa.BufferOutputStream()
        pcsv.write_csv(rows.slice(begin, ROWS_A_CALL), sink, pcsv.WriteOptions(include_header=False))
        yield sink.getvalue().to_pybytes()
