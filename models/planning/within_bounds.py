"""From the wished order to what the site's bounds leave of it. Pure.

Jobs move within a segment only: none passes a record that we may not move (`kept`), or one of a higher tier, so a
kept record has the same before it as without us. In a segment, urgent jobs come first, in Slurm's own order: those
that have waited long, are overdue, or would start too late otherwise. With them come the jobs that fair share or Nice
holds before them. Each of the others comes where it is wished, but behind every job that Slurm would have before it
and whose fair share is better by more than the bound, or that belongs to the same user and has a lower Nice.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence

import numpy

from models.planning.problem import Bounds, Pending
from models.scheduling.room import Floats

# The largest key of one fair share, its account, and the largest key of any other account.
_Best = tuple[float, int, float]
_NONE: _Best = (-numpy.inf, -1, -numpy.inf)


def arranged(
    pending: Sequence[Pending],
    members: Sequence[int],
    wished: Floats,
    urgent: Collection[int],
    most_inversion: float,
) -> list[int]:
    """Return these records, given in Slurm's order, in the order of their wished keys as far as the bounds allow it.

    O(n log n). `wished` and `urgent` are by the records' numbers in `pending`.
    """
    found: list[int] = []
    for segment in segments(pending, members):
        lifted = _lifted(pending, segment, urgent, most_inversion)
        found += [number for number in segment if number in lifted]
        rest = [number for number in segment if number not in lifted]
        keys = _held_back(pending, rest, wished, most_inversion)
        # A stable sort: equal keys stay in Slurm's order, so a record that is held back comes behind the one that
        # holds it.
        found += [rest[at] for at in numpy.argsort(keys, kind="stable").tolist()]
    return found


def segments(pending: Sequence[Pending], members: Sequence[int]) -> list[list[int]]:
    """Return groups of records that may change places with each other; one that is kept is a segment of its own."""
    found: list[list[int]] = []
    apart = True
    for number in members:
        job = pending[number]
        if apart or job.kept or pending[found[-1][-1]].tier != job.tier:
            found.append([])
        found[-1].append(number)
        apart = bool(job.kept)
    return found


def urgent_ones(
    pending: Sequence[Pending], members: Sequence[int], bounds: Bounds, turn_s: Sequence[float]
) -> set[int]:
    """Return the records that have waited too long, or whose turn to come first (seconds from now) has come."""
    return {
        number for number in members if pending[number].waited_s >= bounds.most_wait_s or turn_s[number] <= 0
    }


def _lifted(
    pending: Sequence[Pending], segment: Sequence[int], urgent: Collection[int], most_inversion: float
) -> set[int]:
    """Return the urgent records of a segment, and those that fair share or Nice holds before one of them."""
    found: set[int] = set()
    # The highest Nice of the lifted records behind, by user.
    nicest: dict[int, int] = {}
    # The least fair share of the lifted records behind, its account, and the least of any other account.
    least, account, other = numpy.inf, -1, numpy.inf
    for number in reversed(segment):
        job = pending[number]
        share = job.fair_share
        behind = other if job.account == account else least
        held_by_share = share is not None and share > behind + most_inversion
        if number not in urgent and not held_by_share and not job.nice < nicest.get(job.user, job.nice):
            continue
        found.add(number)
        nicest[job.user] = max(job.nice, nicest.get(job.user, job.nice))
        if share is None:
            continue
        if job.account == account:
            least = min(least, share)
        elif share < least:
            least, account, other = share, job.account, least
        else:
            other = min(other, share)
    return found


def _held_back(
    pending: Sequence[Pending], records: Sequence[int], wished: Floats, most_inversion: float
) -> Floats:
    """Return the key of each record: its own, or that of a record which it may not pass, whichever is larger."""
    keys: Floats = wished[list(records)] if records else numpy.zeros(0)
    shares = sorted({job.fair_share for job in (pending[at] for at in records) if job.fair_share is not None})
    if len(shares) < 2 or shares[-1] <= shares[0] + most_inversion:
        shares = []
    of_user = _with_several_nices(pending[at] for at in records)
    if not shares and not of_user:
        return keys
    # How many of the better shares, best first, hold each share back.
    levels = {share: place for place, share in enumerate(reversed(shares))}
    limits = numpy.array([-share for share in reversed(shares)])
    behind = {share: int(limits.searchsorted(-(share + most_inversion), side="left")) for share in shares}
    tree: list[_Best] = [_NONE] * (len(shares) + 1)
    held = keys.tolist()
    # Most of a long queue is not moved and has infinite keys; one of each account and share says as much as all.
    noted: set[tuple[int, float]] = set()
    for place, number in enumerate(records):
        job = pending[number]
        share = job.fair_share if shares else None
        if own := of_user.get(job.user):
            held[place] = max(held[place], own.largest_below(job.nice))
        if share is not None and not (held[place] == numpy.inf and (job.account, share) in noted):
            held[place] = max(held[place], _largest(tree, behind[share], job.account))
            _note(tree, levels[share] + 1, held[place], job.account)
            if held[place] == numpy.inf:
                noted.add((job.account, share))
        if own:
            own.note(job.nice, held[place])
    return numpy.array(held)


def _with_several_nices(jobs: Iterable[Pending]) -> dict[int, _Nices]:
    """Return, for each user whose jobs differ in Nice, an empty record of the largest keys."""
    first: dict[int, int] = {}
    found: dict[int, _Nices] = {}
    for job in jobs:
        if first.setdefault(job.user, job.nice) != job.nice and job.user not in found:
            found[job.user] = _Nices()
    return found


class _Nices:
    """The largest key of a user's records so far, by Nice. Keys rise with Nice; what adds nothing is left out."""

    def __init__(self) -> None:
        self._nices: list[int] = []
        self._keys: list[float] = []

    def largest_below(self, nice: int) -> float:
        """Return the largest key of those with a lower Nice."""
        at = bisect_left(self._nices, nice)
        return self._keys[at - 1] if at else -numpy.inf

    def note(self, nice: int, key: float) -> None:
        """Note a key; drop those of a higher Nice that are no larger, as they add nothing."""
        at = bisect_left(self._nices, nice)
        if at < len(self._nices) and self._nices[at] == nice:
            key = max(key, self._keys[at])
        if at and self._keys[at - 1] >= key:
            return
        until = bisect_right(self._keys, key, lo=at)
        self._nices[at:until], self._keys[at:until] = [nice], [key]


def _largest(tree: list[_Best], count: int, account: int) -> float:
    """Return the largest key among the first `count` shares that is of another account."""
    largest = -numpy.inf
    while count:
        first, owner, second = tree[count]
        largest = max(largest, second if owner == account else first)
        count &= count - 1
    return float(largest)


def _note(tree: list[_Best], place: int, key: float, account: int) -> None:
    """Note a key of an account at a share's place (from 1)."""
    while place < len(tree):
        first, owner, second = tree[place]
        if owner == account:
            tree[place] = (max(first, key), owner, second)
        elif key > first:
            tree[place] = (key, account, first)
        else:
            tree[place] = (first, owner, max(second, key))
        place += place & -place
