"""The recent past of every family: what a predictor may look back on at a moment. No clock, no database."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from accounting.records import Attempt
from accounting.request import JobRequest
from models.families import Family, cohort_keys, family_keys

# A past job tells about one that asks for up to this many times as much: who suddenly asks for ten times the
# memory knows something about the input that no history does.
COMPARABLE_REQUEST = 2.0
# Below these amounts a logarithm says nothing.
LEAST_MIB, LEAST_CORES, LEAST_WALL_S = 1.0, 0.01, 1.0
# A name stands for a new script too once this many different ones ran under it. Below, a changed script is new work.
VARIED_SCRIPTS = 3


class PastJob(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One finished attempt. Memory is MiB of the whole job, cores are means over its run; None = not known.

    `complete` says that it ran to an end that shows its whole need; `mem_at_least` that it was killed for memory
    and needed more than it shows.
    """

    end_s: int
    num_tasks: int
    asked_cpus: int | None
    asked_mem_mib: int | None
    asked_gpus: int | None
    complete: bool
    mem_mib: float | None
    mem_at_least: bool
    cores_per_task: float | None
    wall_s: int
    gpus: int | None
    gpu_source: str
    script: str


class Habit(msgspec.Struct, frozen=True):
    """The mean logarithm of used over asked in a cohort, of memory and of cores; NaN where it is not known."""

    memory: float
    cores: float


class Evidence(msgspec.Struct, frozen=True):
    """The comparable past jobs of the family that was found for a request, the oldest first."""

    family: Family
    jobs: tuple[PastJob, ...]


class History:
    """The last `recent_jobs` attempts of each family and cohort."""

    def __init__(self, recent_jobs: int) -> None:
        self.recent_jobs = recent_jobs
        self._jobs: dict[Family, deque[PastJob]] = {}
        self._habits: dict[Family, Habit] = {}

    def add(self, request: JobRequest, job: PastJob) -> None:
        """Count a finished job under every family and cohort of its request."""
        for key in (*family_keys(request), *cohort_keys(request)):
            self.load(key, (job,))

    def load(self, family: Family, jobs: Iterable[PastJob]) -> None:
        """Append jobs, oldest first, to one family."""
        self._jobs.setdefault(family, deque(maxlen=self.recent_jobs)).extend(jobs)
        self._habits.pop(family, None)

    def items(self) -> Iterator[tuple[Family, Sequence[PastJob]]]:
        """Yield every family with its jobs, in the order of its first one."""
        for family, jobs in self._jobs.items():
            yield family, tuple(jobs)

    def evidence(self, request: JobRequest, enough: int) -> Evidence | None:
        """Return the narrowest family with `enough` comparable jobs, else the fullest; None if none has any."""
        found: list[Evidence] = []
        for key in family_keys(request):
            evidence = Evidence(key, self._comparable(key, request))
            if not stands_for(evidence, request):
                continue
            if sum(job.complete for job in evidence.jobs) >= enough:
                return evidence
            found.append(evidence)
        fullest = max(found, key=lambda evidence: len(evidence.jobs), default=None)
        return fullest if fullest and fullest.jobs else None

    def _comparable(self, family: Family, request: JobRequest) -> tuple[PastJob, ...]:
        return comparable(self._jobs.get(family, ()), request)

    def habits(self, request: JobRequest) -> tuple[Habit, ...]:
        """Return how much of what they ask the request's user, account and partition use, in this order."""
        return tuple(self._habit(key) for key in cohort_keys(request))

    def _habit(self, cohort: Family) -> Habit:
        # Worked out once and kept until the cohort's next job: a history that serves has none any more.
        known = self._habits.get(cohort)
        if known is None:
            known = self._habits[cohort] = habit_of(self._jobs.get(cohort, ()))
        return known


def habit_of(jobs: Iterable[PastJob]) -> Habit:
    """Return the mean logarithm of used over asked; NaN where nobody asked or nothing is known."""
    memory, cores = [], []
    for job in jobs:
        if job.asked_mem_mib and job.mem_mib is not None:
            memory.append(math.log(max(job.mem_mib, LEAST_MIB) / job.asked_mem_mib))
        if job.asked_cpus and job.cores_per_task is not None:
            cores.append(math.log(max(job.cores_per_task, LEAST_CORES) * job.num_tasks / job.asked_cpus))
    return Habit(_mean(memory), _mean(cores))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def stands_for(evidence: Evidence, request: JobRequest) -> bool:
    """Whether a family's past tells about the request's script: the same, one of many, or none was ever known."""
    scripts = {job.script for job in evidence.jobs if job.script}
    same = not request.script_signature or not scripts or scripts == {request.script_signature}
    return same or len(scripts) >= VARIED_SCRIPTS


def comparable(jobs: Iterable[PastJob], request: JobRequest) -> tuple[PastJob, ...]:
    """Return the past jobs that tell about this request: as many tasks, and not asking for far less."""
    tasks = request.num_tasks
    mem_mib, cpus, gpus = (
        0.0 if asked is None else asked / COMPARABLE_REQUEST
        for asked in (request.mem_mib, request.cpus, request.gpus)
    )
    # One pass over plain attributes: every new submission waits for it.
    return tuple(
        job
        for job in jobs
        if job.num_tasks == tasks
        and (job.asked_mem_mib is None or job.asked_mem_mib >= mem_mib)
        and (job.asked_cpus is None or job.asked_cpus >= cpus)
        and (job.asked_gpus is None or job.asked_gpus >= gpus)
    )


def request_of(attempt: Attempt) -> JobRequest:
    """Return what the user of a past attempt asked for, memory per node."""
    row = attempt.row
    return JobRequest(
        user=row.user,
        account=row.account,
        partition=row.partition,
        qos=row.qos,
        job_name=row.job_name,
        script_signature=attempt.script_signature,
        num_tasks=attempt.num_tasks,
        cpus_per_task=None if attempt.asked_cpus is None else max(1, attempt.asked_cpus // attempt.num_tasks),
        mem_per_node_mib=attempt.asked_mem_mib,
        gpus_per_node=attempt.asked_gpus,
        wall_s=row.limit_s,
    )


def past_job(attempt: Attempt) -> PastJob:
    """Return an attempt as a past job. One that was cut short shows a lower bound, not its need."""
    use = attempt.use
    return PastJob(
        end_s=attempt.row.end_s,
        num_tasks=attempt.num_tasks,
        asked_cpus=attempt.asked_cpus,
        asked_mem_mib=attempt.asked_mem_mib,
        asked_gpus=attempt.asked_gpus,
        complete=use.outcome in ("completed", "timeout"),
        mem_mib=use.peak_mem_mib,
        mem_at_least=use.memory_quality == "censored",
        cores_per_task=use.cores_per_task,
        wall_s=use.wall_s,
        gpus=use.gpus,
        gpu_source=use.gpu_source,
        script=attempt.script_signature,
    )


def replay(attempts: Sequence[Attempt], history: History) -> Iterator[tuple[Attempt, JobRequest]]:
    """Yield each attempt as it is submitted, `history` then holding just the attempts that had ended before.

    A job that ends in the very second of a submission is not known to it.
    """
    submits = [(attempt.row.submit_s, 0, index) for index, attempt in enumerate(attempts)]
    ends = [(attempt.row.end_s, 1, index) for index, attempt in enumerate(attempts) if attempt.row.start_s]
    for _, is_end, index in sorted(submits + ends):
        attempt = attempts[index]
        if is_end:
            history.add(request_of(attempt), past_job(attempt))
        else:
            yield attempt, request_of(attempt)
