"""The tables of the store. Times are unix seconds, memory is MiB; the migrations create exactly these tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Double,
    Index,
    Integer,
    MetaData,
    Row,
    Select,
    String,
    Table,
)
from sqlalchemy import Text as ShortText
from sqlalchemy.dialects.mysql import LONGTEXT

metadata = MetaData()
Key = TypeVar("Key")

KEYS_A_QUERY = 200  # SQLite accepts some 32,000 values a statement, older ones 999; a key has up to five
NAME = String(191)  # the longest key column that every supported database can index
Text = ShortText().with_variant(LONGTEXT(), "mysql", "mariadb")  # their TEXT ends at 64 KiB

# On MariaDB too, names that differ in case, accents or trailing spaces are different names.
COLLATION = "utf8mb4_nopad_bin"
_EXACT: dict[str, Any] = {"mariadb_charset": "utf8mb4", "mariadb_collate": COLLATION}

attempts = Table(
    "attempts",
    metadata,
    Column("cluster", NAME, primary_key=True),
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
    Column("submit_s", BigInteger, primary_key=True, autoincrement=False),
    Column("start_s", BigInteger, primary_key=True, autoincrement=False),
    Column("end_s", BigInteger, nullable=False),
    Column("elapsed_s", BigInteger, nullable=False),
    Column("display_id", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("account", Text, nullable=False),
    Column("partition", Text, nullable=False),
    Column("qos", Text, nullable=False),
    Column("job_name", Text, nullable=False),
    Column("comment", Text, nullable=False),
    Column("admin_comment", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("limit_s", BigInteger),
    Column("nodes", Integer, nullable=False),
    Column("req_cpus", Integer),
    Column("req_mem_mib", BigInteger),
    Column("req_gpus", Integer),
    Column("alloc_cpus", Integer),
    Column("alloc_mem_mib", BigInteger),
    Column("alloc_gpus", Integer),
    Column("num_tasks", Integer, nullable=False),
    Column("asked_cpus", Integer),
    Column("asked_mem_mib", BigInteger),
    Column("asked_gpus", Integer),
    Column("decision_id", NAME, nullable=False),
    Column("script_signature", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("peak_mem_mib", Double),
    Column("peak_node_mib", Double),
    Column("memory_quality", Text, nullable=False),
    Column("cores", Double),
    Column("cores_per_task", Double),
    Column("cores_quality", Text, nullable=False),
    Column("wall_s", BigInteger, nullable=False),
    Column("wall_quality", Text, nullable=False),
    Column("gpus", Integer),
    Column("gpu_mem_mib", Double),
    Column("gpu_quality", Text, nullable=False),
    Column("gpu_source", Text, nullable=False),
    Column("read_mib", Double),
    Column("written_mib", Double),
    Column("io_quality", Text, nullable=False),
    Column("energy_j", Double),
    Column("energy_quality", Text, nullable=False),
    Column("slurm_release", Text, nullable=False),
    Column("gather", Text, nullable=False),
    # Of the record as read, to recognise it when it is read again.
    Column("record_digest", BigInteger),
    Column("input_mib", Double),
    Column("step_cpus", Integer),
    Column("step_mem_mib", BigInteger),
    # For one job's attempts; for a span of time, with all that is needed to recognise its records.
    Index("ix_attempts_job_id", "job_id"),
    Index("ix_attempts_known", "end_s", "cluster", "record_digest"),
    **_EXACT,
)

steps = Table(
    "steps",
    metadata,
    Column("cluster", NAME, primary_key=True),
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
    Column("submit_s", BigInteger, primary_key=True, autoincrement=False),
    Column("attempt_start_s", BigInteger, primary_key=True, autoincrement=False),
    Column("step_id", NAME, primary_key=True),
    Column("state", Text, nullable=False),
    Column("start_s", BigInteger, nullable=False),
    Column("end_s", BigInteger, nullable=False),
    Column("tasks", Integer, nullable=False),
    Column("mem_max_task_mib", Double),
    Column("mem_total_mib", Double),
    Column("cpu_s", Double),
    Column("cpu_max_task_s", Double),
    Column("nodes", Integer, nullable=False),
    Column("gpu_util_pct", Double),
    Column("gpu_mem_mib", Double),
    Column("read_mib", Double),
    Column("written_mib", Double),
    Column("energy_j", Double),
    Column("alloc_cpus", Integer),
    Column("alloc_mem_mib", BigInteger),
    **_EXACT,
)

gpu_use = Table(
    "gpu_use",
    metadata,
    Column("cluster", NAME, primary_key=True),  # '' if not recorded
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
    Column("node", NAME, primary_key=True),
    Column("gpu", Integer, primary_key=True, autoincrement=False),
    Column("instance", Integer, primary_key=True, autoincrement=False),  # of MIG; -1 is the whole GPU
    Column("source", NAME, primary_key=True),
    Column("first_s", BigInteger, primary_key=True, autoincrement=False),
    Column("last_s", BigInteger, nullable=False),
    Column("samples", Integer, nullable=False),
    Column("util_max_pct", Double),
    Column("util_mean_pct", Double),
    Column("mem_max_mib", Double, nullable=False),
    Column("power_mean_w", Double),
    Index("ix_gpu_use_job_id", "job_id"),
    **_EXACT,
)

decisions = Table(
    "decisions",
    metadata,
    Column("id", NAME, primary_key=True),
    Column("time_s", Double, nullable=False, index=True),
    Column("mode", Text, nullable=False),
    Column("applied", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("job_name", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("document", Text, nullable=False),  # the whole decision as its journal line
    Column("input_mib", Double),
    **_EXACT,
)

advisor_cycles = Table(
    "advisor_cycles",
    metadata,
    Column("id", NAME, primary_key=True),
    Column("time_s", Double, nullable=False, index=True),
    Column("cluster", NAME, nullable=False),
    Column("objective", Text, nullable=False),
    Column("chosen", Text, nullable=False),
    Column("why", Text, nullable=False),
    Column("gain", Double, nullable=False),
    Column("pending", Integer, nullable=False),
    Column("running", Integer, nullable=False),
    Column("applied", Integer, nullable=False),
    Column("control", Integer, nullable=False),
    Column("tried", Text, nullable=False),  # the value of each order that was tried, as JSON
    **_EXACT,
)

advised_jobs = Table(
    "advised_jobs",
    metadata,
    Column("cycle_id", NAME, primary_key=True),
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
    Column("time_s", Double, nullable=False, index=True),  # of the cycle
    Column("submit_s", BigInteger, nullable=False),
    Column("factor_before", BigInteger, nullable=False),
    Column("factor_after", BigInteger, nullable=False),
    Column("base_start_s", Double),
    Column("start_s", Double),
    Column("low_s", Double),
    Column("high_s", Double),
    Column("likely_s", Double),
    Column("reason", Text, nullable=False),
    Column("problem", Text, nullable=False),
    **_EXACT,
)

journal_links = Table(
    "journal_links",
    metadata,
    Column("own", NAME, primary_key=True),
    Column("chain", NAME, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("decision_id", NAME, nullable=False),
    Column("file", NAME, nullable=False),
    Column("time_s", Double, nullable=False, index=True),  # of the decision
    Column("origin", NAME, nullable=False),  # which chain of that name; '' in rows of earlier releases
    Column("reader", NAME, nullable=False),  # the host that read the line
    Index("ix_journal_links_chain", "chain", "number"),
    **_EXACT,
)

recoveries = Table(
    "recoveries",
    metadata,
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
    Column("restarts", Integer, primary_key=True, autoincrement=False),
    Column("decision_id", NAME, primary_key=True),
    Column("what", Text, nullable=False),
    Column("time_s", Double, nullable=False, index=True),
    Column("cause", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("account", Text, nullable=False),
    Column("cpu_hours", Double, nullable=False),
    Column("mem_gib_hours", Double, nullable=False),
    Column("why", Text, nullable=False),
    Column("array_job_id", BigInteger, nullable=False),
    **_EXACT,
)

journals = Table(
    "journals",
    metadata,
    Column("file", NAME, primary_key=True),  # identifies the file (accounting/journal/marks.py)
    Column("read_bytes", BigInteger, nullable=False),
    Column("tail", NAME, nullable=False),  # digest of what precedes; '' in rows of earlier releases
    **_EXACT,
)

windows = Table(
    "windows",
    metadata,
    Column("source", NAME, primary_key=True),
    Column("cluster", NAME, primary_key=True),  # '' if not recorded
    Column("read_until_s", BigInteger, nullable=False),
    **_EXACT,
)

quarantine = Table(
    "quarantine",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("seen_s", BigInteger, nullable=False),
    Column("source", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("line", Text, nullable=False),
    **_EXACT,
)


def portions(keys: Sequence[Key]) -> Iterator[Sequence[Key]]:
    """Yield keys in their order, each once, as many at a time as a query may name: no row is read twice."""
    once = list(dict.fromkeys(keys))
    return (once[begin : begin + KEYS_A_QUERY] for begin in range(0, len(once), KEYS_A_QUERY))


def rows_among(
    connection: Connection, query: Select[Any], column: ColumnElement[Key], keys: Sequence[Key]
) -> Iterator[Row[Any]]:
    """Yield the rows of a query whose column has one of these keys, with as many queries as needed."""
    for chunk in portions(keys):
        yield from connection.execute(query.where(column.in_(chunk)))
