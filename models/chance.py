"""How likely so many failures are by chance alone. Pure."""

from __future__ import annotations

import math


def at_least(failed: int, jobs: int, share: float) -> float:
    """Return how likely `failed` or more of `jobs` are, where each fails with a probability of `share` (0..1)."""
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


def _log_ways(jobs: int, count: int) -> float:
    return math.lgamma(jobs + 1) - math.lgamma(count + 1) - math.lgamma(jobs - count + 1)
