"""Queries for a few jobs read no whole table, by SQLite's query plans.

Queries that do read a whole table are planned as such by PostgreSQL.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event

from accounting.store.audit import read_links, read_recoveries_of, stored_origin
from accounting.store.bulk import known_digests, upsert_attempts
from accounting.store.database import open_store, writing
from accounting.store.recorded import (
    decisions_about,
    jobs_with_other_steps,
    read_meters,
    read_records,
    stored_comments,
)
from accounting.store.records import (
    earliest_end_s,
    known_attempts,
    latest_end_s,
    latest_measured,
    latest_named,
    read_decisions,
    read_gpu_use,
    read_input_mib,
    read_runs,
    stored_attempts,
)
from bench import site_rows
from tests import servers
from tests.builders import T0, attempt
from tests.stores import write_attempts

READERS: dict[str, Callable[[Connection], object]] = {
    "comments": lambda connection: list(stored_comments(connection, [1, 2])),
    "decisions": lambda connection: read_decisions(connection, ["a", "b"]),
    "decisions about": lambda connection: list(decisions_about(connection, ["ann"], [(T0, T0 + 100)])),
    "digests": lambda connection: known_digests(connection, 0, 10),
    "first end": earliest_end_s,
    "input": lambda connection: read_input_mib(connection, ["a", "b"]),
    "known": lambda connection: known_attempts(connection, [1, 2]),
    "last end": lambda connection: latest_end_s(connection, 10, "alpha"),
    "latest measured": lambda connection: latest_measured(connection, T0 + 200, "alpha"),
    "latest named": lambda connection: latest_named(connection, T0 + 200, "alpha"),
    "links": lambda connection: list(read_links(connection, "decisions", 10, ["a"])),
    "meters": lambda connection: read_meters(connection, [1, 2]),
    "origin": lambda connection: stored_origin(connection, "a"),
    "records": lambda connection: read_records(connection, [1, 2]),
    "steps that are not told": lambda connection: jobs_with_other_steps(
        connection, read_records(connection, [1])
    ),
    "recoveries": lambda connection: read_recoveries_of(connection, [1, 2]),
    "runs": lambda connection: read_runs(connection, [1, 2]),
    "stored": lambda connection: stored_attempts(connection, [1, 2]),
    "use of GPUs": lambda connection: read_gpu_use(connection, [1, 2]),
}


@pytest.mark.parametrize("reader", READERS)
def test_queries_for_a_few_jobs_read_no_whole_table(tmp_path: Path, reader: str) -> None:
    engine = open_store(f"sqlite:///{tmp_path}/store.db", create=True)
    plans: list[str] = []

    def explain(_: Connection, cursor: Any, statement: str, parameters: Any, *__: object) -> None:
        if statement.startswith("SELECT"):
            told = cursor.connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
            plans.extend(row[3] for row in told)

    with engine.begin() as connection:
        write_attempts(connection, [attempt(job_id=1)])
        event.listen(engine, "before_cursor_execute", explain)
        READERS[reader](connection)
    engine.dispose()
    assert plans
    # A search by cluster alone reads everything in a store of one cluster.
    whole = [plan for plan in plans if plan.startswith("SCAN") or plan.endswith("(cluster=?)")]
    assert whole == []


@pytest.mark.parametrize("kind", [servers.POSTGRESQL], indirect=True)
def test_postgresql_plans_for_all_rows_that_a_cursor_reads(store: Engine) -> None:
    with writing(store) as connection:
        upsert_attempts(connection, *site_rows.chunk(0, 2000))
        connection.exec_driver_sql("ANALYZE attempts")
    query = "SELECT job_name FROM attempts ORDER BY end_s"
    with store.connect() as connection:
        of_all, of_cursor = (
            connection.exec_driver_sql(f"{how} {query}").all()
            for how in ("EXPLAIN", "EXPLAIN DECLARE one CURSOR FOR")
        )
    assert of_cursor == of_all
