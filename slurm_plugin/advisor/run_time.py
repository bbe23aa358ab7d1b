"""How long a job is expected to run, and how much longer if it runs already. Pure.

It decides what a prediction means within the job's limit; predictions themselves come from the model in use.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import msgspec

from accounting.decisions.token import asked_request, find_token
from accounting.request import JobRequest
from models.demand.chain import Estimate
from slurm_plugin.slurm.snapshot import QueuedJob, Snapshot

# Stands for the limit of a job that has none; no plan looks that far ahead.
UNLIMITED_S = 365 * 86400.0
SHORTEST_S = 1.0
# `upper` is what almost no job exceeds: one in a hundred.
_NORMAL = NormalDist()
UPPER_Z = _NORMAL.inv_cdf(0.99)
# The logarithms of run times of similar jobs vary by no less than this, however few were seen.
LEAST_SPREAD = 0.05


class RunTime(msgspec.Struct, frozen=True, kw_only=True):
    """How long a job runs: the median and what few exceed, neither beyond its limit; `basis` says what they rest on."""

    likely_s: float
    upper_s: float
    basis: str
    jobs: int = 0


def limit_of(job: QueuedJob) -> float:
    """Return a job's limit in seconds, a year if it has none."""
    return max(SHORTEST_S, UNLIMITED_S if job.limit_s is None else float(job.limit_s))


def most_left_s(job: QueuedJob, now_s: float, over_limit_s: float = 0.0) -> float:
    """Return how much longer Slurm lets a job keep its nodes (seconds); a suspended job as if it resumed now.

    A job that is beyond its limit may be so for `over_limit_s` (OverTimeLimit), and at most for as long as its limit:
    if Slurm never ends it, nothing is known.
    """
    beyond_s = job.ran_s(now_s) - limit_of(job)
    if job.state == "RUNNING" and beyond_s > 0:
        return max(0.0, min(over_limit_s, limit_of(job)) - beyond_s)
    left_s = max(0.0, -beyond_s)
    if job.state == "RUNNING" and job.end_s:
        # A job that is being preempted has only its GraceTime left, which Slurm shows as its end.
        return min(left_s, max(0.0, job.end_s - now_s))
    return 0.0 if job.ending else left_s


def over_limit_of(job: QueuedJob, snapshot: Snapshot) -> float:
    """Return how long a running job may run beyond its limit (seconds): as its partition says, or the cluster."""
    own = {one.name: one.over_limit_s for one in snapshot.partitions if one.name in job.partitions}
    told = [seconds for seconds in own.values() if seconds is not None]
    return max(told, default=snapshot.terms.over_limit_s)


def by_limit(job: QueuedJob, why: str) -> RunTime:
    """Return the run time of a job of which only the limit is known, and why nothing else is."""
    limit_s = limit_of(job)
    return RunTime(likely_s=limit_s, upper_s=limit_s, basis=f"its time limit, because {why}")


def within_limit(job: QueuedJob, estimate: Estimate, whose: str = "jobs like it") -> RunTime:
    """Return an estimate, from `whose` jobs, as a run time; an estimate that is not a number is not used."""
    if not (math.isfinite(estimate.likely) and math.isfinite(estimate.upper)) or estimate.likely <= 0:
        return by_limit(job, "its predicted run time is not a valid number")
    limit_s = limit_of(job)
    likely_s = min(limit_s, max(SHORTEST_S, estimate.likely))
    return RunTime(
        likely_s=likely_s,
        upper_s=min(limit_s, max(likely_s, estimate.upper)),
        basis=f"{estimate.jobs} earlier {whose}",
        jobs=estimate.jobs,
    )


def likely_left_s(run_time: RunTime, ran_s: float, limit_left_s: float) -> float:
    """Return how much longer a job that has run this long is likely to run: the median of those that ran as long.

    Run times are taken as lognormal through the two quantiles. A job that has run longer than any similar one is
    expected to use the rest of its limit.
    """
    if run_time.jobs == 0:
        return limit_left_s
    middle = math.log(run_time.likely_s)
    spread = max(LEAST_SPREAD, (math.log(run_time.upper_s) - middle) / UPPER_Z)
    as_long = _NORMAL.cdf((middle - math.log(max(ran_s, SHORTEST_S))) / spread)
    if as_long / 2 <= 0:
        return limit_left_s
    total_s = math.exp(middle - spread * _NORMAL.inv_cdf(as_long / 2))
    return min(limit_left_s, max(0.0, total_s - ran_s))


def request_of(job: QueuedJob) -> JobRequest:
    """Return what the user of a queued job asked for: originally, if our token says, else as Slurm has it now."""
    token = find_token(job.admin_comment)
    first = asked_request(token, job.user) if token else None
    known = msgspec.structs.asdict(first or now_asked(job))
    known |= {
        "account": job.account,
        "partition": job.partitions[0] if job.partitions else "",
        "qos": job.qos,
        "job_name": job.name,
        "script_signature": token.signature if token else "",
        "wall_s": job.limit_s,
    }
    return JobRequest(**known)


def now_asked(job: QueuedJob) -> JobRequest:
    """Return what a job asks for as Slurm has it."""
    return JobRequest(
        user=job.user,
        num_tasks=max(1, job.num_tasks),
        cpus_per_task=job.cpus_per_task,
        mem_per_node_mib=job.mem_per_node_mib,
        mem_per_cpu_mib=None if job.mem_per_node_mib is not None else job.mem_per_cpu_mib,
        gpus_per_job=job.gpus or None,
        nodes=job.num_nodes if job.num_nodes > 1 else None,
    )
