"""slurmdbd's own database, or a replica of it: for sites that may not poll sacct. It only ever reads.

A job's rows become the columns that sacct would print, and go the way of a dump: what is believed, and why not, is
decided in one place. Use an account that can do nothing but read:

    CREATE USER 'rightsizer'@'%' IDENTIFIED BY '...'; GRANT SELECT ON slurm_acct_db.* TO 'rightsizer'@'%';
"""

from __future__ import annotations

import pwd
import re
from collections.abc import Iterator, Mapping, Sequence
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
    func,
    null,
    select,
    table,
    text,
)
from sqlalchemy.exc import SQLAlchemyError

from accounting.dumps.believe import records_of
from accounting.dumps.heading import Heading, read_heading
from accounting.dumps.jobs import DumpSettings
from accounting.dumps.rows import group_rows
from accounting.errors import SlurmError
from accounting.frames import Records
from accounting.states import state_of_number
from accounting.tres import name_tres

CHUNK_JOBS = 5000
GRANT = "GRANT SELECT ON {database}.* TO 'rightsizer'@'%'"
_HARMLESS = frozenset(
    {"SELECT", "USAGE", "SHOW VIEW", "SHOW DATABASES", "REPLICATION CLIENT", "BINLOG MONITOR"}
)
_NAME = re.compile(r"^[A-Za-z0-9_.-]{1,64}\Z")
_NO_VAL = 2**32 - 2  # and INFINITE after it
# id_step is signed: slurm.h counts these down from 2^32. Before 20.11 the batch script was -2 and the rest -1.
_STEPS = {-4: "extern", -5: "batch", -6: "interactive", -1: "extern", -2: "batch"}
_PENDING_STEP = -3
_COLUMNS = (
    "JobIDRaw", "JobID", "Cluster", "User", "Account", "Partition", "QOS", "State", "Submit", "Start", "End",
    "ElapsedRaw", "TimelimitRaw", "NNodes", "NTasks", "ReqTRES", "AllocTRES", "MaxRSS", "TotalCPU", "TRESUsageInMax",
    "TRESUsageInTot", "TRESUsageOutTot", "ConsumedEnergyRaw", "JobName", "Comment", "AdminComment",
)  # fmt: skip
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


class Names(msgspec.Struct, frozen=True):
    """What the database's numbers stand for."""

    tres: dict[int, str]
    qos: dict[int, str]
    users: dict[int, str]


def read_database(url: str, cluster: str, begin_s: int, end_s: int, now_s: int) -> Iterator[Records]:
    """Yield the jobs of a cluster that ended in a window of unix seconds, in chunks; the first counts the unfinished.

    `url` is SQLAlchemy's (`mysql+pymysql://rightsizer:...@replica/slurm_acct_db`). Raises SlurmError where the database
    cannot be read, has no such cluster, or where the account could change it.
    """
    if not _NAME.match(cluster):
        raise SlurmError(
            f"{cluster!r} is no cluster's name; set accounting.cluster to what sacctmgr calls it"
        )
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            _refuse_writers(connection, engine)
            connection.execute(text("SET SESSION TRANSACTION READ ONLY"))
            yield from _read(connection, engine, cluster, (begin_s, end_s), now_s)
    except SQLAlchemyError as error:
        complaint = str(getattr(error, "orig", None) or error).splitlines()[0]
        raise SlurmError(
            f"cannot read slurmdbd's database: {complaint}; check the URL and the account"
        ) from None
    finally:
        engine.dispose()


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
            f"the account may do more than read ({', '.join(more)[:80]}): give a new one "
            f"{GRANT.format(database=engine.url.database)} and nothing else"
        )


