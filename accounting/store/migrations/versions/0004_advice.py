"""What the advisor planned and did, cycle by cycle, and what it then expected of pending jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import LONGTEXT

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

NAME = sa.String(length=191)
TEXT = sa.Text().with_variant(LONGTEXT(), "mysql", "mariadb")
EXACT = {"mariadb_charset": "utf8mb4", "mariadb_collate": "utf8mb4_nopad_bin"}


def upgrade() -> None:
    op.create_table(
        "advisor_cycles",
        sa.Column("id", NAME, nullable=False),
        sa.Column("time_s", sa.Double(), nullable=False),
        sa.Column("cluster", NAME, nullable=False),
        sa.Column("objective", TEXT, nullable=False),
        sa.Column("chosen", TEXT, nullable=False),
        sa.Column("why", TEXT, nullable=False),
        sa.Column("gain", sa.Double(), nullable=False),
        sa.Column("pending", sa.Integer(), nullable=False),
        sa.Column("running", sa.Integer(), nullable=False),
        sa.Column("applied", sa.Integer(), nullable=False),
        sa.Column("control", sa.Integer(), nullable=False),
        sa.Column("tried", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id"),
        if_not_exists=True,
        **EXACT,
    )
    op.create_table(
        "advised_jobs",
        sa.Column("cycle_id", NAME, nullable=False),
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("time_s", sa.Double(), nullable=False),
        sa.Column("submit_s", sa.BigInteger(), nullable=False),
        sa.Column("factor_before", sa.BigInteger(), nullable=False),
        sa.Column("factor_after", sa.BigInteger(), nullable=False),
        *(
            sa.Column(name, sa.Double())
            for name in ("base_start_s", "start_s", "low_s", "high_s", "likely_s")
        ),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column("problem", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("cycle_id", "job_id"),
        if_not_exists=True,
        **EXACT,
    )
    for table in ("advisor_cycles", "advised_jobs"):
        op.create_index(f"ix_{table}_time_s", table, ["time_s"], if_not_exists=True)


def downgrade() -> None:
    for table in ("advised_jobs", "advisor_cycles"):
        op.drop_table(table, if_exists=True)
