"""Writers that are killed, run out of disk, lose their database, or write at the same time: nothing is half-written."""

import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.engine import make_url

from accounting.errors import StoreError
from accounting.store import database, schema
from accounting.store.bulk import upsert_attempts
from accounting.store.database import open_store, writing
from accounting.store.records import Counts, write_rows
from bench import site_rows
from tests import servers
from tests.stores import JOBS_A_WINDOW, WINDOWS, content, start_writing, write_windows

# How often a writer is killed in the middle; $RIGHTSIZER_KILLS for more.
KILLS = int(os.environ.get("RIGHTSIZER_KILLS", "20"))
ENDLESS = 10**6
PATIENCE_S = 180.0


@pytest.fixture
def whole(tmp_path: Path) -> dict[str, list[tuple[object, ...]]]:
    """What an undisturbed run leaves."""
    engine = open_store(f"sqlite:///{tmp_path}/whole.db", create=True)
    write_windows(engine)
    held = content(engine)
    engine.dispose()
    assert len(held["attempts"]) == WINDOWS * JOBS_A_WINDOW
    return held


def test_writers_killed_again_and_again_lose_and_double_nothing(
    url: str, kind: str, whole: dict[str, list[tuple[object, ...]]]
) -> None:
    draw, number = random.Random(11), 0
    # On a busy machine it may take more of them until one finishes.
    while number < KILLS or windows_in(url) != whole["windows"]:
        assert number < 10 * KILLS, "it never came through: the kills tell nothing"
        process, pipe = start_writing(url, ENDLESS)
        # Every fifth is killed while it opens or makes the store, the others in the middle of writing.
        if number % 5 != 4:
            assert pipe.poll(PATIENCE_S)
        process.join(draw.uniform(0.0, 0.1))
        assert process.exitcode is None, "the writer ended by itself: look for its error above"
        process.kill()
        process.join()
        pipe.close()
        if kind == "sqlite" and number % 20 == 0:
            check_integrity(url)
        number += 1
    engine = open_store(url)
    write_windows(engine)
    assert content(engine) == whole
    engine.dispose()
    if kind == "sqlite":
        check_integrity(url)


def windows_in(url: str) -> list[tuple[object, ...]]:
    """How far a store's windows were written."""
    engine = open_store(url)
    held = content(engine)["windows"]
    engine.dispose()
    return held


