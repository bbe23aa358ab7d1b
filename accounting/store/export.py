"""Exports the store's tables as Parquet or CSV, in bounded memory: a file is complete, or it is not there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from sqlalchemy import ColumnElement, Engine, select

from accounting.errors import StoreError
from accounting.owned_files import sync
from accounting.presence import is_folder, is_there
from accounting.store.batches import count_rows, read_batches
from accounting.store.meanings import EXPORTED, export_schema

SUFFIXES = (".parquet", ".csv")
# Batches are collected into row groups of about this many rows, or bytes: Parquet reads and packs large ones better.
ROWS_A_GROUP = 100_000
BYTES_A_GROUP = 64 * 1024**2

Change = Callable[[pa.Table], pa.Table]


class _Writer(Protocol):
    def write_table(self, table: pa.Table) -> None: ...

    def close(self) -> None: ...


def export(
    engine: Engine,
    what: str,
    file: Path,
    *,
    force: bool = False,
    conditions: Sequence[ColumnElement[bool]] = (),
    change: Change = lambda table: table,
    progress: Callable[[float, int], None] = lambda _done, _rows: None,
) -> int:
    """Write a table of the store (a key of EXPORTED), or its rows that meet the conditions, and return their number.

    `change` is applied to each part before it is written, for example to hide names. Raises StoreError if the suffix is
    unknown, or if the file exists and may not be replaced, or cannot be written; nothing is left behind then.
    """
    refuse_target(file, force=force)
    table, _ = EXPORTED[what]
    query, schema = select(*table.columns).where(*conditions), export_schema(what)
    rows, written = count_rows(engine, query), 0
    try:
        with _beside(file) as beside:
            writer = _writer(beside, file.suffix, schema)
            try:
                for part in _grouped(read_batches(engine, query)):
                    writer.write_table(change(part).cast(schema))
                    written += part.num_rows
                    progress(min(1.0, written / max(1, rows)), written)
            finally:
                writer.close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreError(
            f"cannot write {file}: {reason}; no file was left behind; give another --to"
        ) from None
    return written


def refuse_target(file: Path, *, force: bool) -> None:
    """Raise StoreError if a file cannot be the target of an export."""
    if file.suffix not in SUFFIXES:
        raise StoreError(f"{file.name}: unknown format; the file's name must end in .parquet or .csv")
    try:
        is_a_folder, is_taken = is_folder(file), is_there(file)
    except OSError as error:  # in a folder that this user may not access
        raise StoreError(f"cannot write {file}: {error.strerror}; give another --to") from None
    if is_a_folder:
        raise StoreError(f"{file} is a folder; give a file name in it")
    if is_taken and not force:
        raise StoreError(f"{file} exists already; give another name, or --force to replace it")


def _writer(file: Path, suffix: str, schema: pa.Schema) -> _Writer:
    writer: _Writer
    if suffix == ".csv":
        writer = pa.csv.CSVWriter(file, schema)
    else:
        writer = pa.parquet.ParquetWriter(file, schema, compression="zstd")
    return writer


def _grouped(batches: Iterator[pa.Table]) -> Iterator[pa.Table]:
    waiting: list[pa.Table] = []
    for batch in batches:
        waiting.append(batch)
        rows = sum(table.num_rows for table in waiting)
        size_bytes = sum(table.nbytes for table in waiting)
        if rows >= ROWS_A_GROUP or size_bytes >= BYTES_A_GROUP:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


@contextmanager
def _beside(file: Path) -> Iterator[Path]:
    """Yield a new file next to `file`, which replaces it once everything is on disk; else it is removed."""
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    beside = Path(name)
    with ExitStack() as undo:
        undo.callback(beside.unlink, missing_ok=True)
        os.close(descriptor)
        yield beside
        sync(beside)
        beside.replace(file)
        undo.pop_all()
