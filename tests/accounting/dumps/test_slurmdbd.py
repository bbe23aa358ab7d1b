"""Rows of slurmdbd's own database that are odd or incomplete, in tables as slurmdbd makes them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.engine import make_url

from accounting.dumps.slurmdbd import read_database
from accounting.frames import Records
from tests import servers
from tests.builders import T0

TEXTS = ("account", "partition", "tres_req", "tres_alloc", "job_name", "derived_es", "admin_comment")
NUMBERS = (
    "id_job", "id_user", "id_assoc", "id_qos", "state", "time_submit", "time_start", "time_end", "time_suspended",
    "timelimit", "nodes_alloc", "deleted",
)  # fmt: skip
COMPLETED = 3


@dataclass
class Tables:
    """Tables of the cluster alpha; `reader` is the URL of an account that may only read them."""

    engine: Engine
    reader: str

    def add(self, job_id: int, **columns: object) -> None:
        """Add a job that ran from T0 to T0 + 100."""
        plain: dict[str, object] = {
            **dict.fromkeys(NUMBERS, 0),
            **dict.fromkeys(TEXTS, ""),
            "id_job": job_id,
            "partition": "main",
            "state": COMPLETED,
            "time_submit": T0 - 10,
            "time_start": T0,
            "time_end": T0 + 100,
            "timelimit": 60,
            "nodes_alloc": 1,
            "tres_req": "1=8,2=8000,4=1",
            "tres_alloc": "1=8,2=8000,4=1",
            **columns,
        }
        names = ", ".join(f"`{name}`" for name in plain)
        values = ", ".join(f":{name}" for name in plain)
        with self.engine.begin() as connection:
            statement = f"INSERT INTO alpha_job_table ({names}) VALUES ({values})"  # noqa: S608
            connection.execute(text(statement), plain)

    def read(self, begin_s: int, end_s: int, now_s: int) -> list[Records]:
        return list(read_database(self.reader, "alpha", begin_s, end_s, now_s))


@pytest.fixture
def tables(database_server: Callable[[str], servers.Server]) -> Iterator[Tables]:
    server = database_server(servers.MARIADB)
    url = server.new_database()
    engine = create_engine(url)
    job = [*(f"`{name}` TEXT NOT NULL" for name in TEXTS), *(f"{name} BIGINT NOT NULL" for name in NUMBERS)]
    number = "job_db_inx BIGINT"
    statements = (
        f"CREATE TABLE alpha_job_table ({number} AUTO_INCREMENT PRIMARY KEY, {', '.join(job)})",
        f"CREATE TABLE alpha_step_table ({number}, id_step INT, deleted INT)",
        "CREATE TABLE alpha_assoc_table (id_assoc INT, `user` TEXT)",
        "CREATE TABLE tres_table (id INT, type TEXT, name TEXT)",
        "CREATE TABLE qos_table (id INT, name TEXT)",
        "INSERT INTO tres_table VALUES (1, 'cpu', ''), (2, 'mem', ''), (4, 'node', '')",
        "CREATE USER IF NOT EXISTS reader@localhost",
        f"GRANT SELECT ON {make_url(url).database}.* TO reader@localhost",
    )
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))
    yield Tables(engine, make_url(url).set(username="reader").render_as_string(hide_password=False))
    with engine.begin() as connection:
        connection.execute(text("DROP USER reader@localhost"))
    engine.dispose()
    server.drop_database(url)


def ids_in(parts: list[Records]) -> list[int]:
    return [job_id for part in parts for job_id in part.jobs["job_id"].to_pylist()]


def test_an_incomplete_row_waits_until_it_is_complete_or_settled(tables: Tables) -> None:
    tables.add(1)
    # Seen on 22.05: a row of root, COMPLETED, without a partition, for two seconds.
    tables.add(2, partition="", tres_req="", tres_alloc="", nodes_alloc=0)
    fresh = tables.read(T0, T0 + 102, T0 + 102)
    later = tables.read(T0, T0 + 102, T0 + 200)
    assert (ids_in(fresh), [part.quarantined for part in fresh], fresh[0].unfinished) == ([1], [()], 1)
    assert ids_in(later) == [1]
    assert [len(part.quarantined) for part in later] == [1], "this one does not come any more"


def test_waiting_rows_are_counted_where_nothing_has_ended(tables: Tables) -> None:
    tables.add(1, partition="")
    tables.add(2, time_end=0, state=0)
    assert [part.unfinished for part in tables.read(T0, T0 + 102, T0 + 102)] == [2]


def test_a_row_that_cannot_be_read_is_one_entry_whichever_window_it_is_in(tables: Tables) -> None:
    tables.add(1, time_end=T0 + 50)
    tables.add(2, tres_req="1=3600000000,4=1")
    wide, narrow = (tables.read(begin_s, T0 + 200, T0 + 200) for begin_s in (T0, T0 + 60))
    assert ids_in(wide) == [1]
    assert wide[0].quarantined == narrow[0].quarantined
    assert len(wide[0].quarantined) == 1


def test_both_ends_of_a_window_belong_to_it(tables: Tables) -> None:
    tables.add(1)
    assert ids_in(tables.read(T0 + 99, T0 + 100, T0 + 200)) == [1]
    assert ids_in(tables.read(T0 + 100, T0 + 101, T0 + 200)) == [1]
    assert ids_in(tables.read(T0 + 101, T0 + 102, T0 + 200)) == []


def test_names_stored_as_latin1_are_read_as_sacct_prints_them(tables: Tables) -> None:
    # Seen with Ubuntu 24.04's slurmdbd: MySQL's client library, and a MariaDB whose character set is latin1.
    for job_id, name in enumerate(("größe €", "ÁÍ ”", "🦊", "ascii"), start=1):
        tables.add(job_id, job_name=_stored_as_latin1(name))
    tables.add(5, job_name="größe €")
    tables.add(6, job_name="a\xff")
    (part,) = tables.read(T0, T0 + 100, T0 + 1000)
    assert part.jobs["job_name"].to_pylist() == ["größe €", "ÁÍ ”", "🦊", "ascii", "größe €", "a\xff"]


def _stored_as_latin1(name: str) -> str:
    """Return the characters that the database takes a name's bytes for; it knows some that cp1252 does not define."""
    each = (bytes((byte,)) for byte in name.encode())
    return "".join(one.decode("cp1252", "ignore") or one.decode("latin1") for one in each)
