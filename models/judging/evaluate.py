"""What sizing would have saved, and whom it would have failed: past jobs, split by time.

A model is trained on what had ended before the split and sizes what was submitted after it, as it would have in
production; nothing is split at random, since that lets a job learn from its own future. A failed job counts whole,
and is run again with what its user asked for.

A peak of memory may be a bound: the job was killed for memory, or Slurm counted only part of it. What would have got no
more than that would have failed. What would have got more says nothing, and is no job that counts: neither in the share
that failed nor in what was saved. So two methods may count different jobs, each those of which it is known what became
of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from accounting.errors import ModelError
from accounting.frames import Ints
from accounting.request import JobRequest
from models.demand.prediction import ChainSettings, Predictor
from models.past.columns import Flags, PastColumns, one_by_one
from models.past.evidence import PastJob, shows_need
from models.past.families import Family, family_keys
from models.past.history import History
from models.training.training import train_columns

USER_REQUEST, PEER, OURS = "user request", "max of history + 15 %", "rightsizer"
PEER_MARGIN = 1.15
SECONDS_AN_HOUR = 3600.0
DIMENSIONS = {"memory": "GiB·h", "cores": "core·h", "gpus": "GPU·h"}

Sizing = Callable[[JobRequest], JobRequest]
# Learns from the attempts that ran and had ended before the split (unix seconds).
Strategy = Callable[[int], Sizing]


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """One method on one dimension. Amounts are in `unit`; `failed` counts jobs that got less than they needed.

    `saved_share` is of `requested`, the second run of failed jobs included; below 0 it cost more. What is saved and who
    failed is of the same `jobs`, those of which it is known whether the method's grant was enough: by bounds it is for
    more of them under a method that grants less. Of a job that shows a bound, `used` has the bound.
    """

    dimension: str
    method: str
    unit: str
    jobs: int
    resized: int
    requested: float
    granted: float
    used: float
    saved_share: float
    failed: int


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """A time split: how many attempts were learned from and judged, who metered GPUs, and the scores."""

    split_s: int
    learned_from: int
    judged: int
    gpu_sources: tuple[str, ...]
    scores: tuple[Score, ...]


def evaluate(
    past: PastColumns,
    settings: ChainSettings,
    recent_jobs: int,
    sizing: Callable[[Predictor], Sizing] | None,
    train_share: float = 0.7,
    strategies: Mapping[str, Strategy] | None = None,
) -> Evaluation:
    """Train on the first `train_share` of the attempts' time and judge on the rest.

    `sizing` turns a predictor into what production would grant (the site's policy, which lives above this
    package); None leaves it out. `strategies` are further methods, by name. ModelError where either side of the split
    is empty.
    """
    split_s = _split(past.submit_s, train_share)
    before, later = past.started & (past.end_s < split_s), past.submit_s >= split_s
    after = to_judge(past, split_s)
    if not before.any():
        raise ModelError(
            f"{len(past)} attempts are too few to split by time: none ended before the {later.sum()} later ones "
            "came; ingest more accounting"
        )
    if not len(after):
        raise ModelError(
            f"none of the {later.sum()} attempts after the split ran to its end, so that nothing can be judged; "
            "ingest more accounting"
        )
    trained = train_columns(past.part(before), recent_jobs)
    methods: dict[str, Sizing] = {
        USER_REQUEST: lambda request: request,
        PEER: _history_peer(trained.history),
    }
    if sizing is not None:
        growth = trained.growth(settings.most_failures)
        methods[OURS] = sizing(Predictor("evaluated", trained.history, growth, settings))
    methods |= {name: learn(split_s) for name, learn in (strategies or {}).items()}
    scores = _scores(judge(one_by_one(past, after), methods), list(methods))
    return Evaluation(
        split_s=split_s,
        learned_from=int(before.sum()),
        judged=len(after),
        gpu_sources=past.metered_by(after),
        scores=tuple(scores),
    )


def _split(submit_s: Ints, train_share: float) -> int:
    if not len(submit_s):
        raise ModelError("the store holds no attempts; run `rightsizer ingest` first")
    return int(np.sort(submit_s)[min(len(submit_s) - 1, int(len(submit_s) * train_share))])


def _history_peer(history: History) -> Sizing:
    """Return the rule that sites write by hand and KRR applies to pods: the maximum seen, and 15 % on top."""

    def size(request: JobRequest) -> JobRequest:
        evidence = history.evidence(request, enough=1)
        jobs = evidence.jobs if evidence else ()
        memory = max(
            (job.mem_mib for job in jobs if job.mem_mib is not None and not job.mem_short), default=None
        )
        cores = max((job.cores_per_task for job in jobs if job.cores_per_task is not None), default=None)
        gpus = max((job.gpus for job in jobs if job.gpus is not None), default=None)
        return msgspec.structs.replace(
            request,
            mem_per_node_mib=_least(request.mem_per_node_mib, memory),
            cpus_per_task=_least(request.cpus_per_task, cores),
            gpus_per_node=_least(request.gpus_per_node, gpus, 1.0),
        )

    return size


def _least(asked: int | None, seen: float | None, margin: float = PEER_MARGIN) -> int | None:
    return asked if asked is None or seen is None else min(asked, max(1, math.ceil(seen * margin)))


class JudgedJob(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one job in one dimension under one method; amounts are in the unit of DIMENSIONS.

    `family` is the widest that the job belongs to, empty where it has none; `granted` holds the second run of a job
    that failed; `used` may be a bound where it did.
    """

    family: Family
    dimension: str
    method: str
    resized: bool
    requested: float
    granted: float
    used: float
    failed: bool


