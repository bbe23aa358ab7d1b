"""How much input a job's script named, where the service looked: with the decision, and with the attempt it was for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("decisions", "attempts"):
        # MariaDB keeps each change as soon as it is made: one that was cut off goes on where it stopped.
        if "input_mib" not in {str(one["name"]) for one in sa.inspect(op.get_bind()).get_columns(name)}:
            op.add_column(name, sa.Column("input_mib", sa.Double()))


def downgrade() -> None:
    for name in ("decisions", "attempts"):
        if "input_mib" in {str(one["name"]) for one in sa.inspect(op.get_bind()).get_columns(name)}:
            op.drop_column(name, "input_mib")
