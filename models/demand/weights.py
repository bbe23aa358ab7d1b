"""How much each user's jobs weigh where a model of all users is fitted, so that nobody makes it theirs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy

# Of all the weight; half of what lies above the quantile that is fitted (training.QUANTILE).
MOST_USER_SHARE = 0.01
# Where users are too few for that, nobody weighs more than this many times an equal share.
MOST_OF_EQUAL = 1.25
# Who is apart has this share of rows, and so many, that far (a logarithm) beyond all but TAIL_SHARE of the others'.
TAIL_SHARE, FAR_LOG, FAR_SHARE, LEAST_FAR = 0.02, 0.3, 0.02, 5


def row_weights(users: Sequence[str]) -> list[float]:
    """Return the weight of each row, at most 1: the rows of a user with many share what one user may weigh."""
    counts = Counter(users)
    if not counts:
        return []
    most = heaviest(sorted(counts.values(), reverse=True))
    return [min(1.0, most / counts[user]) for user in users]


def heaviest(falling: Sequence[int]) -> float:
    """Return what a user may weigh at most, in rows, for users with so many rows each, the most first.

    It is the share of the total after those with more were cut to it. One user alone weighs all.
    """
    share = max(MOST_USER_SHARE, MOST_OF_EQUAL / len(falling))
    rest = float(sum(falling))
    for cut, count in enumerate(falling):
        # With `cut` users cut to `most`: most = share · (cut · most + rest).
        most = share * rest / (1 - share * cut) if share * cut < 1 else float(count)
        if most >= count:
            return most
        rest -= count
    return float(falling[-1])


def users_apart(users: Sequence[str], targets: Sequence[float], least_rows: int) -> frozenset[str]:
    """Return the users with many rows whose growth is so unlike all others' that it would teach about nobody else.

    They are those with more than MOST_USER_SHARE of the rows, of which FAR_SHARE or more lie by FAR_LOG above what all
    but TAIL_SHARE of the others' rows show, or as far below. Ordinary differences between users are not that far: who
    is near the bound would be apart in one training and not in the next. Where they would be half of the rows, or
    fewer than `least_rows` were left, nobody is the odd one.
    """
    counts, values, owners = Counter(users), numpy.asarray(targets), numpy.asarray(users)
    apart: list[str] = []
    for user, count in counts.items():
        own = owners == user
        if count <= MOST_USER_SHARE * len(users) or len(users) - count < least_rows:
            continue
        low, high = numpy.quantile(values[~own], (TAIL_SHARE, 1 - TAIL_SHARE))
        far = max((values[own] > high + FAR_LOG).sum(), (values[own] < low - FAR_LOG).sum())
        if far >= max(FAR_SHARE * count, LEAST_FAR):
            apart.append(user)
    rows = sum(counts[user] for user in apart)
    return frozenset(apart if 2 * rows < len(users) and len(users) - rows >= least_rows else ())
