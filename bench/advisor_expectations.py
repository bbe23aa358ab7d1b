"""Expected run times of jobs in a simulation: by production's predictor, or the true ones as a bound."""

from __future__ import annotations

import hashlib
import math
from typing import NamedTuple

from accounting.request import JobRequest
from models.demand.chain import Estimate
from models.demand.prediction import ChainSettings, Predictor
from models.past.families import Family, family_keys, wide_keys
from models.past.history import History
from models.past.jobs import PastJob
from models.planning.simulated import Asked
from models.scheduling.room import MILLI, Floats
from slurm_plugin.advisor.run_time import SHORTEST_S, RunTime, likely_left_s

RECENT_JOBS = 20


class _Known(NamedTuple):
    """What is expected of jobs with the same request, the evidence for it, and how many jobs had joined it then."""

    families: tuple[Family, ...]
    joined: int
    estimate: Estimate | None


class Learned:
    """Production's history and chain, on jobs that have ended in the simulation.

    Traces name no jobs: a job's family is everything of the same user with the same request and limit. If none of
    it has ended, the user's last jobs count, else those of anybody with the same limit.
    """

    def __init__(self) -> None:
        self._history = History(RECENT_JOBS)
        self._predictor = Predictor("simulated", self._history, {}, ChainSettings())
        self._known: dict[JobRequest, _Known] = {}
        self._requests: dict[int, JobRequest] = {}

    def run_s(self, job: Asked) -> tuple[float, float]:
        """Return the median run time of similar jobs, and one that few exceed; the job's limit if nothing is known."""
        found = self._estimate(job)
        if found is None:
            return job.limit_s, job.limit_s
        likely_s = min(job.limit_s, max(SHORTEST_S, found.likely))
        return likely_s, min(job.limit_s, max(likely_s, found.upper))

    def left_s(self, job: Asked, ran_s: float) -> float:
        """Return the median remaining time of similar jobs that ran this long, assuming lognormal run times."""
        likely_s, upper_s = self.run_s(job)
        found = self._estimate(job)
        run_time = RunTime(
            likely_s=likely_s, upper_s=upper_s, basis="", jobs=0 if found is None else found.jobs
        )
        return max(SHORTEST_S, likely_left_s(run_time, ran_s, max(SHORTEST_S, job.limit_s - ran_s)))

    def ended(self, job: Asked, run_s: float, end_s: float) -> None:
        """Add an ended job to the history."""
        self._history.join(self._request_of(job), _past(job, run_s, end_s))

    def _estimate(self, job: Asked) -> Estimate | None:
        request = self._request_of(job)
        known = self._known.get(request)
        if known is None or known.joined != self._history.joined(known.families):
            known = self._known[request] = self._asked(request)
        return known.estimate

    def _asked(self, request: JobRequest) -> _Known:
        families = family_keys(request)
        found = self._predictor.wall_time(request)
        if found is None:
            families = (*families, *wide_keys(request))
            wide = self._predictor.wide_wall_time(request)
            found = None if wide is None else wide[0]
        return _Known(families, self._history.joined(families), found)

    def _request_of(self, job: Asked) -> JobRequest:
        if job.number not in self._requests:
            self._requests[job.number] = _request(job, _letters(f"{job.demand} {job.limit_s}"))
        return self._requests[job.number]


class Perfect:
    """Jobs' true run times: no advisor knows them, and none can do better than with them."""

    def __init__(self, run_s: Floats) -> None:
        self._run_s: list[float] = run_s.tolist()

    def run_s(self, job: Asked) -> tuple[float, float]:
        """Return the truth."""
        run_s = min(job.limit_s, self._run_s[job.number])
        return run_s, run_s

    def left_s(self, job: Asked, ran_s: float) -> float:
        """Return the truth."""
        return max(SHORTEST_S, self._run_s[job.number] - ran_s)

    def ended(self, job: Asked, run_s: float, end_s: float) -> None:
        """Learn nothing."""


def _letters(text: str) -> str:
    """Return a name for a text without digits: numbers in names do not distinguish families."""
    return "".join(chr(ord("a") + byte % 26) for byte in hashlib.sha256(text.encode()).digest()[:10])


def _request(job: Asked, name: str) -> JobRequest:
    cpu_milli, mem_mib, gpu_milli = job.demand
    return JobRequest(
        user=str(job.user),
        job_name=name,
        cpus_per_task=max(1, cpu_milli // MILLI),
        mem_per_node_mib=mem_mib,
        gpus_per_node=gpu_milli // MILLI or None,
        wall_s=math.ceil(job.limit_s),
    )


def _past(job: Asked, run_s: float, end_s: float) -> PastJob:
    cpu_milli, mem_mib, gpu_milli = job.demand
    return PastJob(
        end_s=round(end_s),
        num_tasks=1,
        asked_cpus=max(1, cpu_milli // MILLI),
        asked_mem_mib=mem_mib,
        asked_gpus=gpu_milli // MILLI or None,
        complete=run_s < job.limit_s,
        mem_mib=None,
        mem_at_least=False,
        cores_per_task=None,
        wall_s=round(run_s),
        wall_at_least=run_s >= job.limit_s,
        gpus=None,
        gpu_source="",
        script="",
        job_id=job.number + 1,
    )
