"""This project's own predictor and policy as what decides a simulation's grants, learning from every job that ends.

GPU shares stay as asked: no request of Slurm's that the service knows names a part of a GPU.
"""

from __future__ import annotations

from accounting.request import JobRequest
from bench.paper_load import KINDS
from models.demand.prediction import ChainSettings
from models.evidence import PastJob
from models.online import Learner, OnlineJob
from models.scheduling.room import MILLI, Amounts, amounts_of
from models.simulation.workload import Workload
from slurm_plugin.cli.sizing import online_grant
from slurm_plugin.config import Config

# The paper knows no time limits.
NO_LIMIT_S = 365 * 86400


class OwnSizing:
    """What the service would grant by its defaults, on what had ended before; `past` are jobs of before."""

    def __init__(self, jobs: Workload, past: Workload, most_slowdown: float = 0.0) -> None:
        config = Config()
        self._jobs = jobs
        self._learner = Learner(ChainSettings(most_slowdown=most_slowdown), config.models.recent_jobs)
        self._grant = online_grant(config)
        self._decided: dict[int, OnlineJob] = {}
        latest_s = float((past.submit_s + past.run_s).max())
        for number in range(len(past)):
            asked = amounts_of(past.asked[number])
            end_s = float(past.submit_s[number] + past.run_s[number]) - latest_s
            job = online_job(past, number, end_s, asked, enough=True)
            self._learner.decided(job)
            self._learner.ended(job)
        self._learner.refit()

    def grant(self, number: int, now_s: float) -> Amounts:
        """Return what the service would grant; it is the whole request where too little is known."""
        asked = amounts_of(self._jobs.asked[number])
        job = online_job(self._jobs, number, now_s, asked, enough=True)
        self._learner.decided(job)
        granted, _ = self._grant(self._learner.predictor, job.request)
        return granted.cpus * MILLI, granted.mem_mib or asked[1], asked[2]

    def ended(self, number: int, now_s: float, start_s: float, granted: Amounts, *, enough: bool) -> None:
        """Learn from what was measured: never more than was granted, and only a bound where it was killed."""
        job = online_job(self._jobs, number, now_s, granted, enough=enough, wall_s=now_s - start_s)
        self._learner.ended(job)
        self._learner.refit()


def online_job(
    jobs: Workload, number: int, end_s: float, granted: Amounts, *, enough: bool, wall_s: float = 1.0
) -> OnlineJob:
    """Return a job as the service's learning sees it, as it ran with what it was granted."""
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
        complete=enough,
        mem_mib=min(used_mem, granted[1]),
        mem_at_least=not enough,
        cores_per_task=min(used_cpu, granted[0]) / MILLI,
        wall_s=max(1, int(wall_s)),
        gpus=None,
        gpu_source="",
        script="",
        job_id=number + 1,
        given_cpus=granted[0] // MILLI,
    )
    return OnlineJob(
        job_id=str(number),
        submit_s=float(jobs.submit_s[number]),
        start_s=end_s - wall_s,
        end_s=end_s,
        request=request,
        past=past,
    )
