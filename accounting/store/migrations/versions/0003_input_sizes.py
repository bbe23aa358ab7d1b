"""The size of the input that a job's script named, if the service looked: on the decision and on its attempt."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("decisions", "attempts"):
        # MariaDB keeps each change as soon as it is made: an interrupted migration continues where it stopped.
        if "input_mib" not in {str(one["name"]) for one in sa.inspect(op.get_bind()).get_columns(name)}:
            op.add_column(name, sa.Column("input_mib", sa.Double()))


def downgrade() -> None:
    for name in ("decisions", "attempts"):
        if "input_mib" in {str(one["name"]) for one in sa.inspect(op.get_bind()).get_columns(name)}:
            op.drop_column(name, "input_mib")