def check_integrity(url: str) -> None:
    if not Path(str(make_url(url).database)).exists():
        return
    engine = open_store(url, create=True)
    with engine.connect() as connection:
        assert connection.execute(text("PRAGMA integrity_check")).scalar() == "ok"
        stray = (
            "SELECT COUNT(*) FROM steps s LEFT JOIN attempts a USING (cluster, job_id) WHERE a.job_id IS NULL"
        )
        assert connection.execute(text(stray)).scalar() == 0
    engine.dispose()


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 8 MiB, in a folder that other users may enter."""
    with tempfile.TemporaryDirectory(prefix="rightsizer-", dir="/tmp") as name:
        folder = Path(name)
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=8m,mode=0700", "tmpfs", name],
            capture_output=True,
            check=False,
        )
        if mounted.returncode != 0:
            pytest.skip("a small file system can only be mounted by root")
        yield folder
        subprocess.run(["umount", "--lazy", name], check=True)


def fill(engine: Engine, said: str) -> int:
    """Write until that is refused with these words; return how many transactions were finished."""
    finished = 0

    def write() -> None:
        nonlocal finished
        for number in range(500):
            with writing(engine) as connection:
                upsert_attempts(connection, *site_rows.chunk(number, 400))
            finished += 1

    with pytest.raises(StoreError, match=said) as caught:
        write()
    assert "\n" not in str(caught.value)
    return finished


def test_a_full_disk_is_an_error_of_one_line_and_the_next_run_completes(
    small_disk: Path, tmp_path: Path
) -> None:
    engine = open_store(f"sqlite:///{small_disk}/store.db", create=True)
    finished = fill(engine, "free some space")
    held = content(engine)
    engine.dispose()
    assert len(held["attempts"]) == finished * 400
    assert len(held["steps"]) == finished * 800
    check_integrity(f"sqlite:///{small_disk}/store.db")
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    completed(f"sqlite:///{small_disk}/store.db", tmp_path, finished)


def completed(url: str, tmp_path: Path, finished: int) -> None:
    """Check that the next run continues from there, and ends as if nothing had happened."""
    engine, other = open_store(url), open_store(f"sqlite:///{tmp_path}/undisturbed.db", create=True)
    for store, first in ((engine, max(0, finished - 1)), (other, 0)):
        for number in range(first, finished + 2):
            with writing(store) as connection:
                upsert_attempts(connection, *site_rows.chunk(number, 400))
    assert content(engine) == content(other)
    engine.dispose()
    other.dispose()


def test_a_file_that_may_not_grow_is_an_error_of_one_line(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    engine = open_store(url, create=True)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4 * 2**20, before[1]))
        finished = fill(engine, "cannot use the store")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(content(engine)["attempts"]) == finished * 400
    engine.dispose()
    check_integrity(url)
    completed(url, tmp_path, finished)


@pytest.mark.parametrize(("kind", "driver"), [("postgresql", "psycopg"), ("mariadb", "pymysql")])
def test_a_server_that_accepts_a_connection_and_never_answers_is_given_up(
    kind: str, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(driver)
    monkeypatch.setattr(database, "CONNECT_WAIT_S", 2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"{kind}://reader:secret@127.0.0.1:{silent.getsockname()[1]}/store"
        with pytest.raises(StoreError, match=r"timeout|timed out"):
            open_store(url)


@pytest.mark.parametrize("kind", [servers.MARIADB], indirect=True)
def test_a_statement_may_take_longer_than_connecting_to_a_mariadb_may(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "CONNECT_WAIT_S", 4)
    engine = open_store(url, create=True)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT SLEEP(6)")).scalar() == 0
    engine.dispose()


@pytest.mark.parametrize("kind", [servers.MARIADB], indirect=True)
def test_a_mariadb_that_hangs_while_writing_is_given_up_and_the_next_run_completes(
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    whole: dict[str, list[tuple[object, ...]]],
    database_server: Callable[[str], servers.Server],
) -> None:
    monkeypatch.setattr(database, "ANSWER_WAIT_S", 6)
    engine = open_store(url, create=True)
    process = database_server(servers.MARIADB).process
    assert process is not None

    def write_to_it_hanging() -> None:
        with writing(engine) as connection:
            process.send_signal(signal.SIGSTOP)
            upsert_attempts(connection, *site_rows.chunk(0, JOBS_A_WINDOW))

    try:
        with pytest.raises(StoreError, match="timed out"):
            write_to_it_hanging()
    finally:
        process.send_signal(signal.SIGCONT)
    write_windows(engine)
    assert content(engine) == whole
    engine.dispose()


def test_a_full_disk_of_postgresql_is_an_error_of_one_line_and_the_next_run_completes(
    small_disk: Path, tmp_path: Path
) -> None:
    reason = servers.missing(servers.POSTGRESQL)
    if reason:
        pytest.skip(reason)
    subprocess.run(["mount", "-o", "remount,size=24m", str(small_disk)], check=True)
    with servers.postgresql() as server:
        assert server.user is not None
        shutil.chown(small_disk, server.user)
        url = server.new_database()
        engine = open_store(url, create=True)
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text(f"CREATE TABLESPACE small LOCATION '{small_disk}'"))
            for table in schema.metadata.tables:
                connection.execute(text(f"ALTER TABLE {table} SET TABLESPACE small"))
        finished = fill(engine, "free some space")
        assert len(content(engine)["attempts"]) == finished * 400
        subprocess.run(["mount", "-o", "remount,size=128m", str(small_disk)], check=True)
        completed(url, tmp_path, finished)
        engine.dispose()


@pytest.mark.parametrize("kind", [servers.POSTGRESQL, servers.MARIADB], indirect=True)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_database_that_goes_away_is_an_error_of_one_line_and_the_next_run_completes(
    how: signal.Signals,
    kind: str,
    url: str,
    store: Engine,
    whole: dict[str, list[tuple[object, ...]]],
    database_server: Callable[[str], servers.Server],
) -> None:
    server = database_server(kind)
    stopper = threading.Timer(0.4, server.stop, [how])
    stopper.start()
    with pytest.raises(StoreError, match="cannot use the store") as caught:
        write_windows(store, rounds=ENDLESS)
    assert "\n" not in str(caught.value)
    del caught
    stopper.join()
    with pytest.raises(StoreError, match="cannot use the store"):
        open_store(url)
    server.start()
    again = open_store(url)
    write_windows(again)
    assert content(again) == whole
    again.dispose()
    store.dispose()


@pytest.mark.parametrize("kind", [servers.POSTGRESQL, servers.MARIADB], indirect=True)
def test_a_server_that_closes_idle_connections_stops_no_run(
    kind: str, store: Engine, database_server: Callable[[str], servers.Server]
) -> None:
    """As MariaDB's wait_timeout and PostgreSQL's idle_session_timeout do, while sacct is asked."""
    write_windows(store, windows=1)
    assert len(content(store)["attempts"]) == JOBS_A_WINDOW
    database_server(kind).stop()
    database_server(kind).start()
    write_windows(store, windows=2)
    assert len(content(store)["attempts"]) == 2 * JOBS_A_WINDOW


def test_a_second_writer_waits_and_then_continues(store: Engine, url: str) -> None:
    other, order = open_store(url), list[str]()

    def second() -> None:
        with writing(other) as connection:
            order.append("second")
            write_rows(connection, schema.windows, [{"source": "b", "cluster": "", "read_until_s": 2}])

    with writing(store) as connection:
        write_rows(connection, schema.windows, [{"source": "a", "cluster": "", "read_until_s": 1}])
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.5)
        order.append("first")
    thread.join(PATIENCE_S)
    other.dispose()
    assert order == ["first", "second"]
    assert len(content(store)["windows"]) == 2


def test_a_writer_that_has_waited_long_enough_says_so_and_readers_do_not_wait(
    store: Engine, url: str
) -> None:
    other = open_store(url)
    with writing(store) as connection:
        write_rows(connection, schema.windows, [{"source": "a", "cluster": "", "read_until_s": 1}])
        begin_s = time.monotonic()
        with pytest.raises(StoreError, match="another process has been writing"), writing(other, wait_s=1):
            pass
        assert 0.9 < time.monotonic() - begin_s < 30
        assert content(other)["windows"] == []
    with writing(other, wait_s=1) as connection:
        assert write_rows(
            connection, schema.windows, [{"source": "a", "cluster": "", "read_until_s": 1}]
        ) == Counts(same=1)
    other.dispose()


def test_a_transaction_that_raises_is_rolled_back(store: Engine) -> None:
    with suppress(RuntimeError), writing(store) as connection:
        upsert_attempts(connection, *site_rows.chunk(0, 10))
        raise RuntimeError
    assert content(store)["attempts"] == []
    with writing(store, wait_s=1) as connection:
        assert upsert_attempts(connection, *site_rows.chunk(0, 10))[0] == Counts(new=10)


def test_several_ingesters_at_once_write_what_one_writes(
    url: str, whole: dict[str, list[tuple[object, ...]]]
) -> None:
    several = [start_writing(url, 2) for _ in range(3)]
    for process, pipe in several:
        process.join(PATIENCE_S)
        assert process.exitcode == 0
        pipe.close()
    engine = open_store(url)
    held = content(engine)
    engine.dispose()
    assert held == whole
