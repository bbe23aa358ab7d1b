"""How fast accounting goes into a store, against what each database's own driver does at best with the same rows.

    python -m bench.ingest_rate [--jobs 2000000] [--mariadb] [--format table|json|csv]

A seeded site's attempts, with two steps each, go into a fresh store by our upsert, and into separate tables of the
same form by bare `sqlite3.executemany` (INSERT) or bare `COPY`, which get ready-made tuples and bytes. All write in
their own processes, alternating chunk by chunk, so that noise on the machine affects all; the ratio is the median
over pairs of chunks. Both have the same settings. Then everything is upserted once more, and the rows are compared.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine
from sqlalchemy.engine import make_url

from accounting.store import schema
from accounting.store.database import open_store
from bench.arguments import parser_of
from bench.figures import goal
from bench.store_writers import AGAIN, BARE, OURS, TABLES, Writer, Written, writer
from slurm_plugin.cli.output import note, print_rows
from tests import servers

RATE, RATIO, PEAK_MIB = 150_000, 0.8, 1024
# What anybody sets on a server for millions of rows; the defaults are for few. Durability is unchanged.
SETTINGS = {
    servers.POSTGRESQL: ("shared_buffers=1GB", "max_wal_size=8GB", "checkpoint_timeout=15min"),
    servers.MARIADB: ("--innodb-buffer-pool-size=1G", "--innodb-log-file-size=1G"),
}


@dataclass(frozen=True)
class Place:
    """A database to measure: a store, and the place of the same rows written without our code."""

    name: str
    url: str
    bare_url: str


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=int, default=2_000_000)
    parser.add_argument("--each", type=int, default=100_000, help="jobs in a transaction")
    parser.add_argument("--mariadb", action="store_true", help="MariaDB, too")
    arguments = parser.parse_args()
    chunks = max(1, arguments.jobs // arguments.each)
    table, goals = [], []
    with ExitStack() as undo:
        for place in places(undo, mariadb=arguments.mariadb):
            written = measure(place, chunks, min(arguments.each, arguments.jobs))
            table += rows(place, written)
            if place.name != servers.MARIADB:
                goals += goals_of(place, written)
            check_same(place)
    if arguments.format == "table":
        print_rows(goals, "table", "Goals")
    print_rows(table, arguments.format, "Attempts and steps into a store")


def places(undo: ExitStack, *, mariadb: bool) -> list[Place]:
    """Create the databases that can run here; SQLite's is in the temporary folder, which should be on a disk."""
    folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="rightsizer-bench-")))
    found = [Place("sqlite", f"sqlite:///{folder}/ours.db", f"sqlite:///{folder}/bare.db")]
    for kind, start in ((servers.POSTGRESQL, servers.postgresql), (servers.MARIADB, servers.mariadb)):
        reason = servers.missing(kind) if kind == servers.POSTGRESQL or mariadb else "--mariadb was not given"
        if reason:
            note(f"without {kind}: {reason}")
            continue
        server = undo.enter_context(start(*SETTINGS[kind]))
        url = server.new_database()
        found.append(Place(kind, url, url if kind == servers.POSTGRESQL else server.new_database()))
    for place in found:
        _make_tables(place)
    return found


def _make_tables(place: Place) -> None:
    engine = open_store(place.url, create=True)
    if place.url == place.bare_url:
        with engine.begin() as connection:
            connection.exec_driver_sql("CREATE SCHEMA bare")
            for table in TABLES:
                connection.exec_driver_sql(
                    f"CREATE TABLE bare.{table.name} (LIKE public.{table.name} INCLUDING ALL)"
                )
    else:
        open_store(place.bare_url, create=True).dispose()
    engine.dispose()


