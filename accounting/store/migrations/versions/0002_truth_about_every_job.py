"""How far each figure can be trusted; use per node, I/O, energy; MIG instances; where quarantined input came from."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

QUALITIES = ("cores_quality", "gpu_quality", "io_quality", "energy_quality")


def upgrade() -> None:
    with op.batch_alter_table("attempts") as table:
        for name in ("peak_node_mib", "gpu_mem_mib", "read_mib", "written_mib", "energy_j"):
            table.add_column(sa.Column(name, sa.Double()))
        for name, default in (*((name, "absent") for name in QUALITIES), ("wall_quality", "exact")):
            table.add_column(
                sa.Column(name, sa.Text(), nullable=False, server_default=sa.text(f"('{default}')"))
            )
        for name in ("slurm_release", "gather"):
            table.add_column(sa.Column(name, sa.Text(), nullable=False, server_default=sa.text("('')")))
        # None: these rows are labelled anew as soon as their record is read again.
        table.add_column(sa.Column("record_digest", sa.BigInteger()))
    with op.batch_alter_table("steps") as table:
        table.add_column(sa.Column("nodes", sa.Integer(), nullable=False, server_default="1"))
        for name in ("gpu_util_pct", "gpu_mem_mib", "read_mib", "written_mib", "energy_j"):
            table.add_column(sa.Column(name, sa.Double()))
    with op.batch_alter_table("quarantine") as table:
        table.add_column(sa.Column("source", sa.Text(), nullable=False, server_default=sa.text("('')")))
    _gpu_use_by_instance()


def _gpu_use_by_instance() -> None:
    """Make a new table: the key changes, which not every database can do in place."""
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
    )
    kept = "job_id, node, gpu, source, first_s, last_s, samples, util_max_pct, util_mean_pct, mem_max_mib"
    op.execute(f"INSERT INTO gpu_use ({kept}, instance) SELECT {kept}, -1 FROM gpu_use_0001")  # noqa: S608
    op.drop_table("gpu_use_0001")
