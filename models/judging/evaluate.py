"""What sizing would have saved, and which jobs it would have failed: past jobs, split by time.

A model is trained on what had ended before the split and sizes what was submitted after it, as in production: it
learns of each job that ends. Nothing is split at random, since a job could then learn from its own future.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import msgspec
import numpy as np

from accounting.errors import ModelError
from accounting.frames import Ints
from accounting.request import JobRequest
from models.demand.prediction import ChainSettings, Predictor
from models.judging.outcomes import DIMENSIONS, Follow, Outcome, Sizing, judge, to_judge, whole
from models.past.columns import PastColumns
from models.past.history import History
from models.past.loading import history_of
from models.training.training import train_columns

USER_REQUEST, PEER, OURS = "user request", "max of history + 15 %", "rightsizer"
PEER_MARGIN = 1.15

# Makes a sizing from the attempts that ran and had ended before the split (unix seconds).
Strategy = Callable[[int], Sizing]


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """One method on one dimension. Amounts are in `unit`; `failed` counts jobs that got less than they needed.

    `saved_share` is of `requested`, with the second run of failed jobs included; below 0 it cost more. What is saved
    and what failed is of the same `jobs`: those of which it is known whether the method's grant was enough. If jobs
    show bounds, that is known of more jobs under a method that grants less. For a job that shows a bound, `used` has
    the bound.
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
    """A time split: how many attempts were learned from and judged, which meters measured GPUs, and the scores."""

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
    told: Callable[[float], None] = lambda _: None,
) -> Evaluation:
    """Train on the first `train_share` of the attempts, by submission, and judge on the rest.

    `sizing` turns a predictor into what production would grant (the site's policy, which belongs to a higher
    package); None leaves it out. `strategies` are further methods, by name. `told` is called with the share of judging
    that is done. ModelError if either side of the split is empty.
    """
    split_s = _split(past.submit_s, train_share)
    before, later = past.started & (past.end_s < split_s), past.submit_s >= split_s
    after = to_judge(past, split_s)
    if not before.any():
        raise ModelError(
            f"{len(past)} attempts are too few to split by time: none of them had run and ended before "
            f"the {later.sum()} later ones were submitted; ingest more accounting"
        )
    if not len(after):
        raise ModelError(
            f"none of the {later.sum()} attempts after the split ran to its end, so nothing can be "
            "judged; ingest more accounting"
        )
    known = past.part(before)
    trained = train_columns(known, recent_jobs)
    unknown = np.flatnonzero(past.started & (past.end_s >= split_s))
    peers = history_of(known, recent_jobs)
    methods: dict[str, Sizing] = {
        USER_REQUEST: lambda request: request,
        PEER: _history_peer(peers),
    }
    follow = {PEER: Follow(unknown, peers.join)}
    if sizing is not None:
        growth = trained.growth(settings.most_failures)
        predictor = Predictor("evaluated", trained.history, growth, settings)
        methods[OURS], follow[OURS] = sizing(predictor), Follow(unknown, predictor.join)
    methods |= {name: learn(split_s) for name, learn in (strategies or {}).items()}
    scores = _scores(judge(past, after, methods, follow, told))
    return Evaluation(
        split_s=split_s,
        learned_from=int(before.sum()),
        judged=len(after),
        gpu_sources=past.metered_by(after),
        scores=scores,
    )


def _split(submit_s: Ints, train_share: float) -> int:
    if not len(submit_s):
        raise ModelError("the store has no attempts; run `rightsizer ingest` first")
    return int(np.sort(submit_s)[min(len(submit_s) - 1, int(len(submit_s) * train_share))])


def _history_peer(history: History) -> Sizing:
    """Return the rule that sites write by hand and that KRR applies to pods: the maximum seen, plus 15 %."""

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


def _scores(outcomes: Iterable[Outcome]) -> tuple[Score, ...]:
    scores = tuple(_score(outcome) for outcome in outcomes if len(outcome.places))
    if not scores:
        raise ModelError(
            "for none of the judged jobs both request and use are known; `rightsizer report quality` "
            "says why, and what to change"
        )
    return scores


def _score(outcome: Outcome) -> Score:
    tally = whole(outcome)
    return Score(
        dimension=outcome.dimension,
        method=outcome.method,
        unit=DIMENSIONS[outcome.dimension],
        jobs=tally.jobs,
        resized=tally.resized,
        requested=tally.requested,
        granted=tally.granted,
        used=float(outcome.used.sum()),
        saved_share=tally.saved_share,
        failed=tally.failed,
    )
