"""How long jobs of a simulation are expected to run: by the predictor of production, or by the truth as a bound."""

from __future__ import annotations

import hashlib
import math
from statistics import NormalDist

from accounting.request import JobRequest
from models.demand.chain import Estimate
from models.demand.prediction import ChainSettings, Predictor
from models.evidence import PastJob
from models.families import family_keys
from models.history import History
from models.planning.simulated import Asked
from models.scheduling.room import MILLI, Floats

RECENT_JOBS = 20
SHORTEST_S = 1.0
_NORMAL = NormalDist()
UPPER_Z = _NORMAL.inv_cdf(0.99)
LEAST_SPREAD = 0.05
# Traces name no jobs: who asks alike is one family, whoever else of that user the next.
ANYTHING = "anything"


class Learned:
    """The history and the chain of production, on jobs that have ended in the simulation.

    A job's family is who asks for the same with the same limit; where nothing of it has ended, all jobs of its user.
    """

    def __init__(self) -> None:
        self._history = History(RECENT_JOBS)
        self._predictor = Predictor("simulated", self._history, {}, ChainSettings())
        self._known: dict[JobRequest, tuple[int, Estimate | None]] = {}
        self._requests: dict[int, tuple[JobRequest, JobRequest]] = {}

    def run_s(self, job: Asked) -> tuple[float, float]:
        """Return what jobs like it ran in the middle, and what few exceed; its limit where nothing is known."""
        found = self._estimate(job)
        if found is None:
            return job.limit_s, job.limit_s
        likely_s = min(job.limit_s, max(SHORTEST_S, found.likely))
        return likely_s, min(job.limit_s, max(likely_s, found.upper))

    def left_s(self, job: Asked, ran_s: float) -> float:
        """Return the middle of what those ran on who ran as long, run times taken as lognormal."""
        likely_s, upper_s = self.run_s(job)
        left_s = max(SHORTEST_S, job.limit_s - ran_s)
        if self._estimate(job) is None:
            return left_s
        middle = math.log(likely_s)
        spread = max(LEAST_SPREAD, (math.log(upper_s) - middle) / UPPER_Z)
        as_long = _NORMAL.cdf((middle - math.log(max(ran_s, SHORTEST_S))) / spread)
        if as_long / 2 <= 0:
            return left_s
        return min(left_s, max(SHORTEST_S, math.exp(middle - spread * _NORMAL.inv_cdf(as_long / 2)) - ran_s))

    def ended(self, job: Asked, run_s: float, end_s: float) -> None:
        """Let a job join the history, once for those who ask alike and once for its user."""
        for request in self._requests_of(job):
            self._history.join(request, _past(job, run_s, end_s))

    def _estimate(self, job: Asked) -> Estimate | None:
        for request in self._requests_of(job):
            joined = self._history.joined(family_keys(request))
            known = self._known.get(request)
            if known is None or known[0] != joined:
                known = self._known[request] = joined, self._predictor.wall_time(request)
            if known[1] is not None:
                return known[1]
        return None

    def _requests_of(self, job: Asked) -> tuple[JobRequest, JobRequest]:
        if job.number not in self._requests:
            alike = _letters(f"{job.demand} {job.limit_s}")
            self._requests[job.number] = (_request(job, alike), _request(job, ANYTHING))
        return self._requests[job.number]


class Perfect:
    """What jobs really run: what no advisor knows, and none can do better than."""

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
    """Return a name for a text without a digit: numbers in names do not tell families apart."""
    return "".join(chr(ord("a") + byte % 26) for byte in hashlib.sha256(text.encode()).digest()[:10])


def _request(job: Asked, name: str) -> JobRequest:
    cpu_milli, mem_mib, gpu_milli = job.demand
    return JobRequest(
        user=str(job.user),
        job_name=name,
        # One job of a user tells of another whatever that asks for; of those that ask alike all is the same.
        cpus_per_task=None if name == ANYTHING else max(1, cpu_milli // MILLI),
        mem_per_node_mib=None if name == ANYTHING else mem_mib,
        gpus_per_node=None if name == ANYTHING else gpu_milli // MILLI or None,
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
