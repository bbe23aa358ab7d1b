"""The store: its schema, what it refuses to open, and that writing twice is the same as writing once."""

import sqlite3
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, create_engine, select, text
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import make_url
from sqlalchemy.schema import CreateTable

from accounting.errors import StoreError
from accounting.ingest.run import told_of
from accounting.records import Quality, Quarantined
from accounting.store import schema
from accounting.store.database import check_url, hold_little, open_store
from accounting.store.quarantine import MOST_CHARS, digest_of, take_quarantined
from accounting.store.records import (
    WEEK_S,
    Counts,
    latest_end_s,
    latest_measured,
    read_attempts,
    read_decision,
    read_gpu_use,
    submitted_between,
    write_decisions,
    write_gpu_use,
    write_quarantine,
)
from tests import servers
from tests.builders import (
    T0,
    attempt,
    cancelled_while_it_waited,
    decision,
    gpu_use,
    job_row,
    past,
    step,
    without_memory,
)
from tests.stores import attempt_row, write_attempts, write_steps

on_sqlite = pytest.mark.parametrize("kind", ["sqlite"], indirect=True)


def test_migrations_create_exactly_the_schema(store: Engine) -> None:
    with store.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, schema.metadata) == []


def test_a_store_is_opened_again_with_what_was_in_it(url: str, store: Engine) -> None:
    attempts = past(5)
    with store.begin() as connection:
        write_attempts(connection, attempts)
    again = open_store(url)
    assert read_attempts(again) == attempts
    again.dispose()


def test_new_attempts_and_those_with_new_figures_are_reported_to_the_feed(
    store: Engine,
) -> None:
    attempts = past(4, seed=7)
    more = msgspec.structs.replace(
        attempts[1], use=msgspec.structs.replace(attempts[1].use, gpus=1, gpu_mem_mib=2000.1)
    )
    rows = pa.Table.from_pylist([attempt_row(one) for one in [attempts[0], more, *attempts[2:]]])
    since_s = attempts[3].row.end_s
    with store.begin() as connection:
        write_attempts(connection, attempts[:3])
        assert told_of(connection, rows, 0) == ([attempts[3]], [more])
        assert told_of(connection, rows, since_s) == ([attempts[3]], [])
        write_attempts(connection, [more, attempts[3]])
        assert told_of(connection, rows, 0) == ([], [])


def test_the_share_of_measured_memory_is_that_of_the_latest_week(store: Engine) -> None:
    ends: list[tuple[Quality, int]] = [
        ("absent", T0),
        ("sampled", T0 + WEEK_S),
        ("absent", T0 + WEEK_S),
        ("short", T0 + WEEK_S),
    ]
    ran = [
        without_memory(attempt(job_id=number, start_s=end_s - 100), quality)
        for number, (quality, end_s) in enumerate([*ends, ("absent", T0 + WEEK_S + 1)], 1)
    ]
    never = cancelled_while_it_waited(job_id=9, start_s=T0 + WEEK_S)
    with store.begin() as connection:
        write_attempts(connection, [*ran, never])
        assert latest_measured(connection, T0 + WEEK_S) == (2, 1)
        assert latest_measured(connection, T0 + WEEK_S, "alpha") == (2, 1)
        assert latest_measured(connection, T0 + WEEK_S, "gamma") == (0, 0)


def test_the_last_end_is_of_a_cluster_or_of_any_and_not_after_now(store: Engine) -> None:
    ran = [("alpha", 1, T0), ("alpha", 2, T0 + 500), ("alpha", 3, T0 + 9000), ("beta", 4, T0 + 700)]
    ended = [
        attempt(cluster=cluster, job_id=job_id, start_s=start_s, elapsed_s=100)
        for cluster, job_id, start_s in ran
    ]
    with store.begin() as connection:
        assert latest_end_s(connection, T0) is None
        write_attempts(connection, ended)
        assert latest_end_s(connection, T0 + 800) == T0 + 800
        assert latest_end_s(connection, T0 + 799) == T0 + 600
        assert latest_end_s(connection, T0 + 800, "alpha") == T0 + 600
        assert latest_end_s(connection, T0 + 800, "gamma") is None


@pytest.mark.parametrize(
    ("kind", "defaults"),
    [
        (servers.POSTGRESQL, "ALTER DATABASE {} SET client_encoding = 'LATIN1'"),
        (servers.POSTGRESQL, "UPDATE pg_database SET encoding = 0 WHERE datname = '{}'"),  # SQL_ASCII
        (servers.MARIADB, "SET GLOBAL sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES'"),
        (servers.MARIADB, "SET GLOBAL default_storage_engine = Aria"),
    ],
    indirect=["kind"],
)
def test_the_defaults_of_a_server_change_nothing(
    kind: str, defaults: str, url: str, database_server: Callable[[str], servers.Server]
) -> None:
    server = database_server(kind)
    administer(server, defaults.format(make_url(url).database))
    try:
        store = open_store(url, create=True)
        attempts = [attempt(job_id=1, user="zoë", job_name="😀 \\'\"")]
        with store.begin() as connection:
            write_attempts(connection, attempts)
        assert read_attempts(store) == attempts
        store.dispose()
    finally:
        if kind == servers.MARIADB:
            administer(server, "SET GLOBAL sql_mode = DEFAULT, default_storage_engine = DEFAULT")