def measure(place: Place, chunks: int, each: int) -> dict[str, list[Written]]:
    """Write all chunks, alternating, then write ours once more."""
    written: dict[str, list[Written]] = {OURS: [], BARE: [], AGAIN: []}
    with writer(OURS, place.url, each) as ours, writer(BARE, place.bare_url, each) as bare:
        both: list[tuple[str, Writer]] = [(OURS, ours), (BARE, bare)]
        for number in range(chunks):
            note(f"{place.name}: {number + 1} of {chunks}")
            for way, one in both:
                written[way].append(one.write(number))
            both.reverse()
    with writer(AGAIN, place.url, each) as again:
        note(f"{place.name}: all of it again")
        written[AGAIN] += [again.write(number) for number in range(chunks)]
    return written


def rows(place: Place, written: dict[str, list[Written]]) -> list[dict[str, object]]:
    """Return a row for each way of writing."""
    bare = {OURS: ratio(written), BARE: 1.0, AGAIN: None}
    return [
        {
            "database": place.name,
            "way": way,
            "rows/s": round(rate(parts)),
            "ours / bare": None if bare[way] is None else round(bare[way] or 0.0, 3),
            "peak RSS (MiB)": round(parts[-1].peak_mib),
            "rows": sum(part.rows for part in parts),
        }
        for way, parts in written.items()
    ]


def rate(parts: list[Written]) -> float:
    """Return rows per second over all chunks."""
    return sum(part.rows for part in parts) / sum(part.seconds for part in parts)


def ratio(written: dict[str, list[Written]]) -> float:
    """Return our rate over the bare one, as the median over pairs of chunks."""
    pairs = zip(written[OURS], written[BARE], strict=True)
    return statistics.median(bare.seconds / ours.seconds for ours, bare in pairs)


def goals_of(place: Place, written: dict[str, list[Written]]) -> list[dict[str, object]]:
    """Return a row a goal."""
    peak_mib = max(written[way][-1].peak_mib for way in (OURS, AGAIN))
    return [
        goal("rows/s", place.name, rate(written[OURS]), RATE, at_most=False),
        goal("rows/s, again", place.name, rate(written[AGAIN]), RATE, at_most=False),
        goal("ours / bare", place.name, ratio(written), RATIO, at_most=False),
        goal("peak RSS (MiB)", place.name, peak_mib, PEAK_MIB, at_most=True),
    ]


def check_same(place: Place) -> None:
    """End the benchmark if the two do not hold the same rows."""
    engine = open_store(place.url)
    other = {"sqlite": "bare", "postgresql": "bare"}.get(place.name, make_url(place.bare_url).database)
    with engine.connect() as connection:
        if place.name == "sqlite":
            connection.connection.cursor().execute(
                f"ATTACH DATABASE '{make_url(place.bare_url).database}' AS bare"
            )
    _compare(engine, str(other))
    engine.dispose()


def _compare(engine: Engine, other: str) -> None:
    equal = {"sqlite": "IS", "postgresql": "IS NOT DISTINCT FROM", "mariadb": "<=>"}[engine.dialect.name]
    quote = engine.dialect.identifier_preparer.quote
    with engine.connect() as connection:
        for table in schema.metadata.sorted_tables:
            if table not in TABLES:
                continue
            key = ", ".join(column.name for column in table.primary_key.columns)
            others = [quote(column.name) for column in table.columns if not column.primary_key]
            same = " AND ".join(f"a.{name} {equal} b.{name}" for name in others)
            counts = [
                int(connection.exec_driver_sql(f"SELECT COUNT(*) FROM {query}").scalar() or 0)  # noqa: S608
                for query in (
                    table.name,
                    f"{other}.{table.name}",
                    f"{table.name} a JOIN {other}.{table.name} b USING ({key}) WHERE {same}",
                )
            ]
            if len(set(counts)) != 1 or not counts[0]:
                sys.exit(f"{engine.dialect.name}: {table.name} differ: ours, bare and equal are {counts}")
            note(f"{engine.dialect.name}: {counts[0]:,} {table.name} are the same")


if __name__ == "__main__":
    main()
