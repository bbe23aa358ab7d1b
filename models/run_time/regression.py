"""How long a job of a type runs with given resources: a regression for each type, as in the resource-demand paper.

Yang, Hong, Tang: AI computing power cluster scheduling based on task resource demand prediction, §2. It decides which
columns, and how many jobs, are enough to learn from, and says so if they are not. It is for training and judging
only: what answers a submission imports none of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
import numpy

from accounting.errors import ModelError
from models.chance import RARE, as_far
from models.run_time.boosted import boosted_ways
from models.run_time.forest import forest_on_law_ways, forest_ways
from models.run_time.importance import (
    Fit,
    Floats,
    Importance,
    Predict,
    permutation_importances,
    with_significance,
)
from models.run_time.search import averaged, best_ways, mae_s, wmape

SEED = 20260101
# With fewer, the later part is too small to judge on.
MIN_JOBS = 50
LEARNED_SHARE = 0.7
# Of more jobs only the latest are used, to learn from and to weigh resources: more make a model slower, not better.
# Each judged job is shuffled a hundred times, and memory for all of a site's past is in no proportion to what that
# shows.
MOST_LEARNED = 2000
MOST_SHUFFLED = 2000

Method = Literal["XGBoost", "random forest", "forest on the same laws"]
WAYS_OF = {
    "XGBoost": boosted_ways,
    "random forest": forest_ways,
    "forest on the same laws": forest_on_law_ways,
}
XGBOOST: Method = "XGBoost"
FOREST: Method = "random forest"
FOREST_ON_LAWS: Method = "forest on the same laws"


class Jobs(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of one type in the order of time: `amounts` (jobs × resources; NaN: not known) and run times in seconds."""

    resources: tuple[str, ...]
    amounts: Floats
    run_s: Floats

    def part(self, first: int, end: int) -> Jobs:
        """Return the jobs of a span."""
        return msgspec.structs.replace(self, amounts=self.amounts[first:end], run_s=self.run_s[first:end])

    def latest(self, most: int) -> Jobs:
        """Return the last `most` jobs, or all if there are fewer."""
        return self.part(max(0, len(self.run_s) - most), len(self.run_s))


class NotLearned(msgspec.Struct, frozen=True):
    """Why nothing was learned of a type."""

    reason: str


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """What was learned of a type: the `resources` that the model takes, in order, and how to learn it again."""

    resources: tuple[str, ...]
    fit: Fit
    predict: Predict


class Error(msgspec.Struct, frozen=True):
    """How far a method's run times were from the true ones, on later jobs."""

    mae_s: float
    wmape: float


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """How well the run times of a type are predicted: learned from the earlier jobs, judged on the later ones.

    `model` is XGBoost's of the earlier jobs. `predicted_s` is what each method predicts for the later jobs, in their
    order. `median` is the error of predicting the earlier jobs' median run time for every job; `median_by_chance` is
    how likely XGBoost's error would be as far from that if neither were better (0..1).
    """

    learned_from: int
    judged: int
    model: Model
    predicted_s: Mapping[Method, Floats]
    errors: Mapping[Method, Error]
    median: Error
    median_by_chance: float
    importances: tuple[Importance, ...]

    @property
    def tells(self) -> bool:
        """Whether the resources predict better than the median alone, by more than chance."""
        return self.errors[XGBOOST].wmape < self.median.wmape and self.median_by_chance <= RARE


def check(jobs: Jobs) -> None:
    """Raise ModelError if jobs hold what no run time or amount can be."""
    if jobs.amounts.shape != (len(jobs.run_s), len(jobs.resources)):
        raise ModelError(
            f"{jobs.amounts.shape} amounts do not belong to {len(jobs.run_s)} jobs and {len(jobs.resources)} resources"
        )
    wrong = numpy.flatnonzero(~(numpy.isfinite(jobs.run_s) & (jobs.run_s > 0)))
    if wrong.size:
        raise ModelError(f"job {wrong[0]} ran {jobs.run_s[wrong[0]]} s; leave out jobs without a run time")
    amiss = numpy.argwhere(numpy.isinf(jobs.amounts) | (jobs.amounts < 0))
    if amiss.size:
        row, column = amiss[0]
        raise ModelError(
            f"job {row} used {jobs.amounts[row, column]} of {jobs.resources[column]}; give NaN for what is not known"
        )


