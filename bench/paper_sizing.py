"""This project's predictor and policy as the sizing in a simulation, for jobs without accounting.

GPU shares stay as requested: no Slurm request that the service knows names a part of a GPU.
"""

from __future__ import annotations

from accounting.request import JobRequest
from bench.paper_load import KINDS
from models.demand.prediction import ChainSettings
from models.judging.online import Learner, OnlineJob
from models.past.jobs import PastJob
from models.scheduling.room import MILLI, amounts_of
from models.simulation.learned import LearnedSizing
from models.simulation.workload import Workload
from slurm_plugin.cli.models.sizing import online_grant
from slurm_plugin.config.settings import Config

# The paper has no time limits.
NO_LIMIT_S = 365 * 86400


def own_sizing(jobs: Workload, past: Workload, most_slowdown: float) -> LearnedSizing:
    """Return what the service would grant by its defaults, based on what had ended; `past` are earlier jobs."""
    config = Config()
    learner = Learner(ChainSettings(most_slowdown=most_slowdown), config.models.recent_jobs)
    latest_s = float((past.submit_s + past.run_s).max())
    for number in range(len(past)):
        job = online_job(past, number, float(past.submit_s[number] + past.run_s[number]) - latest_s)
        learner.decided(job)
        learner.ended(job)
    cases = [online_job(jobs, number, float(jobs.submit_s[number])) for number in range(len(jobs))]
    return LearnedSizing(jobs, cases, learner, online_grant(config))


def online_job(jobs: Workload, number: int, end_s: float) -> OnlineJob:
    """Return a job as the service's learning sees it, run with its request."""
    asked_cpu, asked_mem, _ = amounts_of(jobs.asked[number])
    used_cpu, used_mem, _ = amounts_of(jobs.used[number])
    request = JobRequest(
        user=f"u{jobs.user[number]}",
        job_name=KINDS[jobs.kind[number]].name,
        cpus_per_task=asked_cpu // MILLI,
        mem_per_node_mib=asked_mem,
        wall_s=NO_LIMIT_S,
    )
    past = PastJob(
        end_s=int(end_s),
        num_tasks=1,
        asked_cpus=asked_cpu // MILLI,
        asked_mem_mib=asked_mem,
        asked_gpus=None,
        complete=True,
        mem_mib=min(used_mem, asked_mem),
        mem_at_least=False,
        cores_per_task=min(used_cpu, asked_cpu) / MILLI,
        wall_s=1,
        gpus=None,
        gpu_source="",
        script="",
        job_id=number + 1,
        given_cpus=asked_cpu // MILLI,
    )
    return OnlineJob(
        job_id=str(number),
        submit_s=float(jobs.submit_s[number]),
        start_s=end_s - 1,
        end_s=end_s,
        request=request,
        past=past,
    )
