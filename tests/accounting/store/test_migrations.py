"""A store of every released schema is upgraded with all its contents, on every database, interrupted or not."""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config as AlembicConfig
from alembic.runtime.migration import MigrationContext
from msgspec.structs import replace
from sqlalchemy import Engine, event, insert, inspect, select, text, update
from sqlalchemy.schema import MetaData

import accounting.store.database as database
from accounting.errors import StoreError
from accounting.slurm.sacct_groups import LABELS
from accounting.store import schema
from accounting.store.bulk import known_digests
from accounting.store.database import open_store, open_to_take_back, writing
from accounting.store.older import take_back
from accounting.store.records import (
    read_attempts,
    read_decision,
    read_gpu_use,
    read_marks,
    windows_read,
    write_decisions,
    write_gpu_use,
    write_rows,
)
from tests import servers
from tests.builders import attempt, decision, gpu_use, past
from tests.stores import write_attempts

Row = dict[str, Any]
# Columns that today's tables have and those of 0001 had not.
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
        "step_cpus",
        "step_mem_mib",
    },
    "decisions": {"input_mib"},
    "steps": {
        "nodes",
        "gpu_util_pct",
        "gpu_mem_mib",
        "read_mib",
        "written_mib",
        "energy_j",
        "alloc_cpus",
        "alloc_mem_mib",
    },
    "quarantine": {"source"},
    "gpu_use": {"instance", "power_mean_w", "cluster"},
    "windows": {"cluster"},
    "journals": {"tail"},
}


def bare_engine(url: str) -> Engine:
    """An engine as `open_store` makes it, without looking at the schema."""
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
    """Rows of schema 0001, taken from a store of today."""
    with tempfile.TemporaryDirectory() as folder:
        engine = open_store(f"sqlite:///{folder}/today.db", create=True)
        with engine.begin() as connection:
            write_attempts(connection, [*past(40), attempt(job_id=99, job_name="Größe 🚀 ")])
            write_decisions(connection, [decision(id="abc")])
            rows = {
                name: [
                    dict(row) for row in connection.execute(select(schema.metadata.tables[name])).mappings()
                ]
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
    """Upgrade a store, and check that it has today's schema and still all that was in it."""
    engine = open_store(url, create=True)
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
        [use] = read_gpu_use(connection, [1])[1]
        assert (use.instance, use.cluster) == (-1, "alpha"), "the one cluster that the store knows"
        assert windows_read(connection, "sacct") == {"alpha": 1000}
    engine.dispose()


def test_a_store_of_the_first_schema_is_upgraded_completely_and_only_when_asked_for(url: str) -> None:
    rows = old_store(url)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"older version; run `rightsizer ingest`, which upgrades it"):
            open_store(url)
    check_forward(url, rows)


def test_a_store_goes_back_and_forward_again(url: str) -> None:
    engine = open_store(url, create=True)
    with engine.begin() as connection:
        write_attempts(connection, past(20))
        write_decisions(connection, [decision(id="abc")])
    before = read_attempts(engine)
    head = take_back(engine, "0002", apply=False)
    assert take_back(engine, head, apply=True) == head, "a dry run changes nothing"
    assert take_back(engine, "0002", apply=True) == head
    engine.dispose()
    with pytest.raises(StoreError, match="schema of an older version"):
        open_store(url)
    forward = open_store(url, create=True)
    with forward.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, schema.metadata) == []
    assert read_attempts(forward) == before
    assert read_decision(forward, "abc") == decision(id="abc")
    forward.dispose()


