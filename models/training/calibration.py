"""What to add to a growth model so that few jobs exceed it, learned on later jobs than it was fitted on. Pure."""

from __future__ import annotations

import numpy as np

from accounting.frames import Flags, Floats
from models.versions.artefact import Offset

CALIBRATED = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)
# Sums of weights within this factor are equal: they differ only by rounding.
ROUNDED = 1 + 1e-12


def offsets_of(excess: Floats, bounded: Flags, weights: Floats | None = None) -> tuple[Offset, ...]:
    """Return, for each share of failures, what covers the excess of all but that share of jobs like these.

    Of n jobs, the next one exceeds the k-th highest excess with a probability of k / (n + 1) (Vovk et al. 2005):
    shares for which that is too much even for the highest are left out. Jobs count by their weights, and the next one
    counts as much as the heaviest (Tibshirani et al. 2019). If an excess is a bound, its job exceeds every offset
    that is not above the bound. Against a higher offset it says nothing, and does not count.
    """
    weights = np.ones(len(excess)) if weights is None else weights
    order = np.flatnonzero(~bounded)[np.argsort(-excess[~bounded], kind="stable")]
    falling, spent = excess[order], np.cumsum(weights[order])
    failed = _weight_from(excess[bounded], weights[bounded], falling)
    counted = weights[order].sum() + failed + weights.max(initial=0.0)
    offsets: list[Offset] = []
    for failures in CALIBRATED:
        enough = np.count_nonzero(spent + failed <= failures * counted * ROUNDED)
        if enough:
            offsets.append(Offset(failures=failures, log_growth=float(falling[enough - 1])))
    return tuple(offsets)


def _weight_from(values: Floats, weights: Floats, limits: Floats) -> Floats:
    """Return, for each limit, how much the values that are at least as high weigh together."""
    order = np.argsort(values, kind="stable")
    together: Floats = np.append(np.cumsum(weights[order][::-1])[::-1], 0.0)
    return together[np.searchsorted(values[order], limits, side="left")]
