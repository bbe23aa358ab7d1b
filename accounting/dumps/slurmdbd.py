"""Reads slurmdbd's own database, or a replica of it, for sites that may not poll sacct. It never writes.

A job's rows become the columns that sacct would print and are then treated like a dump, so that one place decides
what is plausible. Differences from sacct: names that would break its lines arrive whole; CPU time keeps its
milliseconds beyond an hour; a job's energy is null where sacct prints 0 for lack of a meter; array tasks that never
started are shown by their id, without a list of them; jobs that could never have started are included. Use an
account that can do nothing but read:

    CREATE USER 'rightsizer'@'%' IDENTIFIED BY '...'; GRANT SELECT ON slurm_acct_db.* TO 'rightsizer'@'%';
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pyarrow as pa
from sqlalchemy import (
    ColumnClause,
    ColumnElement,
    Connection,
    Engine,
    RowMapping,
    Select,
    column,
    create_engine,
    event,
    func,
    null,
    select,
    table,
    text,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from accounting.database_waits import CONNECT_WAIT_S, PYMYSQL, connect_in_time, unless_said
from accounting.dumps.believe import records_of
from accounting.dumps.heading import Heading, read_heading
from accounting.dumps.jobs import DumpSettings
from accounting.dumps.rows import group_rows
from accounting.dumps.slurmdbd_rows import COLUMNS, Names, printed
from accounting.errors import SlurmError, install_with
from accounting.frames import JOBS, STEPS, Records
from accounting.records import Quarantined
from accounting.slurm.sacct_groups import SETTLED_S
from accounting.slurm.sacct_records import Metering

CHUNK_JOBS = 5000
# How long its server may be silent, and how long it waits for us while we write a chunk elsewhere before taking the
# next.
ANSWER_WAIT_S = 600
URL_FORM = f"mysql+{PYMYSQL}://rightsizer:...@replica/slurm_acct_db"
GRANT = "GRANT SELECT ON {database}.* TO 'rightsizer'@'%'"
_HARMLESS = frozenset(
    {"SELECT", "USAGE", "SHOW VIEW", "SHOW DATABASES", "REPLICATION CLIENT", "BINLOG MONITOR"}
)
SOURCE = "slurmdbd's database"
_NAME = re.compile(r"^[A-Za-z0-9_.-]{1,64}\Z")
_JOB = (
    "job_db_inx", "id_job", "id_array_job", "id_array_task", "het_job_id", "het_job_offset", "id_user", "id_assoc",
    "account", "partition", "id_qos", "state", "time_submit", "time_start", "time_end", "time_suspended", "timelimit",
    "nodes_alloc", "tres_req", "tres_alloc", "job_name", "derived_es", "admin_comment", "kill_requid",
)  # fmt: skip
_STEP = (
    "job_db_inx", "id_step", "step_het_comp", "state", "time_start", "time_end", "time_suspended", "nodes_alloc",
    "task_cnt", "tres_alloc", "tres_usage_in_max", "tres_usage_in_tot", "tres_usage_out_tot", "consumed_energy",
    "user_sec", "user_usec", "sys_sec", "sys_usec", "step_name", "kill_requid",
)  # fmt: skip


def read_database(
    url: str, cluster: str, begin_s: int, end_s: int, now_s: int, metering: Metering | None = None
) -> Iterator[Records]:
    """Yield the jobs of a cluster that ended in a window (unix seconds), in chunks; the first counts the unfinished.

    Both ends of the window are included, as with sacct. `url` is in SQLAlchemy's form
    (`mysql+pymysql://rightsizer:...@replica/slurm_acct_db`); `metering` says what measured, which the database does
    not. Raises SlurmError if the database cannot be read, has no such cluster, or if the account could change it.
    """
    if not _NAME.match(cluster):
        raise SlurmError(
            f"{cluster!r} is not a cluster's name; set accounting.cluster to the name in `sacctmgr list "
            "cluster`"
        )
    engine = _engine(url)
    try:
        with engine.connect() as connection:
            _refuse_writers(connection, engine)
            connection.execute(text("SET SESSION TRANSACTION READ ONLY"))
            connection.execute(text(f"SET SESSION net_write_timeout = {ANSWER_WAIT_S}"))
            settings = DumpSettings(now_s=now_s, zone=ZoneInfo("UTC"), metering=metering or Metering())
            yield from _read(connection, engine, cluster, (begin_s, end_s), settings)
    except SQLAlchemyError as error:
        complaint = str(getattr(error, "orig", None) or error).splitlines()[0]
        raise SlurmError(
            f"cannot read slurmdbd's database: {complaint}; check the URL and the account"
        ) from None
    finally:
        engine.dispose()


def check_url(url: str) -> None:
    """Raise SlurmError if a URL cannot name a database, whatever exists there and whatever is installed here."""
    try:
        make_url(url).get_dialect()
    except SQLAlchemyError as error:
        raise _unusable(error) from None
    except ValueError:  # its message may hold a password
        raise _unusable("its port is not a number") from None


def _engine(url: str) -> Engine:
    check_url(url)
    waits = unless_said(make_url(url), connect_timeout=CONNECT_WAIT_S) | {"read_timeout": ANSWER_WAIT_S}
    try:
        engine = create_engine(url, connect_args=waits)
    except (SQLAlchemyError, ImportError, ValueError) as error:
        raise _unusable(error) from None
    event.listen(engine, "do_connect", connect_in_time)
    return engine


def _unusable(error: Exception | str) -> SlurmError:
    fix = f"write it as {URL_FORM}"
    if isinstance(error, ImportError) and error.name == PYMYSQL:
        fix = install_with("mariadb")
    return SlurmError(f"accounting.slurmdbd_url cannot be used: {error}; {fix}")


def _refuse_writers(connection: Connection, engine: Engine) -> None:
    grants = [str(row[0]) for row in connection.execute(text("SHOW GRANTS"))]
    given = {
        privilege.strip()
        for grant in grants
        for privilege in re.sub(r"^GRANT (.*?) ON .*", r"\1", grant).split(",")
    }
    more = sorted(given - _HARMLESS)
    if more:
        raise SlurmError(
            f"the account may do more than read ({', '.join(more)[:80]}); make a new account with "
            f"{GRANT.format(database=engine.url.database)} and nothing else"
        )


def _read(
    connection: Connection, engine: Engine, cluster: str, window: tuple[int, int], settings: DumpSettings
) -> Iterator[Records]:
    jobs = _columns(connection, f"{cluster}_job_table", _JOB)
    steps = _columns(connection, f"{cluster}_step_table", _STEP)
    names = _names(connection, cluster)
    unfinished = _count_unfinished(connection, cluster)
    end: ColumnClause[int] = column("time_end")
    job: ColumnClause[int] = column("job_db_inx")
    # time_end has an index in every release.
    query = jobs.where(column("deleted") == 0, end >= window[0], end <= window[1]).order_by(job)
    streamed = connection.execution_options(stream_results=True, max_row_buffer=CHUNK_JOBS)
    found = streamed.execute(query).mappings()
    with engine.connect() as other:
        other.execute(text("SET SESSION TRANSACTION READ ONLY"))
        while chunk := found.fetchmany(CHUNK_JOBS):
            whole = [one for one in chunk if not _is_half_written(one, settings.now_s)]
            unfinished += len(chunk) - len(whole)
            if not whole:
                continue
            of_chunk = steps.where(column("deleted") == 0, job.in_([one["job_db_inx"] for one in whole]))
            rows = printed(whole, other.execute(of_chunk).mappings().all(), names, cluster)
            records = _records(rows, settings, cluster)
            yield replace(records, unfinished=records.unfinished + unfinished)
            unfinished = 0
    if unfinished:
        yield Records(JOBS.empty_table(), STEPS.empty_table(), unfinished=unfinished)


def _is_half_written(job: RowMapping, now_s: int) -> bool:
    """Whether a job's end was recorded before its start: in two seconds its row will be whole (seen on 22.05)."""
    return not job["partition"] and int(job["time_end"]) > now_s - SETTLED_S


