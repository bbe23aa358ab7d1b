"""Reads records back from the store, to label them again when more is known about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection, or_, select

from accounting.decisions.by_clients import CLOCKS_DIFFER_S, LEAD_S
from accounting.decisions.decision import Decision, decode_decision
from accounting.decisions.originals import CARRIED_WORD, TOKEN_WORD, VIA_WORD, named_decisions
from accounting.frames import JOBS, STEPS, Records
from accounting.records import Key, Meter
from accounting.store.schema import attempts, decisions, portions, rows_among, steps

LATEST_S = 2.0**40  # beyond any time in a job


def read_records(connection: Connection, job_ids: Sequence[int]) -> Records:
    """Return the records of jobs' stored attempts, so that they can be labelled again."""
    jobs: list[dict[str, object]] = []
    own: list[dict[str, object]] = []
    place: dict[Key, int] = {}
    for chunk in portions(job_ids):
        clusters = set[str]()
        for row in connection.execute(select(attempts).where(attempts.c.job_id.in_(chunk))).mappings():
            place[row["cluster"], row["job_id"], row["submit_s"], row["start_s"]] = len(jobs)
            clusters.add(row["cluster"])
            jobs.append({**row, "tasks": row["num_tasks"], "digest": row["record_digest"]})
        if not clusters:
            continue
        # The key of steps begins with the cluster: without it, all steps would be read.
        of_jobs = select(steps).where(steps.c.cluster.in_(clusters), steps.c.job_id.in_(chunk))
        for row in connection.execute(of_jobs).mappings():
            job = place[row["cluster"], row["job_id"], row["submit_s"], row["attempt_start_s"]]
            own.append({**row, "job": job})
    own.sort(key=lambda step: step["job"])  # type: ignore[arg-type, return-value]
    return Records(pa.Table.from_pylist(jobs, JOBS), pa.Table.from_pylist(own, STEPS))


def jobs_with_other_steps(connection: Connection, records: Records) -> list[int]:
    """Return the jobs for which the store has steps, of the same attempts, that these records lack."""
    own, of_job = steps.c, records.steps["job"]
    keys = {name: records.jobs[name] for name in ("cluster", "job_id", "submit_s", "start_s")}
    attempts_told = set(zip(*(column.to_pylist() for column in keys.values()), strict=True))
    told = set(
        zip(
            *(column.take(of_job).to_pylist() for column in keys.values()),
            records.steps["step_id"].to_pylist(),
            strict=True,
        )
    )
    query = select(own.cluster, own.job_id, own.submit_s, own.attempt_start_s, own.step_id).where(
        own.cluster.in_(pc.unique(keys["cluster"]).to_pylist())
    )
    stored = map(tuple, rows_among(connection, query, own.job_id, keys["job_id"].to_pylist()))
    return sorted({key[1] for key in stored if key not in told and key[:4] in attempts_told})


def read_meters(connection: Connection, job_ids: Sequence[int]) -> dict[Key, Meter]:
    """Return what measured the jobs' stored attempts; attempts of which nobody told are left out."""
    own = attempts.c
    query = select(
        own.cluster, own.job_id, own.submit_s, own.start_s, own.slurm_release, own.gather, own.record_digest
    ).where(own.slurm_release != "")
    rows = rows_among(connection, query, own.job_id, job_ids)
    return {
        (row.cluster, row.job_id, row.submit_s, row.start_s): Meter(
            row.slurm_release, row.gather, is_known=row.record_digest is not None
        )
        for row in rows
    }


def jobs_naming(connection: Connection, decisions: Sequence[Decision]) -> list[int]:
    """Return the jobs of stored attempts that name one of these decisions: the attempts were read first.

    Looks at attempts that ended after the earliest decision: these are few, unless a journal comes late.
    """
    if not decisions:
        return []
    ids = {one.id for one in decisions}
    # A damaged journal may hold any number as a time; a database does not accept that.
    times_s = [int(min(max(one.time_s, 0.0), LATEST_S)) for one in decisions]
    own = attempts.c
    query = select(own.job_id, own.comment, own.admin_comment).where(
        own.end_s >= min(times_s) - CLOCKS_DIFFER_S,
        own.submit_s <= max(times_s) + LEAD_S,
        or_(own.comment.contains(CARRIED_WORD), own.admin_comment.contains(TOKEN_WORD)),
    )
    found = set[int]()
    for job_id, comment, admin_comment in connection.execute(query):
        if not ids.isdisjoint(named_decisions(comment, admin_comment)):
            found.add(job_id)
    return sorted(found)


def stored_comments(connection: Connection, job_ids: Sequence[int]) -> Iterator[tuple[Key, str]]:
    """Yield the admin comments of the stored attempts of jobs, by attempt."""
    of = attempts.c
    query = select(of.cluster, of.job_id, of.submit_s, of.start_s, of.admin_comment)
    for row in rows_among(connection, query, of.job_id, job_ids):
        yield (row.cluster, row.job_id, row.submit_s, row.start_s), row.admin_comment


def decisions_about(
    connection: Connection, users: Sequence[str], spans: Iterable[tuple[float, float]]
) -> Iterator[Decision]:
    """Yield the stored decisions about users' submissions that were made in spans (unix seconds, both included)."""
    own = decisions.c
    for from_s, until_s in spans:
        query = select(own.document).where(own.time_s >= from_s, own.time_s <= until_s)
        for row in rows_among(connection, query, own.user, users):
            decision = decode_decision(str(row.document).encode())
            if decision is not None:
                yield decision


def named_for_clients(connection: Connection) -> set[str]:
    """Return the decisions named in the texts of stored direct jobs: an attempt's column holds only one of its two."""
    own = attempts.c
    query = select(own.comment, own.admin_comment).where(
        or_(own.comment.contains(CARRIED_WORD), own.admin_comment.contains(VIA_WORD))
    )
    return set[str]().union(*(named_decisions(*texts) for texts in connection.execute(query)))
