"""Past jobs sized one by one as they came, each only by what had ended before it was decided. Pure.

What is learned on the way is what production learns: every job that ends joins the history at once, and the growth
models are refitted from time to time, on jobs that had ended by then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Literal

import msgspec

from accounting.request import JobRequest
from models.demand.chain import SIZED, Growth, is_settled
from models.demand.features import features
from models.demand.prediction import ChainSettings, Predictor
from models.past.history import History
from models.past.jobs import Learned, PastJob
from models.training.matrix import Row, matrix_of, need_of
from models.training.served import as_served
from models.training.training import MIN_ROWS, fit_growth

DecideAt = Literal["submit", "start"]

# The models are refitted when there are this many times as many rows as last time.
REFIT_GROWTH = 1.3


class OnlineJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of a replay: when it was submitted, started and ended (unix seconds), its request, and its outcome."""

    job_id: str
    submit_s: float
    start_s: float
    end_s: float
    request: JobRequest
    past: PastJob


class Lesson(msgspec.Struct, frozen=True):
    """What was known of a dimension when a job was decided: features, the family's highest so far, settled or not."""

    inputs: list[float]
    highest_log: float
    settled: bool


class Learner:
    """A history that jobs join as they end, and growth models that follow it."""

    def __init__(self, settings: ChainSettings, recent_jobs: int) -> None:
        self._settings = settings
        self._history = History(recent_jobs)
        self._rows: dict[Learned, list[Row]] = {dimension: [] for dimension in SIZED}
        self._growth: dict[Learned, Growth] = {}
        self._next_fit = dict.fromkeys(SIZED, MIN_ROWS)
        self._lessons: dict[str, dict[Learned, Lesson]] = {}
        self.predictor = self._build()

    def _build(self) -> Predictor:
        return Predictor("online", self._history, self._growth, self._settings)

    def decided(self, job: OnlineJob) -> None:
        """Note what is known of a job at the moment of its decision."""
        evidence = self._history.evidence(job.request, self._settings.min_evidence)
        if evidence is None:
            return
        habit = self._history.user_habit(job.request)
        known = ((dimension, evidence.use(dimension)) for dimension in SIZED)
        self._lessons[job.job_id] = {
            dimension: Lesson(
                features(job.request, evidence, habit, dimension), past.highest_log, is_settled(past)
            )
            for dimension, past in known
            if past is not None
        }

    def ended(self, job: OnlineJob) -> None:
        """Learn from a job that has ended."""
        for dimension, lesson in self._lessons.pop(job.job_id, {}).items():
            need = need_of(job.past, dimension)
            if need is not None:
                growth = need.log - lesson.highest_log
                user = job.request.user
                self._rows[dimension].append(Row(lesson.inputs, growth, lesson.settled, need.bounded, user))
        self._history.add(job.request, job.past)

    def refit(self) -> None:
        """Refit the growth models for which there are many more rows than last time."""
        due = [name for name, rows in self._rows.items() if len(rows) >= self._next_fit[name]]
        for dimension in due:
            rows = self._rows[dimension]
            fitted = fit_growth(matrix_of(rows))
            growth = fitted.known.calibrated(as_served(fitted.booster), self._settings.most_failures)
            self._growth[dimension] = growth
            self._next_fit[dimension] = math.ceil(len(rows) * REFIT_GROWTH)
        if due:
            self.predictor = self._build()


Granted = Callable[[Predictor, JobRequest], tuple[JobRequest, str]]


def size_online(
    jobs: Sequence[OnlineJob],
    learner: Learner,
    grant: Granted,
    decide_at: DecideAt = "submit",
    warm: Collection[str] = (),
) -> Iterator[tuple[OnlineJob, JobRequest, str]]:
    """Yield each job with what it would have been granted and why, in the order of decisions.

    A decision knows the jobs that ended before that moment, not those that ended at it. Jobs in `warm` count as ended
    before all others, one after the other in the order of their ends, and are not yielded. The order of `jobs` does
    not matter.
    """
    others = [job for job in jobs if job.job_id not in warm]
    for job in _before(
        [job for job in jobs if job.job_id in warm],
        min((_moment(job, decide_at) for job in others), default=math.inf),
    ):
        learner.decided(job)
        learner.ended(job)
    by_end = iter(sorted(others, key=_by_end))
    next_end = next(by_end, None)
    learner.refit()
    for job in sorted(others, key=lambda job: (_moment(job, decide_at), *_by_submission(job))):
        while next_end is not None and next_end.end_s < _moment(job, decide_at):
            learner.ended(next_end)
            next_end = next(by_end, None)
        learner.refit()
        learner.decided(job)
        granted, reason = grant(learner.predictor, job.request)
        yield job, granted, reason


def follow(
    jobs: Sequence[OnlineJob],
    learner: Learner,
    until_s: float,
    told: Callable[[float], None] = lambda _: None,
) -> None:
    """Let a learner follow jobs as they came and ended, up to a moment; size none of them.

    As in `size_online`, a job that ends in the very second of another's submission is not known to that one. `told`
    is called with the share that is done.
    """
    submits = [(job.submit_s, 0, index) for index, job in enumerate(jobs)]
    ends = [(job.end_s, 1, index) for index, job in enumerate(jobs)]
    for number, (moment_s, is_end, index) in enumerate(sorted(submits + ends)):
        told(number / (2 * len(jobs)))
        if moment_s >= until_s:
            break
        if is_end:
            learner.ended(jobs[index])
        else:
            learner.decided(jobs[index])
    # One fit at the end is enough: what is noted of a job when it is decided rests on no model.
    learner.refit()


def _before(jobs: Sequence[OnlineJob], moment_s: float) -> list[OnlineJob]:
    """Return jobs in the order of their ends, all moved back so far that the last ends before a moment."""
    ordered = sorted(jobs, key=_by_end)
    if not ordered or ordered[-1].end_s < moment_s:
        return ordered
    earlier_s = math.ceil(ordered[-1].end_s - moment_s) + 1
    return [
        msgspec.structs.replace(job, past=msgspec.structs.replace(job.past, end_s=job.past.end_s - earlier_s))
        for job in ordered
    ]


def _by_end(job: OnlineJob) -> tuple[float, float, str]:
    """Return a key that orders jobs by their ends; jobs that end together by submission, as training orders them."""
    return job.end_s, *_by_submission(job)


def _by_submission(job: OnlineJob) -> tuple[float, str]:
    return job.submit_s, job.job_id


def _moment(job: OnlineJob, decide_at: DecideAt) -> float:
    return job.submit_s if decide_at == "submit" else job.start_s
