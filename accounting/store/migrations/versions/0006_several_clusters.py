"""Marks of windows and GPU use by cluster, files of journals by their contents, links by chain and reader.

The contents of a store belong to its one known cluster. If its attempts are of several clusters, or of none, it is
unknown whose a mark is: it stays unnamed (''), and each cluster is read from before it (ingest/ingesting.py). Marks of
journals stay as they are, by the files' names only, and count for no file: each is read once more, onto the same rows.

MariaDB keeps each change as soon as it is made: every step first checks whether it was done.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

NAME = sa.String(length=191)
EXACT = {"mariadb_charset": "utf8mb4", "mariadb_collate": "utf8mb4_nopad_bin"}
ADDED = (("journals", "tail"), ("journal_links", "origin"), ("journal_links", "reader"))
GPU_KEY = ("job_id", "node", "gpu", "instance", "source", "first_s")
GPU_FIGURES = ("last_s", "samples", "util_max_pct", "util_mean_pct", "mem_max_mib", "power_mean_w")


def upgrade() -> None:
    for table, name in ADDED:
        if name not in _columns(table):
            op.add_column(table, sa.Column(name, NAME, nullable=False, server_default=""))
    if _set_aside("windows", "windows_0005", done="cluster" in _columns("windows")):
        _create_windows("windows_0006_pkey", _cluster())
        said = "source, read_until_s"
        # In that column, a later release keeps the mark of the key of pseudonyms: it was lost as the store went back.
        marks = f"SELECT {said}, :cluster FROM windows_0005 WHERE source <> 'pseudonyms'"  # noqa: S608
        _refill("windows", f"{said}, cluster", marks)
        op.drop_table("windows_0005")
    if _set_aside("gpu_use", "gpu_use_0005", done="cluster" in _columns("gpu_use")):
        _create_gpu_use("gpu_use_0006_pkey", _cluster())
        said = ", ".join((*GPU_KEY, *GPU_FIGURES))
        _refill("gpu_use", f"{said}, cluster", f"SELECT {said}, :cluster FROM gpu_use_0005")  # noqa: S608
        op.drop_table("gpu_use_0005")
    op.create_index("ix_gpu_use_job_id", "gpu_use", ["job_id"], if_not_exists=True)


def downgrade() -> None:
    """Let the earliest of several clusters' marks count for all again, and merge GPU uses that then share a key."""
    if _set_aside("windows", "windows_0006", done="cluster" not in _columns("windows")):
        _create_windows("windows_0005_pkey")
        earliest = "SELECT source, MIN(read_until_s) FROM windows_0006 GROUP BY source"
        _refill("windows", "source, read_until_s", earliest)
        op.drop_table("windows_0006")
    if _set_aside("gpu_use", "gpu_use_0006", done="cluster" not in _columns("gpu_use")):
        _create_gpu_use("gpu_use_0005_pkey")
        key, figures = ", ".join(GPU_KEY), ", ".join(f"MAX({name})" for name in GPU_FIGURES)
        once = f"SELECT {key}, {figures} FROM gpu_use_0006 GROUP BY {key}"  # noqa: S608
        _refill("gpu_use", ", ".join((*GPU_KEY, *GPU_FIGURES)), once)
        op.drop_table("gpu_use_0006")
    if "tail" in _columns("journals"):
        _marks_by_name()
    for table, name in ADDED:
        if name in _columns(table):
            op.drop_column(table, name)


def _columns(table: str) -> set[str]:
    inspector = sa.inspect(op.get_bind())
    if not inspector.has_table(table):  # set aside, by a run that was interrupted
        return set()
    return {str(column["name"]) for column in inspector.get_columns(table)}


def _set_aside(table: str, aside: str, *, done: bool) -> bool:
    """Rename a table to the name from which it is copied; return False if it has been copied already.

    The key changes, which not every database can do in place.
    """
    if not sa.inspect(op.get_bind()).has_table(aside):
        if done:
            return False
        op.rename_table(table, aside)
    return True


def _refill(table: str, columns: str, query: str) -> None:
    op.execute(f"DELETE FROM {table}")  # noqa: S608 - copied by a run that was cut off, perhaps not whole
    statement = sa.text(f"INSERT INTO {table} ({columns}) {query}")
    if ":cluster" in query:
        statement = statement.bindparams(sa.bindparam("cluster", _known_cluster(), sa.String()))
    op.get_bind().execute(statement)


def _known_cluster() -> str:
    """Return the one cluster whose attempts the store has; '' if it has none, or those of several."""
    ends = [
        op.get_bind().execute(sa.text(f"SELECT {end}(cluster) FROM attempts")).scalar()  # noqa: S608
        for end in ("MIN", "MAX")
    ]
    return str(ends[0]) if ends[0] is not None and ends[0] == ends[1] else ""


def _cluster() -> sa.Column[str]:
    return sa.Column("cluster", NAME, nullable=False)


def _create_windows(key: str, *cluster: sa.Column[str]) -> None:
    op.create_table(
        "windows",
        sa.Column("source", NAME, nullable=False),
        *cluster,
        sa.Column("read_until_s", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("source", *(column.name for column in cluster), name=key),
        if_not_exists=True,
        **EXACT,
    )


def _create_gpu_use(key: str, *cluster: sa.Column[str]) -> None:
    op.create_table(
        "gpu_use",
        *cluster,
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("node", NAME, nullable=False),
        sa.Column("gpu", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("instance", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("source", NAME, nullable=False),
        sa.Column("first_s", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("last_s", sa.BigInteger(), nullable=False),
        sa.Column("samples", sa.Integer(), nullable=False),
        sa.Column("util_max_pct", sa.Double()),
        sa.Column("util_mean_pct", sa.Double()),
        sa.Column("mem_max_mib", sa.Double(), nullable=False),
        sa.Column("power_mean_w", sa.Double()),
        sa.PrimaryKeyConstraint(*(column.name for column in cluster), *GPU_KEY, name=key),
        if_not_exists=True,
        **EXACT,
    )


def _marks_by_name() -> None:
    """Keep the marks of files by their names only; of several files with the same name, the earliest."""
    bind = op.get_bind()
    marks: dict[str, int] = {}
    for file, read_bytes in bind.execute(sa.text("SELECT file, read_bytes FROM journals WHERE tail <> ''")):
        name = str(file).rpartition("#")[0]
        if name:
            marks[name] = min(int(read_bytes), marks.get(name, int(read_bytes)))
    for name, read_bytes in marks.items():
        bind.execute(sa.text("DELETE FROM journals WHERE file = :file"), {"file": name})
        row = {"file": name, "read_bytes": read_bytes}
        bind.execute(
            sa.text("INSERT INTO journals (file, read_bytes, tail) VALUES (:file, :read_bytes, '')"), row
        )
    op.execute("DELETE FROM journals WHERE tail <> ''")
