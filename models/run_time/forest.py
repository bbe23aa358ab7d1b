"""The peer of the boosted trees: scikit-learn's random forest, which the resource-demand paper compares with.

It is used to judge, never to serve. Its ways to learn are chosen exactly as those of the boosted trees (search.py).
"""

from __future__ import annotations

import numpy
from sklearn.ensemble import RandomForestRegressor

from models.run_time.importance import Fit, Floats, Predict
from models.run_time.laws import FitLaw, affine_law, both_laws, power_law

TREES = 150


def forest_ways(seed: int) -> dict[str, Fit]:
    """Return the forests to choose among, as the paper has them: on the resources alone."""
    return {
        f"{'log' if log else 'raw'} time, leaves of {leaf}, {share:.0%} of the columns": forest(
            seed, log=log, leaf=leaf, share=share
        )
        for log in (False, True)
        for leaf, share in ((1, 1.0), (1, 0.5), (3, 1.0))
    }


def forest_on_law_ways(seed: int) -> dict[str, Fit]:
    """Return forests, also from the same laws as the boosted trees: what still differs is due to the trees."""
    laws = {"power": power_law, "affine": affine_law, "both": both_laws}
    return {
        f"{name} law, leaves of {leaf}": forest(seed, log=True, leaf=leaf, share=1.0, law=law)
        for name, law in laws.items()
        for leaf in (1, 3)
    } | forest_ways(seed)


def forest(seed: int, *, log: bool, leaf: int, share: float, law: FitLaw | None = None) -> Fit:
    """Return a forest as a way to learn run time or its logarithm, or, with a law, what the law leaves of that."""

    def fit(amounts: Floats, run_s: Floats) -> Predict:
        start = law(amounts, run_s) if law else lambda rows: numpy.zeros(len(rows))
        target = numpy.log(run_s) - start(amounts) if log else run_s
        grown = RandomForestRegressor(
            TREES, min_samples_leaf=leaf, max_features=share, random_state=seed, n_jobs=1
        ).fit(amounts, target)

        def predict(rows: Floats) -> Floats:
            answer: Floats = grown.predict(rows)
            return numpy.exp(answer + start(rows)) if log else answer

        return predict

    return fit
