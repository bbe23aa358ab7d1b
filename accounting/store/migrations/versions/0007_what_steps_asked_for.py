"""What each step held of its job, and the most held at one time by an attempt's steps that asked for a part."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

ADDED = {"attempts": ("step_cpus", "step_mem_mib"), "steps": ("alloc_cpus", "alloc_mem_mib")}


def upgrade() -> None:
    for table, (cpus, mem_mib) in ADDED.items():
        # MariaDB keeps each change as soon as it is made: an interrupted migration continues where it stopped.
        for name, kind in ((cpus, sa.Integer()), (mem_mib, sa.BigInteger())):
            if name not in _columns(table):
                op.add_column(table, sa.Column(name, kind))


def downgrade() -> None:
    if set(ADDED["attempts"]) <= _columns("attempts"):
        # Without a digest, these rows are labelled again as soon as their records are read again; without a mark of
        # what was labelled, the next upgrade says that this is to be done.
        held = " OR ".join(f"{name} IS NOT NULL" for name in ADDED["attempts"])
        op.execute(f"UPDATE attempts SET record_digest = NULL WHERE {held}")  # noqa: S608
        op.execute("DELETE FROM windows WHERE source LIKE 'labels-%'")
    for table, names in ADDED.items():
        for name in names:
            if name in _columns(table):
                op.drop_column(table, name)


def _columns(table: str) -> set[str]:
    return {str(column["name"]) for column in sa.inspect(op.get_bind()).get_columns(table)}