def _read(
    connection: Connection, engine: Engine, cluster: str, window: tuple[int, int], now_s: int
) -> Iterator[Records]:
    jobs = _columns(connection, f"{cluster}_job_table", _JOB)
    steps = _columns(connection, f"{cluster}_step_table", _STEP)
    names = _names(connection, cluster)
    settings = DumpSettings(now_s=now_s, zone=ZoneInfo("UTC"))
    unfinished = _count_unfinished(connection, cluster)
    end: ColumnClause[int] = column("time_end")
    job: ColumnClause[int] = column("job_db_inx")
    # time_end has an index in every release.
    query = jobs.where(column("deleted") == 0, end >= window[0], end < window[1]).order_by(job)
    streamed = connection.execution_options(stream_results=True, max_row_buffer=CHUNK_JOBS)
    found = streamed.execute(query).mappings()
    with engine.connect() as other:
        other.execute(text("SET SESSION TRANSACTION READ ONLY"))
        while chunk := found.fetchmany(CHUNK_JOBS):
            of_chunk = steps.where(column("deleted") == 0, job.in_([one["job_db_inx"] for one in chunk]))
            rows = _printed(chunk, other.execute(of_chunk).mappings().all(), names, cluster)
            records = _records(rows, settings, cluster)
            yield replace(records, unfinished=records.unfinished + unfinished)
            unfinished = 0


def _count_unfinished(connection: Connection, cluster: str) -> int:
    jobs = table(f"{cluster}_job_table")
    query = select(func.count()).select_from(jobs).where(column("deleted") == 0, column("time_end") == 0)
    return int(connection.execute(query).scalar_one())


def _columns(connection: Connection, name: str, wanted: Sequence[str]) -> Select[Any]:
    """Return a query for columns of a table, NULL for those that this release does not have."""
    probe = text(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = :name"
    )
    present = {str(row[0]) for row in connection.execute(probe, {"name": name})}
    if not present:
        raise SlurmError(f"there is no table {name}: name the cluster as `sacctmgr list cluster` does")
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


def _printed(
    jobs: Sequence[RowMapping], steps: Sequence[RowMapping], names: Names, cluster: str
) -> list[tuple[str, ...]]:
    """Return rows of jobs, each followed by its steps, in the columns that sacct would print."""
    of_job: dict[object, list[RowMapping]] = {}
    for step in steps:
        of_job.setdefault(step["job_db_inx"], []).append(step)
    rows = []
    for job in jobs:
        rows.append(_job(job, names, cluster))
        rows += [
            _step(step, job, names)
            for step in of_job.get(job["job_db_inx"], ())
            if step["id_step"] != _PENDING_STEP
        ]
    return rows


def _job(job: RowMapping, names: Names, cluster: str) -> tuple[str, ...]:
    start_s, end_s = _int(job["time_start"]), _int(job["time_end"])
    elapsed_s = max(0, end_s - start_s - _int(job["time_suspended"])) if start_s else 0
    limit_min = _int(job["timelimit"])
    tres = {name: name_tres(_text(job[name]), names.tres) for name in ("tres_req", "tres_alloc")}
    printed = {
        "JobIDRaw": str(job["id_job"]),
        "JobID": _display_id(job),
        "Cluster": cluster,
        "User": names.users.get(_int(job["id_assoc"])) or _user_name(_int(job["id_user"])),
        "Account": _text(job["account"]),
        "Partition": _text(job["partition"]),
        "QOS": names.qos.get(_int(job["id_qos"]), "Unknown"),
        "State": _state(job),
        "Submit": str(job["time_submit"]),
        "Start": str(start_s) if start_s else "None",
        "End": str(end_s),
        "ElapsedRaw": str(elapsed_s),
        "TimelimitRaw": "" if limit_min >= _NO_VAL else str(limit_min),
        "NNodes": str(job["nodes_alloc"]) if job["nodes_alloc"] else _nodes(tres),
        "ReqTRES": tres["tres_req"],
        "AllocTRES": tres["tres_alloc"],
        "JobName": _text(job["job_name"]),
        "Comment": _text(job["derived_es"]),
        "AdminComment": _text(job["admin_comment"]),
    }
    return tuple(printed.get(name, "") for name in _COLUMNS)


