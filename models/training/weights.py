"""How much each user's jobs weigh where a model of all users is fitted, so that no user dominates it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from accounting.frames import Floats, Ints

# A user's share of all weight: half of what lies above the quantile that is fitted (quantile.QUANTILE).
MOST_USER_SHARE = 0.01
# If users are too few for that, none weighs more than this many times an equal share.
MOST_OF_EQUAL = 1.25
# A user is apart if FAR_SHARE of the user's rows, and at least LEAST_FAR of them, lie by FAR_LOG (a logarithm) beyond
# all but TAIL_SHARE of the others' rows.
TAIL_SHARE, FAR_LOG, FAR_SHARE, LEAST_FAR = 0.02, 0.3, 0.02, 5


def row_weights(users: Ints) -> Floats:
    """Return the weight of each row, at most 1: the rows of a user with many share what one user may weigh.

    `users` has a number for the user of each row.
    """
    if not len(users):
        return np.zeros(0)
    _, user, counts = np.unique(users, return_inverse=True, return_counts=True)
    weights: Floats = np.minimum(1.0, heaviest(np.sort(counts)[::-1].tolist()) / counts)
    return weights[user]


def heaviest(falling: Sequence[int]) -> float:
    """Return what a user may weigh at most, in rows; `falling` has the number of rows of each user, the most first.

    It is the share of the total after the users with more were cut to it. A single user weighs all.
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


def users_apart(users: Ints, targets: Floats, least_rows: int) -> frozenset[int]:
    """Return the users with many rows whose growth is so unlike all others' that it would teach about nobody else.

    They have more than MOST_USER_SHARE of the rows, of which FAR_SHARE or more lie by FAR_LOG above what all but
    TAIL_SHARE of the others' rows show, or as far below. Ordinary differences between users are not that large: with
    a closer bound, a user near it would be apart in one training and not in the next. If such users had half of the
    rows, or left fewer than `least_rows`, none is apart.
    """
    numbers, counts = np.unique(users, return_counts=True)
    many = (counts > MOST_USER_SHARE * len(users)) & (len(users) - counts >= least_rows)
    apart: dict[int, int] = {}
    # There are fewer of these than 1 / MOST_USER_SHARE.
    for user, count in zip(numbers[many].tolist(), counts[many].tolist(), strict=True):
        own = users == user
        low, high = np.quantile(targets[~own], (TAIL_SHARE, 1 - TAIL_SHARE))
        far = max(np.sum(targets[own] > high + FAR_LOG), np.sum(targets[own] < low - FAR_LOG))
        if far >= max(FAR_SHARE * count, LEAST_FAR):
            apart[user] = count
    rows = sum(apart.values())
    return frozenset(apart if 2 * rows < len(users) and len(users) - rows >= least_rows else ())
