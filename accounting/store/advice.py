"""Writes the advisor's cycles to the store. Every write is idempotent by its primary key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection

from accounting.journal.advice import AdvisedJob, Cycle
from accounting.store import schema
from accounting.store.counts import Counts
from accounting.store.records import write_rows

Row = dict[str, Any]


def write_cycles(connection: Connection, cycles: Sequence[Cycle]) -> Counts:
    """Store cycles with their advice on jobs; the counts are of cycles."""
    write_rows(connection, schema.advised_jobs, _job_rows(cycles))
    return write_rows(connection, schema.advisor_cycles, (_cycle_row(cycle) for cycle in cycles))


def _cycle_row(cycle: Cycle) -> Row:
    return {
        "id": cycle.id,
        "time_s": cycle.time_s,
        "cluster": cycle.cluster,
        "objective": cycle.objective,
        "chosen": cycle.order,
        "why": cycle.why,
        "gain": cycle.gain,
        "pending": cycle.pending,
        "running": cycle.running,
        "applied": int(cycle.applied),
        "control": int(cycle.control),
        "tried": msgspec.json.encode(dict(cycle.tried)).decode(),
    }


def _job_rows(cycles: Iterable[Cycle]) -> Iterator[Row]:
    return (_job_row(cycle, job) for cycle in cycles for job in cycle.jobs)


def _job_row(cycle: Cycle, job: AdvisedJob) -> Row:
    return {
        "cycle_id": cycle.id,
        "job_id": job.job_id,
        "time_s": cycle.time_s,
        "submit_s": int(job.submit_s),
        "factor_before": job.before,
        "factor_after": job.after,
        "base_start_s": job.base_start_s,
        "start_s": job.start_s,
        "low_s": job.low_s,
        "high_s": job.high_s,
        "likely_s": job.likely_s,
        "reason": job.reason,
        "problem": job.problem,
    }
