"""How far each figure can be trusted; use per node, I/O, energy; MIG instances; the source of quarantined input.

Also exact names and long texts on MariaDB, and indices for what is read. MariaDB keeps each change as soon as it is
made: an interrupted migration continues where it stopped, so every step first checks whether it was done.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import LONGTEXT

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(LONGTEXT(), "mysql", "mariadb")
EXACT = {"mariadb_charset": "utf8mb4", "mariadb_collate": "utf8mb4_nopad_bin"}
QUALITIES = ("cores_quality", "gpu_quality", "io_quality", "energy_quality")


def upgrade() -> None:
    if op.get_bind().dialect.name == "mariadb":
        _exact_names_and_long_texts()
    absent = [_text(name, "absent") for name in QUALITIES]
    said = [_text("wall_quality", "exact"), _text("slurm_release", ""), _text("gather", "")]
    figures = [
        _figure(name) for name in ("peak_node_mib", "gpu_mem_mib", "read_mib", "written_mib", "energy_j")
    ]
    # Null: these rows are labelled again as soon as their record is read again.
    _add("attempts", *figures, *absent, *said, sa.Column("record_digest", sa.BigInteger()))
    figures = [
        _figure(name) for name in ("gpu_util_pct", "gpu_mem_mib", "read_mib", "written_mib", "energy_j")
    ]
    _add("steps", sa.Column("nodes", sa.Integer(), nullable=False, server_default="1"), *figures)
    _add("quarantine", _text("source", ""))
    op.drop_index("ix_attempts_decision_id", "attempts", if_exists=True)
    op.drop_index("ix_attempts_end_s", "attempts", if_exists=True)
    op.create_index("ix_attempts_job_id", "attempts", ["job_id"], if_not_exists=True)
    op.create_index(
        "ix_attempts_known", "attempts", ["end_s", "cluster", "record_digest"], if_not_exists=True
    )
    _gpu_use_by_instance()


def _figure(name: str) -> sa.Column[float]:
    return sa.Column(name, sa.Double())


def _text(name: str, default: str) -> sa.Column[str]:
    return sa.Column(name, TEXT, nullable=False, server_default=sa.text(f"('{default}')"))


def _add(name: str, *columns: sa.Column[float] | sa.Column[str] | sa.Column[int]) -> None:
    present = _columns(name)
    with op.batch_alter_table(name) as table:
        for column in columns:
            if column.name not in present:
                table.add_column(column)


def _columns(table: str) -> set[str]:
    return {str(column["name"]) for column in sa.inspect(op.get_bind()).get_columns(table)}


def _exact_names_and_long_texts() -> None:
    """Distinguish names that differ in case or trailing spaces, and accept texts beyond 64 KiB."""
    inspector = sa.inspect(op.get_bind())
    for table in ("attempts", "decisions", "gpu_use", "journals", "quarantine", "steps", "windows"):
        if not inspector.has_table(table):  # gpu_use, if the migration was interrupted
            continue
        op.execute(f"ALTER TABLE {table} CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin")
        texts = [
            f"MODIFY `{column['name']}` LONGTEXT NOT NULL"
            for column in inspector.get_columns(table)
            if _is_text(column["type"]) and column["name"] not in _LATER
        ]
        if texts:
            op.execute(f"ALTER TABLE {table} {', '.join(texts)}")


def _is_text(kind: sa.types.TypeEngine[object]) -> bool:
    """Whether it is a TEXT of any length: the conversion may have made it a MEDIUMTEXT."""
    return isinstance(kind, sa.String) and not isinstance(kind, sa.VARCHAR)


# Text columns that this migration itself adds, with a default.
_LATER = (*QUALITIES, "wall_quality", "slurm_release", "gather", "source")


def _gpu_use_by_instance() -> None:
    """Make a new table: the key changes, which not every database can do in place."""
    inspector = sa.inspect(op.get_bind())
    if not inspector.has_table("gpu_use_0001"):
        if inspector.has_table("gpu_use") and "instance" in _columns("gpu_use"):
            return
        op.rename_table("gpu_use", "gpu_use_0001")
    op.create_table(
        "gpu_use",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("node", sa.String(length=191), nullable=False),
        sa.Column("gpu", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("instance", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("source", sa.String(length=191), nullable=False),
        sa.Column("first_s", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("last_s", sa.BigInteger(), nullable=False),
        sa.Column("samples", sa.Integer(), nullable=False),
        sa.Column("util_max_pct", sa.Double()),
        sa.Column("util_mean_pct", sa.Double()),
        sa.Column("mem_max_mib", sa.Double(), nullable=False),
        sa.Column("power_mean_w", sa.Double()),
        sa.PrimaryKeyConstraint(
            "job_id", "node", "gpu", "instance", "source", "first_s", name="gpu_use_0002_pkey"
        ),
        if_not_exists=True,
        **EXACT,
    )
    kept = "job_id, node, gpu, source, first_s, last_s, samples, util_max_pct, util_mean_pct, mem_max_mib"
    op.execute("DELETE FROM gpu_use")  # copied by a run that was interrupted, perhaps not completely
    op.execute(f"INSERT INTO gpu_use ({kept}, instance) SELECT {kept}, -1 FROM gpu_use_0001")  # noqa: S608
    op.drop_table("gpu_use_0001")
