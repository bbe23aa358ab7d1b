"""A store of every released schema comes forward with all that is in it, on every database, cut off or not."""

from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config as AlembicConfig
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, event, insert, inspect, select, text
from sqlalchemy.schema import MetaData

import accounting.store.database as database
from accounting.errors import StoreError
from accounting.store import schema
from accounting.store.database import open_store, writing
from accounting.store.records import (
    read_attempts,
    read_decision,
    read_gpu_use,
    write_attempts,
    write_decisions,
)
from tests import servers
from tests.builders import attempt, decision, past

Row = dict[str, Any]
# What the tables of today have and those of 0001 had not.
NEWER = {
    "attempts": {
        "peak_node_mib",
        "cores_quality",
        "wall_quality",
        "gpu_mem_mib",
        "gpu_quality",
        "read_mib",
        "written_mib",
        "io_quality",
        "energy_j",
        "energy_quality",
        "slurm_release",
        "gather",
        "record_digest",
        "input_mib",
    },
    "decisions": {"input_mib"},
    "steps": {"nodes", "gpu_util_pct", "gpu_mem_mib", "read_mib", "written_mib", "energy_j"},
    "quarantine": {"source"},
    "gpu_use": {"instance", "power_mean_w"},
}


def bare_engine(url: str) -> Engine:
    """An engine as `open_store` makes it, without a look at the schema."""
    return database._engine(url, create=True)


def old_store(url: str) -> dict[str, list[Row]]:
    """Make a store of schema 0001 with rows in every table, and return them."""
    engine = bare_engine(url)
    config = AlembicConfig()
    config.set_main_option("script_location", str(Path(database.__file__).parent / "migrations"))
    with writing(engine) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
    rows = old_rows()
    reflected = MetaData()
    reflected.reflect(engine)
    with writing(engine) as connection:
        for name, some in rows.items():
            connection.execute(insert(reflected.tables[name]), some)
    engine.dispose()
    return rows


def old_rows() -> dict[str, list[Row]]:
    """Rows of schema 0001, taken from a store of today's."""
    engine = open_store("sqlite://", create=True)
    with engine.begin() as connection:
        write_attempts(connection, [*past(40), attempt(job_id=99, job_name="Größe 🚀 ")])
        write_decisions(connection, [decision(id="abc")])
        rows = {
            name: [dict(row) for row in connection.execute(select(schema.metadata.tables[name])).mappings()]
            for name in ("attempts", "decisions")
        }
    engine.dispose()
    use = {"job_id": 1, "node": "n1", "gpu": 0, "source": "nvml", "first_s": 1, "last_s": 9, "samples": 3}
    rows["gpu_use"] = [{**use, "util_max_pct": 90.0, "util_mean_pct": 50.0, "mem_max_mib": 100.0}]
    step = {"cluster": "alpha", "job_id": 1, "submit_s": 1, "attempt_start_s": 2, "step_id": "batch"}
    step |= {"state": "COMPLETED", "start_s": 2, "end_s": 3, "tasks": 1, "mem_max_task_mib": 0.5}
    rows["steps"] = [{**step, "mem_total_mib": 0.5, "cpu_s": None, "cpu_max_task_s": None}]
    rows["quarantine"] = [{"digest": "d", "seen_s": 5, "reason": "bad", "line": "a|b"}]
    rows["windows"] = [{"source": "sacct", "read_until_s": 1000}]
    rows["journals"] = [{"file": "decisions-20260101.jsonl", "read_bytes": 7}]
    return {
        name: [
            {key: value for key, value in row.items() if key not in NEWER.get(name, set())} for row in some
        ]
        for name, some in rows.items()
    }


def check_forward(url: str, rows: dict[str, list[Row]]) -> None:
    """Check that a store has today's schema and still all that was in it."""
    engine = open_store(url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, schema.metadata) == []
        for name, some in rows.items():
            table = schema.metadata.tables[name]
            held = [dict(row) for row in connection.execute(select(table)).mappings()]
            kept = [{key: row[key] for key in some[0]} for row in held]
            assert sorted(kept, key=repr) == sorted(some, key=repr)
    assert set(inspect(engine).get_table_names()) == {*schema.metadata.tables, "alembic_version"}
    [known] = read_attempts(engine, 99)
    assert (known.row.job_name, known.use.wall_quality, known.use.energy_quality) == (
        "Größe 🚀 ",
        "exact",
        "absent",
    )
    assert read_decision(engine, "abc") == decision(id="abc")
    with engine.connect() as connection:
        assert read_gpu_use(connection, [1])[1][0].instance == -1
    engine.dispose()


def test_a_store_of_the_first_schema_comes_forward_whole(url: str) -> None:
    check_forward(url, old_store(url))


class CutOffError(Exception):
    """Stands for a connection that is lost."""


def cut_off_at(engine: Engine, statement: int) -> None:
    """Let the engine's `statement`th change of a table raise."""
    count = 0

    def before(_c: object, _cursor: object, sql: str, *_rest: object) -> None:
        nonlocal count
        if sql.lstrip().upper().startswith(("CREATE", "ALTER", "DROP", "INSERT", "DELETE", "UPDATE")):
            count += 1
            if count == statement:
                raise CutOffError

    event.listen(engine, "before_cursor_execute", before)


def migrate_cut_off(url: str, statement: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Open a store, cut off at a statement; return whether it was."""
    make = database._engine
    with monkeypatch.context() as patch:

        def made(url: str, *, create: bool) -> Engine:
            engine = make(url, create=create)
            cut_off_at(engine, statement)
            return engine

        patch.setattr(database, "_engine", made)
        try:
            open_store(url, create=True).dispose()
        except (CutOffError, StoreError) as error:
            if "CutOffError" not in repr(error):
                raise
            return True
    return False


def test_a_migration_that_was_cut_off_anywhere_goes_on(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = old_store(url)
    cuts = 0
    # Each opening is cut off one statement further on, whatever those before have left.
    while migrate_cut_off(url, cuts + 1, monkeypatch):
        cuts += 1
    assert cuts > 10
    check_forward(url, rows)


def test_a_creation_that_was_cut_off_anywhere_goes_on(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cuts = 0
    while migrate_cut_off(url, cuts + 1, monkeypatch):
        cuts += 1
        if cuts == 4:
            with pytest.raises(StoreError, match=r"is empty; run `rightsizer ingest`"):
                open_store(url)
    assert cuts > 10
    engine = open_store(url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, schema.metadata) == []
    engine.dispose()


@pytest.mark.parametrize("kind", [servers.MARIADB], indirect=True)
def test_names_of_an_old_mariadb_store_become_exact(url: str) -> None:
    old_store(url)
    engine = open_store(url)
    with engine.connect() as connection:
        found = connection.execute(
            text(
                "SELECT DISTINCT collation_name FROM information_schema.columns WHERE table_schema = DATABASE() "
                "AND table_name <> 'alembic_version' AND collation_name IS NOT NULL"
            )
        )
        assert found.scalars().all() == [schema.COLLATION]
    engine.dispose()