def varied(jobs: Jobs) -> tuple[int, ...]:
    """Return the columns with at least two different amounts: from the others there is nothing to learn."""
    known = [column[~numpy.isnan(column)] for column in jobs.amounts.T]
    return tuple(index for index, values in enumerate(known) if values.size and values.min() < values.max())


def shortage(jobs: Jobs, least: int) -> NotLearned | None:
    """Return why nothing can be learned from jobs; None if it can."""
    if len(jobs.run_s) < least:
        return NotLearned(f"{len(jobs.run_s)} jobs, {least} are needed")
    if jobs.run_s.min() == jobs.run_s.max():
        return NotLearned(f"all of them ran {jobs.run_s[0]:g} s")
    return None if varied(jobs) else NotLearned("none of their resources varies")


def learn(
    jobs: Jobs, method: Method = XGBOOST, seed: int = SEED, least: int = MIN_JOBS
) -> Model | NotLearned:
    """Learn from these jobs, the latest MOST_LEARNED at most; the ways are chosen on these jobs alone.

    ModelError if they hold impossible values.
    """
    check(jobs)
    jobs = jobs.latest(MOST_LEARNED)
    short = shortage(jobs, least)
    if short:
        return short
    columns = list(varied(jobs))
    amounts = jobs.amounts[:, columns]
    ways = WAYS_OF[method](seed)
    fit = averaged([ways[name] for name in best_ways(ways, amounts, jobs.run_s)])
    return Model(
        resources=tuple(jobs.resources[column] for column in columns),
        fit=fit,
        predict=fit(amounts, jobs.run_s),
    )


def judge(
    jobs: Jobs, methods: tuple[Method, ...] = (XGBOOST, FOREST), *, weigh: bool = True
) -> Judged | NotLearned:
    """Learn from the earlier jobs by each method, XGBoost among them, and judge on the later ones.

    Importances take as long as all else; without `weigh` there are none.
    """
    check(jobs)
    short = shortage(jobs, MIN_JOBS)
    if short:
        return short
    split = int(len(jobs.run_s) * LEARNED_SHARE)
    earlier, later = jobs.part(0, split), jobs.part(split, len(jobs.run_s))
    predicted_s: dict[Method, Floats] = {}
    for method in methods:
        model = learn(earlier, method, least=1)
        if isinstance(model, NotLearned):
            return NotLearned(f"of the earlier jobs, {model.reason}")
        predicted_s[method] = model.predict(asked_columns(later, model))
        if method == XGBOOST:
            boosted = model
    median_s = numpy.full(len(later.run_s), float(numpy.median(earlier.run_s)))
    return Judged(
        learned_from=split,
        judged=len(later.run_s),
        model=boosted,
        predicted_s=predicted_s,
        errors={method: _error(said_s, later.run_s) for method, said_s in predicted_s.items()},
        median=_error(median_s, later.run_s),
        median_by_chance=nearer_by_chance(predicted_s[XGBOOST], median_s, later.run_s),
        importances=importances_of(boosted, earlier, later) if weigh else (),
    )


def nearer_by_chance(said_s: Floats, others_s: Floats, run_s: Floats) -> float:
    """Return how likely two predictors' errors on the same jobs differ so much if neither is better (0..1)."""
    return as_far((numpy.abs(others_s - run_s) - numpy.abs(said_s - run_s)).tolist())


def importances_of(model: Model, earlier: Jobs, later: Jobs) -> tuple[Importance, ...]:
    """Return how much each resource matters to a model of the earlier jobs, on the later ones, with significance."""
    earlier, later = earlier.latest(MOST_LEARNED), later.latest(MOST_SHUFFLED)
    rows = asked_columns(later, model)
    found = permutation_importances(model.predict, model.resources, rows, later.run_s, SEED)
    learned = (asked_columns(earlier, model), earlier.run_s)
    return with_significance(found, model.fit, learned, (rows, later.run_s), SEED)


def asked_columns(jobs: Jobs, model: Model) -> Floats:
    """Return the amounts that a model takes, in its order."""
    amounts: Floats = jobs.amounts[:, [jobs.resources.index(name) for name in model.resources]]
    return amounts


def _error(predicted_s: Floats, run_s: Floats) -> Error:
    return Error(mae_s(predicted_s, run_s), wmape(predicted_s, run_s))