def test_what_steps_held_is_read_again_after_a_store_went_back(url: str) -> None:
    engine = open_store(url, create=True)
    plain = attempt(job_id=1)
    divided = replace(plain, row=replace(plain.row, job_id=2), use=replace(plain.use, step_cpus=8))
    with engine.begin() as connection:
        write_attempts(connection, [plain, divided])
        for job_id in (1, 2):
            digest = update(schema.attempts).values(record_digest=job_id)
            connection.execute(digest.where(schema.attempts.c.job_id == job_id))
        for source in (LABELS, "sacct"):
            mark = {"source": source, "cluster": "alpha", "read_until_s": 9}
            write_rows(connection, schema.windows, [mark])
    take_back(engine, "0006", apply=True)
    engine.dispose()
    engine = open_store(url, create=True)
    with engine.connect() as connection:
        assert known_digests(connection, 0, 2**40).tolist() == [1], "the other would be skipped for ever"
        assert (windows_read(connection, LABELS), windows_read(connection, "sacct")) == ({}, {"alpha": 9})
    engine.dispose()


@pytest.mark.parametrize("revision", ["0001", "9999", "head", "-1"])
def test_a_store_goes_back_only_to_schemas_that_are_supported(revision: str, tmp_path: Path) -> None:
    engine = open_store(f"sqlite:///{tmp_path}/store.db", create=True)
    with pytest.raises(StoreError, match=r"cannot be taken back to .*; give one of 0002, 0003"):
        take_back(engine, revision, apply=True)
    engine.dispose()


@pytest.mark.parametrize(("clusters", "whose"), [([], ""), (["alpha"], "alpha"), (["alpha", "beta"], "")])
def test_marks_go_to_the_only_cluster_that_there_is_and_come_back(
    url: str, clusters: list[str], whose: str
) -> None:
    engine = open_store(url, create=True)
    with engine.begin() as connection:
        write_attempts(connection, [attempt(cluster=cluster) for cluster in clusters])
        write_gpu_use(
            connection, [gpu_use(cluster="alpha"), gpu_use(cluster="beta", last_s=gpu_use().last_s + 1)]
        )
        marks = [
            {"source": "sacct", "cluster": name, "read_until_s": until}
            for name, until in (("alpha", 9), ("beta", 5))
        ]
        for mark in marks:
            write_rows(connection, schema.windows, [mark])
        read = [{"file": f"a.jsonl#{n}", "read_bytes": n, "tail": "t"} for n in (7, 8)]
        write_rows(connection, schema.journals, [*read, {"file": "b.jsonl", "read_bytes": 1, "tail": ""}])
    take_back(engine, "0005", apply=True)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT source, read_until_s FROM windows")).all() == [("sacct", 5)]
        files = connection.execute(text("SELECT file, read_bytes FROM journals ORDER BY file")).all()
        assert files == [("a.jsonl", 7), ("b.jsonl", 1)], "rather read twice than lost"
        assert connection.execute(text("SELECT COUNT(*), MAX(last_s) FROM gpu_use")).one() == (
            1,
            gpu_use().last_s + 1,
        )
    engine.dispose()
    engine = open_store(url, create=True)
    with engine.connect() as connection:
        assert windows_read(connection, "sacct") == {whose: 5}
        [use] = read_gpu_use(connection, [1])[1]
        assert use.cluster == whose
        assert {name: mark.read_bytes for name, mark in read_marks(connection).items()} == dict(files)
    engine.dispose()


class CutOffError(Exception):
    """Stands for a lost connection."""


def cut_off_at(engine: Engine, statement: int) -> None:
    """Make the engine's `statement`th change of a table raise."""
    count = 0

    def before(_c: object, _cursor: object, sql: str, *_rest: object) -> None:
        nonlocal count
        if sql.lstrip().upper().startswith(("CREATE", "ALTER", "DROP", "INSERT", "DELETE", "UPDATE")):
            count += 1
            if count == statement:
                raise CutOffError

    event.listen(engine, "before_cursor_execute", before)