def _count_unfinished(connection: Connection, cluster: str) -> int:
    jobs = table(f"{cluster}_job_table")
    query = select(func.count()).select_from(jobs).where(column("deleted") == 0, column("time_end") == 0)
    return int(connection.execute(query).scalar_one())


def _columns(connection: Connection, name: str, wanted: Sequence[str]) -> Select[Any]:
    """Return a query for columns of a table, with NULL for those that this release does not have."""
    probe = text(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = :name"
    )
    present = {str(row[0]) for row in connection.execute(probe, {"name": name})}
    if not present:
        raise SlurmError(
            f"there is no table {name}; write the cluster's name as `sacctmgr list cluster` shows it"
        )
    columns: list[ColumnElement[Any]] = [
        column(each) if each in present else null().label(each) for each in wanted
    ]
    query: Select[Any] = select(*columns)
    return query.select_from(table(name))


def _names(connection: Connection, cluster: str) -> Names:
    tres = connection.execute(text("SELECT id, type, name FROM tres_table")).all()
    qos = connection.execute(text("SELECT id, name FROM qos_table")).all()
    number: ColumnClause[int] = column("id_assoc")
    name: ColumnClause[str] = column("user")
    of_cluster = select(number, name).select_from(table(f"{cluster}_assoc_table"))
    users = connection.execute(of_cluster.where(name != "")).all()
    return Names(
        tres={number: f"{kind}/{name}" if name else kind for number, kind, name in tres},
        qos={row[0]: row[1] for row in qos},
        users={row[0]: row[1] for row in users},
    )


def _records(rows: list[tuple[str, ...]], settings: DumpSettings, cluster: str) -> Records:
    heading = _heading()
    texts = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    lines = [heading.delimiter.join(row) for row in rows]
    reasons = np.full(len(rows), "", object)
    records = records_of(group_rows(heading, 1, lines, texts, reasons), settings, cluster, SOURCE)
    return replace(records, quarantined=tuple(map(_without_number, records.quarantined)))


def _without_number(item: Quarantined) -> Quarantined:
    """Return a rejected row without its position in the answer, which would make it a new entry in each window."""
    return msgspec.structs.replace(item, line=item.line.partition(": ")[2])


@cache
def _heading() -> Heading:
    return read_heading("\x1f".join(COLUMNS))