def administer(server: servers.Server, statement: str) -> None:
    engine = create_engine(server.url(server.admin))
    with engine.begin() as connection:
        connection.exec_driver_sql(statement)
    engine.dispose()


@on_sqlite
def test_finished_transactions_survive_a_power_cut(store: Engine) -> None:
    with store.connect() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA synchronous")).scalar() == 2


def test_a_process_that_runs_for_months_keeps_a_small_cache(tmp_path: Path) -> None:
    engine = open_store(f"sqlite:///{tmp_path}/store.db", create=True)
    try:
        held_kib = [_cache_kib(engine)]
        hold_little(engine)
        held_kib.append(_cache_kib(engine))
        engine.dispose()
        assert [*held_kib, _cache_kib(engine)] == [131072, 16384, 16384]
    finally:
        engine.dispose()


def _cache_kib(engine: Engine) -> int:
    with engine.connect() as connection:
        return -int(connection.execute(text("PRAGMA cache_size")).scalar() or 0)


def test_figures_keep_all_their_digits_on_mariadb_too() -> None:
    made = str(CreateTable(schema.decisions).compile(dialect=mysql.dialect()))
    assert "time_s DOUBLE" in made


def test_reading_does_not_create_a_missing_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="rightsizer ingest"):
        open_store(f"sqlite:///{tmp_path}/none/store.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite:///file::memory:?uri=true",
        "sqlite:///file:store?mode=memory&uri=true",
    ],
)
def test_a_store_that_would_keep_nothing_is_refused(url: str) -> None:
    for use in (check_url, partial(open_store, create=True), open_store):
        with pytest.raises(StoreError, match=r"names no file.*write for example sqlite:////var/lib"):
            use(url)


@pytest.mark.parametrize(
    "url", ["sqlite:///store.db", "sqlite:///var/lib/store.db", "sqlite:///file:a?uri=true"]
)
def test_a_store_with_a_relative_path_is_refused(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for use in (check_url, partial(open_store, create=True), open_store):
        with pytest.raises(StoreError, match=r"its path is relative.*write for example sqlite:////var/lib"):
            use(url)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_is_an_empty_store(tmp_path: Path) -> None:
    (tmp_path / "store.db").touch()
    with pytest.raises(StoreError, match="is empty; run `rightsizer ingest`"):
        open_store(f"sqlite:///{tmp_path}/store.db")


def test_a_store_of_a_newer_schema_is_refused_and_left_alone(url: str, store: Engine) -> None:
    with store.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    for create in (False, True):
        with pytest.raises(StoreError, match=r"schema 9999.*newer"):
            open_store(url, create=create)
    with store.connect() as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == "9999"


@pytest.mark.parametrize("create", [False, True])
def test_another_programs_database_is_refused_and_left_alone(tmp_path: Path, create: bool) -> None:
    file = tmp_path / "other.db"
    with sqlite3.connect(file) as other:
        other.execute("CREATE TABLE things (name TEXT)")
    other.close()
    with pytest.raises(StoreError, match="not a store of rightsizer"):
        open_store(f"sqlite:///{file}", create=create)
    other = sqlite3.connect(file)
    assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("things",)]
    other.close()


@pytest.mark.parametrize("create", [False, True])
def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path, create: bool) -> None:
    file = tmp_path / "store.db"
    file.write_bytes(b"these are my notes" * 100)
    with pytest.raises(StoreError, match="not a database"):
        open_store(f"sqlite:///{file}", create=create)
    assert file.read_bytes() == b"these are my notes" * 100


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("not a url", "cannot be used"),
        ("nosuchdb://x/y", "cannot be used"),
        ("sqlite:////proc/nothing/store.db", "cannot make"),
        ("sqlite:////etc/hostname/store.db", "cannot make"),
        ("sqlite:////tmp/" + "x" * 300, "cannot"),
        ("sqlite:////tmp", "cannot use the store"),
        ("sqlite:////tmp/store.db?timeout=long", "cannot be used"),
        ("mariadb://host/y?connect_timeout=long", "cannot be used"),
        ("mariadb://host/y?connect_timeout=0", "PyMySQL refuses the options"),
        ("mariadb://host/y?conect_timeout=1", "PyMySQL refuses the options"),
        ("mariadb://host/y?ssl_ca=/nowhere/ca.pem", "PyMySQL refuses the options"),
    ],
)
def test_a_url_that_cannot_be_used_is_an_error_of_one_line(bad: str, said: str) -> None:
    with pytest.raises(StoreError, match=said) as caught:
        open_store(bad, create=True)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "bad",
    [
        "nosuchdb://me:secret@host/y",
        "mysql://me:secret@host/y",
        "postgresql+pg8000://me:secret@host/y",
        "postgresql//me:secret@host/y",
        "postgresql://me:secret@127.0.0.1:1/y",
        "postgresql://127.0.0.1:1/y?user=me&password=secret",
        "mariadb://me:secret@127.0.0.1:1/y",
        "mariadb://me:secret/y",
    ],
)
def test_passwords_stay_out_of_errors(bad: str) -> None:
    with pytest.raises(StoreError) as caught:
        open_store(bad)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("url", "module"), [("postgresql://h/y", "psycopg"), ("mariadb://h/y", "pymysql")])
