"""The first schema: attempts, steps, GPU use, decisions, and where reading stopped.

MariaDB keeps each table as soon as it is made: an interrupted migration continues where it stopped.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "attempts",
        sa.Column("cluster", sa.String(length=191), nullable=False),
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("submit_s", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("start_s", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("end_s", sa.BigInteger(), nullable=False),
        sa.Column("elapsed_s", sa.BigInteger(), nullable=False),
        sa.Column("display_id", sa.Text(), nullable=False),
        sa.Column("user", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("partition", sa.Text(), nullable=False),
        sa.Column("qos", sa.Text(), nullable=False),
        sa.Column("job_name", sa.Text(), nullable=False),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.Column("admin_comment", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("limit_s", sa.BigInteger(), nullable=True),
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.Column("req_cpus", sa.Integer(), nullable=True),
        sa.Column("req_mem_mib", sa.BigInteger(), nullable=True),
        sa.Column("req_gpus", sa.Integer(), nullable=True),
        sa.Column("alloc_cpus", sa.Integer(), nullable=True),
        sa.Column("alloc_mem_mib", sa.BigInteger(), nullable=True),
        sa.Column("alloc_gpus", sa.Integer(), nullable=True),
        sa.Column("num_tasks", sa.Integer(), nullable=False),
        sa.Column("asked_cpus", sa.Integer(), nullable=True),
        sa.Column("asked_mem_mib", sa.BigInteger(), nullable=True),
        sa.Column("asked_gpus", sa.Integer(), nullable=True),
        sa.Column("decision_id", sa.String(length=191), nullable=False),
        sa.Column("script_signature", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("peak_mem_mib", sa.Double(), nullable=True),
        sa.Column("memory_quality", sa.Text(), nullable=False),
        sa.Column("cores", sa.Double(), nullable=True),
        sa.Column("cores_per_task", sa.Double(), nullable=True),
        sa.Column("wall_s", sa.BigInteger(), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=True),
        sa.Column("gpu_source", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "job_id", "submit_s", "start_s"),
        if_not_exists=True,
    )
    op.create_index(
        op.f("ix_attempts_decision_id"), "attempts", ["decision_id"], unique=False, if_not_exists=True
    )
    op.create_index(op.f("ix_attempts_end_s"), "attempts", ["end_s"], unique=False, if_not_exists=True)
    op.create_table(
        "decisions",
        sa.Column("id", sa.String(length=191), nullable=False),
        sa.Column("time_s", sa.Double(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("applied", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("user", sa.Text(), nullable=False),
        sa.Column("job_name", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        if_not_exists=True,
    )
    op.create_index(op.f("ix_decisions_time_s"), "decisions", ["time_s"], unique=False, if_not_exists=True)
    op.create_table(
        "gpu_use",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("node", sa.String(length=191), nullable=False),
        sa.Column("gpu", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("source", sa.String(length=191), nullable=False),
        sa.Column("first_s", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("last_s", sa.BigInteger(), nullable=False),
        sa.Column("samples", sa.Integer(), nullable=False),
        sa.Column("util_max_pct", sa.Double(), nullable=False),
        sa.Column("util_mean_pct", sa.Double(), nullable=False),
        sa.Column("mem_max_mib", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "node", "gpu", "source", "first_s"),
        if_not_exists=True,
    )
    op.create_table(
        "journals",
        sa.Column("file", sa.String(length=191), nullable=False),
        sa.Column("read_bytes", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("file"),
        if_not_exists=True,
    )
    op.create_table(
        "quarantine",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("seen_s", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("line", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("digest"),
        if_not_exists=True,
    )
    op.create_table(
        "steps",
        sa.Column("cluster", sa.String(length=191), nullable=False),
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("submit_s", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("attempt_start_s", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("step_id", sa.String(length=191), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("start_s", sa.BigInteger(), nullable=False),
        sa.Column("end_s", sa.BigInteger(), nullable=False),
        sa.Column("tasks", sa.Integer(), nullable=False),
        sa.Column("mem_max_task_mib", sa.Double(), nullable=True),
        sa.Column("mem_total_mib", sa.Double(), nullable=True),
        sa.Column("cpu_s", sa.Double(), nullable=True),
        sa.Column("cpu_max_task_s", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("cluster", "job_id", "submit_s", "attempt_start_s", "step_id"),
        if_not_exists=True,
    )
    op.create_table(
        "windows",
        sa.Column("source", sa.String(length=191), nullable=False),
        sa.Column("read_until_s", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("source"),
        if_not_exists=True,
    )
