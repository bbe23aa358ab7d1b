"""The links of the decision journal, as read; and the outcomes of jobs that failed because we had cut them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import LONGTEXT

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

NAME = sa.String(length=191)
TEXT = sa.Text().with_variant(LONGTEXT(), "mysql", "mariadb")
EXACT = {"mariadb_charset": "utf8mb4", "mariadb_collate": "utf8mb4_nopad_bin"}


def upgrade() -> None:
    op.create_table(
        "journal_links",
        sa.Column("own", NAME, nullable=False),
        sa.Column("chain", NAME, nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("decision_id", NAME, nullable=False),
        sa.Column("file", NAME, nullable=False),
        sa.Column("time_s", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("own"),
        if_not_exists=True,
        **EXACT,
    )
    op.create_index("ix_journal_links_chain", "journal_links", ["chain", "number"], if_not_exists=True)
    op.create_table(
        "recoveries",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("restarts", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("decision_id", NAME, nullable=False),
        sa.Column("what", TEXT, nullable=False),
        sa.Column("time_s", sa.Double(), nullable=False),
        sa.Column("cause", TEXT, nullable=False),
        sa.Column("user", TEXT, nullable=False),
        sa.Column("account", TEXT, nullable=False),
        sa.Column("cpu_hours", sa.Double(), nullable=False),
        sa.Column("mem_gib_hours", sa.Double(), nullable=False),
        sa.Column("why", TEXT, nullable=False),
        sa.Column("array_job_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "restarts", "decision_id"),
        if_not_exists=True,
        **EXACT,
    )
    for table in ("journal_links", "recoveries"):
        op.create_index(f"ix_{table}_time_s", table, ["time_s"], if_not_exists=True)


def downgrade() -> None:
    for table in ("recoveries", "journal_links"):
        op.drop_table(table, if_exists=True)