def test_a_driver_that_is_not_installed_is_named_with_its_extra(
    url: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    extra = url.partition(":")[0]
    with pytest.raises(
        StoreError, match=rf"needs a driver .*{module}.*pip install -c constraints.txt .\.\[{extra}\]"
    ):
        open_store(url)


@on_sqlite
def test_damage_found_while_reading_is_an_error_of_one_line(url: str, store: Engine, tmp_path: Path) -> None:
    with store.begin() as connection:
        write_attempts(connection, past(300))
    store.dispose()
    file = tmp_path / "deep" / "store.db"
    content = bytearray(file.read_bytes())
    content[len(content) // 4 :] = b"\xff" * (len(content) - len(content) // 4)
    file.write_bytes(content)
    engine = open_store(url)
    with pytest.raises(StoreError, match="cannot use the store") as caught:
        read_attempts(engine)
    engine.dispose()
    assert "\n" not in str(caught.value)


def test_writing_again_changes_nothing(store: Engine) -> None:
    attempts, rows = past(450), [(job_row(job_id=n), step()) for n in range(5)]
    for expected in (Counts(new=450), Counts(same=450)):
        with store.begin() as connection:
            assert write_attempts(connection, attempts) == expected
    for expected in (Counts(new=5), Counts(same=5)):
        with store.begin() as connection:
            assert write_steps(connection, rows) == expected
            assert write_gpu_use(connection, [gpu_use(gpu=n) for n in range(5)]) == expected
            assert write_decisions(connection, [decision(id=str(n)) for n in range(5)]) == expected
    assert read_attempts(store) == attempts


def test_rows_that_differ_are_changed_and_counted(store: Engine) -> None:
    old, new = attempt(), attempt(job_id=2)
    late = msgspec.structs.replace(old, row=msgspec.structs.replace(old.row, state="NODE_FAIL"))
    with store.begin() as connection:
        write_attempts(connection, [old])
        assert write_attempts(connection, [late, new]) == Counts(new=1, changed=1)
    assert read_attempts(store) == [late, new]
    assert read_attempts(store, 2) == [new]


def test_repeated_words_are_held_once(store: Engine) -> None:
    with store.begin() as connection:
        write_attempts(connection, past(jobs=4, families=["fit"]))
    first, *others = submitted_between(store, "alpha", 0, 2**40)
    assert len(others) == 3
    assert {id(one.row.user) for one in others} == {id(first.row.user)}
    assert {id(one.row.job_name) for one in others} == {id(first.row.job_name)}


def test_attempts_of_one_job_are_kept_apart_by_their_start(store: Engine) -> None:
    first, second = attempt(start_s=T0 + 10), attempt(start_s=T0 + 500)
    with store.begin() as connection:
        assert write_attempts(connection, [first, second]).new == 2
    assert read_attempts(store, 1) == [first, second]


def test_the_same_row_twice_in_one_write_is_one_row(store: Engine) -> None:
    with store.begin() as connection:
        assert write_attempts(connection, [attempt(), attempt()]) == Counts(new=1)


def test_decisions_and_gpu_use_are_read_back(store: Engine) -> None:
    made = decision(id="abc", time_s=T0 + 0.123456)
    with store.begin() as connection:
        write_decisions(connection, [made])
        write_gpu_use(connection, [gpu_use(job_id=n) for n in (1, 2, 3)])
        assert read_gpu_use(connection, [2, 9]) == {2: [gpu_use(job_id=2)]}
    assert read_decision(store, "abc") == made
    assert read_decision(store, "other") is None


def test_the_quarantine_keeps_of_a_huge_job_what_every_store_can_hold(store: Engine) -> None:
    item = Quarantined(line="7|COMPLETED\n" * 2**21, reason="odd", source="sacct")
    with store.begin() as connection:
        assert write_quarantine(connection, [item], 100).new == 1
        assert write_quarantine(connection, [item], 200).new == 0
        [(digest, kept)] = take_quarantined(connection)
    assert digest == digest_of(item) == digest_of(kept)
    assert item.line.startswith(kept.line)
    assert len(kept.line) == MOST_CHARS


def test_a_quarantined_line_is_kept_once_with_its_first_time(store: Engine) -> None:
    lines = [Quarantined(line="bad\x00", reason="first"), Quarantined(line="bad\x00", reason="again")]
    with store.begin() as connection:
        assert write_quarantine(connection, lines, 100).new == 1
        assert write_quarantine(connection, lines, 200).new == 0
        assert connection.execute(select(schema.quarantine.c.seen_s)).scalars().all() == [100]
