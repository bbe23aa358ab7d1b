"""Which resources a run time depends on: permutation importance on jobs that the model has not seen. Pure.

A column is shuffled, and what that adds to the error is the column's importance, WITH ITS SIGN: a negative one says
that the model did better without knowing the column, so the column is noise to it, however large the figure. Whether
a positive one is more than chance is tested as by Altmann et al. (PIMP, Bioinformatics 2010): the model is fitted
anew to shuffled run times, which nothing can explain, and the importances seen there are what chance gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy
import numpy.typing as npt

Floats = npt.NDArray[numpy.float64]
# Amounts (jobs × resources) to run times in seconds, one for each job.
Predict = Callable[[Floats], Floats]
# Amounts, and run times (seconds), to a predictor that has learned from them.
Fit = Callable[[Floats, Floats], Predict]
# Predictions (any number × jobs) and the true values to one error for each row of predictions.
Error = Callable[[Floats, Floats], Floats]

REPEATS = 20
# The least p-value that this many shuffles can show is 1 / (1 + NULL_ROUNDS).
NULL_ROUNDS = 39
NULL_REPEATS = 5
SIGNIFICANT = 0.05


class Importance(msgspec.Struct, frozen=True, kw_only=True):
    """What shuffling one resource adds to the error, as a share of all run time (WMAPE); `spread` is over repeats.

    `p_value` is the share of fits to shuffled run times in which the resource seems at least as important; None if
    that was not tested.
    """

    resource: str
    mean: float
    spread: float
    p_value: float | None = None

    @property
    def matters(self) -> bool:
        """Whether run time depends on the resource: above 0, and beyond chance. Untested, it does not count."""
        return self.mean > 0 and self.p_value is not None and self.p_value <= SIGNIFICANT


def important(found: Sequence[Importance]) -> frozenset[str]:
    """Return the resources on Algorithm 1's list: those that the run time depends on."""
    return frozenset(one.resource for one in found if one.matters)


def permutation_importances(
    predict: Predict,
    resources: Sequence[str],
    amounts: Floats,
    run_s: Floats,
    seed: int,
    repeats: int = REPEATS,
    error: Error | None = None,
) -> tuple[Importance, ...]:
    """Shuffle each column of `amounts` (jobs × resources) `repeats` times; `run_s` are the true run times.

    `error` replaces WMAPE if the values are not run times.
    """
    added = _added_errors(predict, amounts, run_s, numpy.random.default_rng(seed), repeats, error or wmapes)
    return tuple(
        Importance(resource=name, mean=float(column.mean()), spread=float(column.std()))
        for name, column in zip(resources, added, strict=True)
    )


def with_significance(
    found: Sequence[Importance],
    fit: Fit,
    learned: tuple[Floats, Floats],
    judged: tuple[Floats, Floats],
    seed: int,
) -> tuple[Importance, ...]:
    """Add p-values: how often models of shuffled run times show importances as large on the same jobs.

    `learned` and `judged` are (amounts, run times) of the jobs that the model was fitted to and judged on.
    """
    draw = numpy.random.default_rng(seed)
    at_least = numpy.zeros(len(found))
    for _ in range(NULL_ROUNDS):
        predict = fit(learned[0], draw.permutation(learned[1]))
        by_chance = _added_errors(predict, judged[0], draw.permutation(judged[1]), draw, NULL_REPEATS).mean(
            axis=1
        )
        at_least += by_chance >= numpy.array([one.mean for one in found])
    return tuple(
        msgspec.structs.replace(one, p_value=float((1 + count) / (1 + NULL_ROUNDS)))
        for one, count in zip(found, at_least, strict=True)
    )


def wmapes(predicted: Floats, run_s: Floats) -> Floats:
    """Return the sum of all errors as a share of all run time, for each row of predictions."""
    errors: Floats = numpy.abs(predicted - run_s).sum(axis=1) / run_s.sum()
    return errors


def _added_errors(
    predict: Predict,
    amounts: Floats,
    run_s: Floats,
    draw: numpy.random.Generator,
    repeats: int,
    error: Error = wmapes,
) -> Floats:
    """Return what each shuffle adds to the error (resources × repeats); all shuffles are predicted in one call."""
    jobs, resources = amounts.shape
    shuffled = numpy.tile(amounts, (resources, repeats, 1, 1))
    for column in range(resources):
        for repeat in range(repeats):
            shuffled[column, repeat, :, column] = draw.permutation(amounts[:, column])
    predicted = predict(numpy.vstack([amounts, shuffled.reshape(-1, resources)]))
    errors = error(predicted.reshape(-1, jobs), run_s)
    added: Floats = errors[1:].reshape(resources, repeats) - errors[0]
    return added
