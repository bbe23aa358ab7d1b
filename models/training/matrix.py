"""Training rows of one dimension: what was known at submission, and what came of it. Pure.

A job that ran to its end shows its need. A job that was killed for memory, or ended at its time limit, shows a bound:
it needed more. If bounds were taken as values, the model would learn that nobody needs more than a limit; if they
were left out, that nobody is killed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from accounting.frames import Flags, Floats, Ints
from models.past.jobs import Learned, PastJob, shows_need, use_of

Inputs = NDArray[np.float32]


class Matrix(msgspec.Struct):
    """Training rows of one dimension, the earliest first, in columns of one length.

    `inputs` is rows × FEATURES. `targets` is the logarithm of need over the family's highest so far, or a lower bound
    of it if `bounded`. `settled` says whether the family was settled. `users` says whose job a row is, by places in
    `names`, and `submit_s` when it was submitted (unix seconds); if `users` is empty, all rows weigh the same.
    """

    inputs: Inputs
    targets: Floats
    settled: Flags
    bounded: Flags
    users: Ints = msgspec.field(default_factory=lambda: np.zeros(0, np.int64))
    submit_s: Ints = msgspec.field(default_factory=lambda: np.zeros(0, np.int64))
    names: Sequence[str] = ()

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.targets)

    def part(self, rows: slice | Flags) -> Matrix:
        """Return some of the rows."""
        return Matrix(
            inputs=self.inputs[rows],
            targets=self.targets[rows],
            settled=self.settled[rows],
            bounded=self.bounded[rows],
            users=self.users[rows] if len(self.users) else self.users,
            submit_s=self.submit_s[rows] if len(self.submit_s) else self.submit_s,
            names=self.names,
        )

    def without(self, users: Collection[str]) -> Matrix:
        """Return the rows of all other users."""
        if not users or not len(self.users):
            return self
        places = [place for place, name in enumerate(self.names) if name in users]
        return self.part(~np.isin(self.users, places))


class Row(msgspec.Struct, frozen=True):
    """One row of a matrix, for rows that come one by one, with the user of its job."""

    inputs: Sequence[float]
    target: float
    settled: bool
    bounded: bool
    user: str


def matrix_of(rows: Sequence[Row]) -> Matrix:
    """Return rows, at least one, as a matrix."""
    names, users = np.unique([row.user for row in rows], return_inverse=True)
    return Matrix(
        inputs=np.asarray([row.inputs for row in rows], np.float32),
        targets=np.asarray([row.target for row in rows], np.float64),
        settled=np.asarray([row.settled for row in rows], np.bool_),
        bounded=np.asarray([row.bounded for row in rows], np.bool_),
        users=users,
        names=names.tolist(),
    )


class Need(msgspec.Struct, frozen=True):
    """The logarithm of what a job needed of a dimension; a lower bound of it if `bounded`."""

    log: float
    bounded: bool


def need_of(job: PastJob, dimension: Learned) -> Need | None:
    """Return what a job teaches of its need; None if it was stopped early, or sampled too little to tell."""
    use = use_of(job, dimension)
    bounded = (dimension == "memory" and job.mem_at_least) or (dimension == "wall" and job.wall_at_least)
    tells = shows_need(job, dimension) or bounded
    return Need(math.log(use), bounded) if use is not None and tells else None
