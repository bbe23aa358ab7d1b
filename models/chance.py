"""How likely it is by chance alone that so many jobs fail, or that two predictors' errors differ so much. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

# What chance causes less often than this is taken for more than chance.
RARE = 0.05


def at_least(failed: int, jobs: int, share: float) -> float:
    """Return how likely `failed` or more of `jobs` are, if each fails with a probability of `share` (0..1)."""
    if failed <= 0:
        return 1.0
    if share <= 0 or failed > jobs:
        return 0.0
    if share >= 1:
        return 1.0
    log_share, log_rest = math.log(share), math.log1p(-share)
    fewer = math.fsum(
        math.exp(_log_ways(jobs, count) + count * log_share + (jobs - count) * log_rest)
        for count in range(failed)
    )
    return min(1.0, max(0.0, 1.0 - fewer))


def at_least_above(exceeded: int, jobs: int, share: float, made_from: float) -> float:
    """Return how likely `exceeded` or more of `jobs` lie above an offset that was made for `share`, if nothing changed.

    The share that truly lies above an offset from so few jobs (`made_from`) is not `share`: it has a beta
    distribution around that, so the count of later jobs has a beta-binomial one (Vovk 2012, of conditional validity).
    A binomial test calls the offset's own luck a change, ten times as often as it says. With many jobs, both tests
    are the same.
    """
    if exceeded <= 0:
        return 1.0
    above, below = share * (made_from + 1), (1 - share) * (made_from + 1)
    fewer = math.fsum(
        math.exp(
            _log_ways(jobs, count) + _log_beta(count + above, jobs - count + below) - _log_beta(above, below)
        )
        for count in range(exceeded)
    )
    return min(1.0, max(0.0, 1.0 - fewer))


def as_far(differences: Sequence[float]) -> float:
    """Return how likely the sum of paired differences is as far from 0 as it is, if either sign were equally likely.

    This is Fisher's randomisation test of pairs: with random signs, the sum has mean 0, and the sum of squares is its
    variance. Its distribution is taken for normal, which it nearly is from some ten pairs on. If a few of them are
    far larger than the rest, that makes chance look likelier than it is.
    """
    spread = math.sqrt(math.fsum(difference * difference for difference in differences))
    return math.erfc(abs(math.fsum(differences)) / spread / math.sqrt(2)) if spread > 0 else 1.0


def _log_beta(first: float, second: float) -> float:
    return math.lgamma(first) + math.lgamma(second) - math.lgamma(first + second)


def _log_ways(jobs: int, count: int) -> float:
    return math.lgamma(jobs + 1) - math.lgamma(count + 1) - math.lgamma(jobs - count + 1)