def migrate_cut_off(url: str, statement: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Open a store, interrupted at a statement; return whether it was interrupted."""
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


def test_a_migration_that_was_interrupted_anywhere_continues(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = old_store(url)
    cuts = 0
    # Each opening is interrupted one statement further on, whatever those before have left.
    while migrate_cut_off(url, cuts + 1, monkeypatch):
        cuts += 1
    assert cuts > 10
    check_forward(url, rows)


def test_a_creation_that_was_interrupted_anywhere_continues(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def take_back_cut_off(url: str, revision: str, statement: int) -> bool:
    """Take a store back, interrupted at a statement; return whether it was interrupted."""
    engine = open_to_take_back(url)
    cut_off_at(engine, statement)
    try:
        take_back(engine, revision, apply=True)
    except (CutOffError, StoreError) as error:
        if "CutOffError" not in repr(error):
            raise
        return True
    finally:
        engine.dispose()
    return False


def test_a_downgrade_that_was_interrupted_anywhere_continues(url: str) -> None:
    """It continues with the same command, whichever schema it has reached."""
    engine = open_store(url, create=True)
    read = {"file": "a.jsonl#1", "read_bytes": 7, "tail": "t"}
    with engine.begin() as connection:
        write_attempts(connection, past(20))
        write_gpu_use(connection, [gpu_use(cluster="alpha")])
        write_rows(connection, schema.windows, [{"source": "sacct", "cluster": "alpha", "read_until_s": 9}])
        write_rows(connection, schema.journals, [read])
    before = read_attempts(engine)
    engine.dispose()
    cut = 1
    while take_back_cut_off(url, "0004", cut):
        assert not take_back_cut_off(url, "0004", 0)
        check_back(url)
        forward = open_store(url, create=True)
        assert read_attempts(forward) == before
        forward.dispose()
        cut += 1
    assert cut > 10
    check_back(url)


def check_back(url: str) -> None:
    """Check that a store has schema 0004, and still what was in it."""
    engine = bare_engine(url)
    with engine.connect() as connection:
        assert MigrationContext.configure(connection).get_current_revision() == "0004"
        assert connection.execute(text("SELECT * FROM windows")).all() == [("sacct", 9)]
        assert ("a.jsonl", 7) in connection.execute(text("SELECT file, read_bytes FROM journals")).all()
        assert connection.execute(text("SELECT COUNT(*) FROM gpu_use")).scalar() == 1
    assert "journal_links" not in inspect(engine).get_table_names()
    engine.dispose()


def test_an_upgrade_of_a_store_is_reported_and_a_new_or_current_store_is_not(tmp_path: Path) -> None:
    said: list[tuple[str, str]] = []
    url = f"sqlite:///{tmp_path}/store.db"

    def tell(before: str, after: str) -> None:
        said.append((before, after))

    engine = open_store(url, create=True, tell=tell)
    head = take_back(engine, "0004", apply=True)
    engine.dispose()
    assert not said
    for _ in range(2):
        open_store(url, create=True, tell=tell).dispose()
    assert said == [("0004", head)]


@pytest.mark.parametrize("kind", [servers.MARIADB], indirect=True)
def test_names_in_an_old_mariadb_store_become_exact(url: str) -> None:
    old_store(url)
    engine = open_store(url, create=True)
    with engine.connect() as connection:
        found = connection.execute(
            text(
                "SELECT DISTINCT collation_name FROM information_schema.columns WHERE table_schema = DATABASE() "
                "AND table_name <> 'alembic_version' AND collation_name IS NOT NULL"
            )
        )
        assert found.scalars().all() == [schema.COLLATION]
    engine.dispose()


def test_several_stores_can_be_made_at_once(tmp_path: Path) -> None:
    """Alembic allows one migration at a time in a process: two threads would write to each other's stores."""
    urls = [f"sqlite:///{tmp_path}/{number}.db" for number in range(3)]

    def make(url: str) -> set[str]:
        engine = open_store(url, create=True)
        try:
            return set(inspect(engine).get_table_names())
        finally:
            engine.dispose()

    with ThreadPoolExecutor(len(urls)) as pool:
        made = list(pool.map(make, urls))
    assert all(tables == {*schema.metadata.tables, "alembic_version"} for tables in made)
