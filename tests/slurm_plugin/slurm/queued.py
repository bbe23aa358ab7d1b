"""Queues for tests of the advisor: jobs, nodes and snapshots, with defaults for what a test does not name."""

from __future__ import annotations

from typing import Any

from slurm_plugin.slurm.snapshot import NodeState, PartitionState, QueuedJob, SchedulerTerms, Snapshot

NOW_S = 1_800_000_000.0
TERMS = SchedulerTerms(
    priority_type="priority/multifactor",
    scheduler_type="sched/backfill",
    parameters=("bf_continue",),
    weights={"Age": 1000},
)


def waiting(job_id: int, **fields: Any) -> QueuedJob:
    """Return a job that has been pending for a minute, with one CPU and 1000 MiB for an hour."""
    return QueuedJob(
        **{
            "job_id": job_id,
            "user": "ann",
            "uid": 1001,
            "account": "physics",
            "partitions": ("batch",),
            "qos": "normal",
            "name": f"fit-{job_id}",
            "state": "PENDING",
            "reason": "Priority",
            "submit_s": NOW_S - 60,
            "eligible_s": NOW_S - 60,
            "start_s": 0.0,
            "end_s": 0.0,
            "limit_s": 3600,
            "priority": 5000 - job_id,
            "site_factor": 0,
            "cpus": 1,
            "mem_mib": 1000,
            "gpus": 0,
            **fields,
        }
    )


def running(job_id: int, **fields: Any) -> QueuedJob:
    """Return a job that has been running on n1 for ten minutes."""
    started = {"state": "RUNNING", "reason": "None", "start_s": NOW_S - 600, "nodes": ("n1",)}
    return waiting(job_id, **{**started, **fields})


def snapshot(*jobs: QueuedJob, nodes: int | tuple[NodeState, ...] = 2, **fields: Any) -> Snapshot:
    """Return a cluster of nodes n1, n2, … of 8 CPUs and 16,000 MiB in one partition."""
    known = (
        nodes
        if isinstance(nodes, tuple)
        else tuple(
            NodeState(name=f"n{number}", cpus=8, mem_mib=16_000, gpus=0, partitions=("batch",))
            for number in range(1, nodes + 1)
        )
    )
    return Snapshot(
        **{
            "time_s": NOW_S,
            "jobs": jobs,
            "nodes": known,
            "partitions": (PartitionState(name="batch"),),
            "reservations": (),
            "terms": TERMS,
            **fields,
        }
    )