def to_judge(past: PastColumns, from_s: int) -> Ints:
    """Return the attempts that may tell what a grant would have done: all that ran to their end, and those killed.

    They are rows of the past that were submitted from `from_s` (unix seconds) on. A run that was killed for memory
    tells what its job needed at least. It is left out where a later run of that job tells it, too (who is queued again
    after a kill is one job that failed, not two), and where it had all that its user asked for: such a job fails
    whatever sizes it.
    """
    later = past.submit_s >= from_s
    return np.flatnonzero(later & (past.complete | (lacked_memory(past) & _tells_last(past, later))))


def lacked_memory(past: PastColumns) -> Flags:
    """Return which attempts are known to have needed at least some memory that is less than was asked for."""
    lacked: Flags = past.mem_at_least & (past.mem_mib < past.asked_mem_mib)
    return lacked


def _tells_last(past: PastColumns, among: Flags) -> Flags:
    """Return which of some attempts are the last of their job that tells its memory (`_memory`)."""
    shown = (past.shows_need("memory") | past.mem_at_least) & ~np.isnan(past.mem_mib)
    rows = np.flatnonzero(among & shown)
    rows = rows[np.lexsort((past.start_s[rows], past.job_id[rows], past.cluster.codes[rows]))]
    job = np.stack([past.cluster.codes[rows], past.job_id[rows]])
    last = np.zeros(len(past), np.bool_)
    last[rows[:-1][(job[:, 1:] != job[:, :-1]).any(axis=0)]] = True
    last[rows[-1:]] = True
    return last


def _memory(job: PastJob) -> float | None:
    """Return the peak of a job in MiB, or a bound of its need (`mem_at_least`); None where neither is known."""
    return job.mem_mib if shows_need(job, "memory") or job.mem_at_least else None


def _used(job: PastJob) -> dict[str, float | None]:
    """Return what a job used of each of DIMENSIONS; of one that was cut short nothing but a bound of its memory."""
    return {
        "memory": _memory(job),
        "cores": job.cores_per_task if job.complete else None,
        "gpus": job.gpus if job.complete else None,
    }


def too_little(asked: float, given: float, used: float, *, bounded: bool) -> bool | None:
    """Whether a job would have failed by a grant; None where its use is a bound below that, which tells nothing.

    All amounts are in one unit. The rule is that of `judged_by` in health.py, job by job; but whoever gets all
    that he asked for does not fail by us, and a figure above the request is a measuring error.
    """
    exceeded = used >= given if bounded else used > given
    return None if bounded and not exceeded else exceeded and given < asked


def judge(jobs: Iterable[tuple[JobRequest, PastJob]], methods: Mapping[str, Sizing]) -> Iterator[JudgedJob]:
    """Yield one row for each job, method and dimension that was asked for and of which the outcome is known.

    `jobs` are those of `to_judge`. The outcome is known where the use is, or where a bound of it is not below the
    grant: so a method that grants more than a bound has no row of that job, and neither saves nor fails by it.
    """
    for request, job in jobs:
        used = _used(job)
        for method, size in methods.items():
            sized = size(request)
            for dimension, amount in used.items():
                asked, given = _amount(request, dimension), _amount(sized, dimension)
                if amount is None or asked is None or given is None:
                    continue
                bounded = dimension == "memory" and job.mem_at_least
                failed = too_little(asked, given, amount, bounded=bounded)
                if failed is None:
                    continue
                hours = job.wall_s / SECONDS_AN_HOUR
                scale = hours / 1024 if dimension == "memory" else hours
                scale *= request.num_tasks if dimension == "cores" else 1
                yield JudgedJob(
                    family=(family_keys(request) or ((),))[-1],
                    dimension=dimension,
                    method=method,
                    resized=given < asked,
                    requested=asked * scale,
                    granted=(given + asked if failed else given) * scale,
                    used=amount * scale,
                    failed=failed,
                )


def _amount(request: JobRequest, dimension: str) -> float | None:
    amounts = {"memory": request.mem_mib, "cores": request.cpus_per_task, "gpus": request.gpus_per_node}
    return amounts[dimension]


class _Sums:
    """Adds up the jobs of one method in one dimension: of a large site they are millions of rows."""

    def __init__(self) -> None:
        self._jobs = self._resized = self._failed = 0
        self._requested = self._granted = self._used = 0.0

    def add(self, job: JudgedJob) -> None:
        """Count one job in."""
        self._jobs += 1
        self._resized += job.resized
        self._failed += job.failed
        self._requested += job.requested
        self._granted += job.granted
        self._used += job.used

    def score(self, dimension: str, method: str) -> Score:
        """Return the sums."""
        return Score(
            dimension=dimension,
            method=method,
            unit=DIMENSIONS[dimension],
            jobs=self._jobs,
            resized=self._resized,
            requested=self._requested,
            granted=self._granted,
            used=self._used,
            saved_share=1 - self._granted / self._requested if self._requested else 0.0,
            failed=self._failed,
        )


def _scores(judged: Iterable[JudgedJob], methods: Sequence[str]) -> list[Score]:
    groups: dict[tuple[str, str], _Sums] = {}
    for job in judged:
        groups.setdefault((job.dimension, job.method), _Sums()).add(job)
    if not groups:
        raise ModelError(
            "of none of the judged jobs both request and use are known; `rightsizer report quality` says of the use "
            "why, and what to change"
        )
    wanted = itertools.product(DIMENSIONS, methods)
    return [groups[one].score(*one) for one in wanted if one in groups]
