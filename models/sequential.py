"""Whether one kind of jobs fails more often than another by more than a bound, looked at after every job. Pure.

Evidence is the wealth of somebody who bets at fair odds against the claim that it does not. If the claim is true, no
strategy makes money on average, at whatever moment it is looked at (Ramdas, Grünwald, Vovk and Shafer,
"Game-theoretic statistics and safe anytime-valid inference", Statistical Science 2023). An outcome is a share in 0..1
(a job: 0 or 1), so the bets are those on means of bounded variables (Waudby-Smith and Ramdas, JRSS B 2024); wealth is
the mean of a few of them.

- A long good past must not hide that a kind is good no more: a bet that has lost begins anew with 1, as in Page's
  CUSUM (an e-CUSUM: Shin, Ramdas and Rinaldo, "E-detectors", NEJSDS 2024). Among n jobs that fail within the bound,
  wealth ever reaches W with a probability of n / W at most.
- If the decision must not rest on a few parties, those that bring a bet the most are left out, from whatever moment
  its wealth is counted. The result is never more than the bet's wealth without any other parties, as many as these;
  or than 1.
- How often the others fail is not known. For each range that this rate may lie in, there are bets on the one kind
  against the range's upper end plus the bound, and bets on the other kind against the range's lower end; the range
  with the least product counts. Without others to compare with, nothing is ever concluded.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable, Sequence

import msgspec

# Each bet expects the rate of failures to be this far on the way from what is allowed to everything …
BOLD = (0.1, 0.4, 0.8)
# … and the others to fail this much less often than the lower end.
MODEST = (0.5, 0.9)

Range = tuple[float, float]
# Nothing is compared: only the bound is allowed.
ALONE: tuple[Range, ...] = ((0.0, 0.0),)
_ENDS = (0.0, 0.02, 0.04, 0.07, 0.12, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0)
COMPARED: tuple[Range, ...] = tuple(itertools.pairwise(_ENDS))

Logs = tuple[tuple[float, ...], ...]


# What is judged, oldest first: the party it belongs to, and the share of it that failed.
Outcomes = Sequence[tuple[str, float]]
# The others: for each party, the number of outcomes, and the sum of the shares of them that failed.
Others = Sequence[tuple[int, float]]


class Wealth(msgspec.Struct, frozen=True, array_like=True):
    """The logarithms of each bet's wealth, by range: on the jobs that are judged, and on the others."""

    judged: Logs
    others: Logs


def beginning(ranges: Sequence[Range]) -> Wealth:
    """Return the wealth before the first job."""
    return Wealth(((0.0,) * len(BOLD),) * len(ranges), ((0.0,) * len(MODEST),) * len(ranges))


def judged(wealth: Wealth, ranges: Sequence[Range], failed: float, bound: float) -> Wealth:
    """Return the wealth after one more judged outcome; `failed` is the share of it that failed, 0..1."""
    logs = tuple(
        tuple(max(0.0, log) + _gain(failed, high + bound, way) for log, way in zip(bets, BOLD, strict=True))
        for bets, (_, high) in zip(wealth.judged, ranges, strict=True)
    )
    return Wealth(logs, wealth.others)


def other(wealth: Wealth, ranges: Sequence[Range], failed: float) -> Wealth:
    """Return the wealth after one more outcome of the others."""
    logs = tuple(
        tuple(log + _other_gain(failed, low, way) for log, way in zip(bets, MODEST, strict=True))
        for bets, (low, _) in zip(wealth.others, ranges, strict=True)
    )
    return Wealth(wealth.judged, logs)


def anew(wealth: Wealth) -> Wealth:
    """Return the wealth with the judged outcomes forgotten; what is known of the others stays."""
    return Wealth(tuple((0.0,) * len(bets) for bets in wealth.judged), wealth.others)


def without_most(
    outcomes: Outcomes, others: Others, ranges: Sequence[Range], bound: float, left_out: int
) -> Wealth:
    """Return the wealth without some parties: for each bet, the `left_out` parties that bring it the most.

    Among the others, an outcome that failed in part counts as that part of a failure and the rest of a success, which
    is never more.
    """
    judged_logs = tuple(
        tuple(
            _highest_without([(who, _gain(failed, high + bound, way)) for who, failed in outcomes], left_out)
            for way in BOLD
        )
        for _, high in ranges
    )
    others_logs = tuple(
        tuple(
            _sum_without(
                [
                    (number - failed) * _other_gain(0.0, low, way) + failed * _other_gain(1.0, low, way)
                    for number, failed in others
                ],
                left_out,
            )
            for way in MODEST
        )
        for low, _ in ranges
    )
    return Wealth(judged_logs, others_logs)


def is_enough_without_most(
    outcomes: Outcomes,
    others: Others,
    ranges: Sequence[Range],
    bound: float,
    left_out: int,
    enough_log: float,
) -> bool:
    """Return whether the wealth without those parties is enough; stop at the first range in which it is not."""
    return all(
        evidence_log(without_most(outcomes, others, (one,), bound, left_out)) >= enough_log for one in ranges
    )


def evidence_log(wealth: Wealth) -> float:
    """Return the logarithm of the wealth, in the range with the least."""
    return min(
        _mean_log(bold) + _mean_log(modest) for bold, modest in zip(wealth.judged, wealth.others, strict=True)
    )


def _gain(failed: float, allowed: float, way: float) -> float:
    """Return the log growth of a bet on more than `allowed`; 0 if everything is allowed."""
    return 0.0 if allowed >= 1 else math.log1p(way * (failed / allowed - 1))


def _other_gain(failed: float, low: float, way: float) -> float:
    """Return the log growth of a bet that the others fail less often than `low`."""
    return math.log1p(way * (low - failed) / (1 - low))


def _highest_without(gains: Sequence[tuple[str, float]], left_out: int) -> float:
    """Return the most that the last gains, from any moment on, add up to without the top parties; at least 0."""
    sums: dict[str, float] = {}
    highest = total = 0.0
    for who, gain in reversed(gains):
        sums[who] = sums.get(who, 0.0) + gain
        total += gain
        # From a loss on, the sum is never more than from the moment after the loss.
        if gain > 0 and total > highest:
            highest = max(highest, _sum_without(sums.values(), left_out, total))
    return highest


def _sum_without(sums: Iterable[float], left_out: int, total: float | None = None) -> float:
    """Return a sum without the highest of its parts; parts that are not above 0 stay."""
    parts = list(sums)
    highest = heapq.nlargest(left_out, parts)
    return (sum(parts) if total is None else total) - sum(one for one in highest if one > 0)


def _mean_log(logs: Sequence[float]) -> float:
    highest = max(logs)
    return highest + math.log(sum(math.exp(log - highest) for log in logs) / len(logs))