def _step(step: RowMapping, job: RowMapping, names: Names) -> tuple[str, ...]:
    usage = {name: _usage(_text(step[name]), names) for name in _USAGE}
    cpu_us = (
        (_int(step["user_sec"]) + _int(step["sys_sec"])) * 10**6
        + _int(step["user_usec"])
        + _int(step["sys_usec"])
    )
    # A step that its node took along has no end of its own.
    last = step if _int(step["time_end"]) else job
    printed = {
        "JobIDRaw": f"{job['id_job']}.{_step_id(step)}",
        "State": _state(last),
        "Submit": str(step["time_start"]),
        "Start": str(step["time_start"]),
        "End": str(last["time_end"]),
        "NNodes": str(step["nodes_alloc"]),
        "NTasks": str(step["task_cnt"]),
        "MaxRSS": dict(pair.split("=") for pair in usage["tres_usage_in_max"].split(",") if pair).get(
            "mem", ""
        ),
        "TotalCPU": f"{cpu_us // 10**6}.{cpu_us % 10**6 // 1000:03}",
        "TRESUsageInMax": usage["tres_usage_in_max"],
        "TRESUsageInTot": usage["tres_usage_in_tot"],
        "TRESUsageOutTot": usage["tres_usage_out_tot"],
        "ConsumedEnergyRaw": str(step["consumed_energy"]),
        "JobName": _text(step["step_name"]),
    }
    return tuple(printed.get(name, "") for name in _COLUMNS)


_USAGE = ("tres_usage_in_max", "tres_usage_in_tot", "tres_usage_out_tot")


def _records(rows: list[tuple[str, ...]], settings: DumpSettings, cluster: str) -> Records:
    heading = _heading()
    texts = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    lines = [heading.delimiter.join(row) for row in rows]
    reasons = np.full(len(rows), "", object)
    return records_of(group_rows(heading, 1, lines, texts, reasons), settings, cluster, "slurmdbd's database")


@cache
def _heading() -> Heading:
    return read_heading("\x1f".join(_COLUMNS))


def _usage(listed: str, names: Names) -> str:
    """Return a usage list as sacct prints it; the database counts CPU time in milliseconds."""
    pairs = (pair.partition("=") for pair in listed.split(",") if pair)
    seconds = (
        f"1={int(value) // 1000}" if number == "1" else f"{number}={value}" for number, _, value in pairs
    )
    return name_tres(",".join(seconds), names.tres)


def _display_id(job: RowMapping) -> str:
    if _int(job["id_array_job"]) and _int(job["id_array_task"]) < _NO_VAL:
        return f"{job['id_array_job']}_{job['id_array_task']}"
    if _int(job["het_job_id"]) and _int(job["het_job_offset"]) < _NO_VAL:
        return f"{job['het_job_id']}+{job['het_job_offset']}"
    return str(job["id_job"])


def _step_id(step: RowMapping) -> str:
    number = _int(step["id_step"])
    name = _STEPS.get(number, str(number))
    component = _int(step["step_het_comp"])
    return name if component >= _NO_VAL else f"{name}+{component}"


def _state(row: RowMapping) -> str:
    word = state_of_number(_int(row["state"])) or str(row["state"])
    by = row["kill_requid"]
    return f"{word} by {by}" if word == "CANCELLED" and by is not None and _int(by) < _NO_VAL else word


def _nodes(tres: Mapping[str, str]) -> str:
    listed = tres["tres_alloc"] or tres["tres_req"]
    return dict(pair.split("=") for pair in listed.split(",") if pair).get("node", "0")


@cache
def _user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _int(value: object) -> int:
    return int(str(value)) if value is not None else 0


def _text(value: object) -> str:
    decoded = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value or "")
    return decoded.replace("\x00", "\\x00")
