"""The waiting jobs in the order of their keys, in columns, so that a round checks thousands in a few microseconds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from models.scheduling.ordering import Waiting
from models.scheduling.room import PLAIN, Amounts, Floats, Ints, Mask, amounts_of

# The rows of integers of a job. `FRESH` is 1 until a round has considered it, `GROUP` says what it may use, `NODES`
# on how many nodes it needs, on each, the amounts that start at `DEMAND`.
NUMBER, FRESH, GROUP, NODES, DEMAND = range(5)
KEY, RUN, LIMIT = range(3)
FIRST_SIZE = 256
# Up to this many jobs are removed one by one; more are removed together.
FEW = 2


class Queue:
    """Jobs sorted by key, equal keys in the order they came; position 0 is the first."""

    def __init__(self, resources: int = PLAIN) -> None:
        self._ints: Ints = numpy.zeros((DEMAND + resources, FIRST_SIZE), dtype=numpy.int64)
        self._floats: Floats = numpy.zeros((3, FIRST_SIZE))
        self._begin = self._end = 0

    def __len__(self) -> int:
        return self._end - self._begin

    @property
    def ints(self) -> Ints:
        """Return the integers (rows × jobs) in the queue's order."""
        return self._ints[:, self._begin : self._end]

    @property
    def run_s(self) -> Floats:
        """Return how long each job is expected to run."""
        return self._floats[RUN, self._begin : self._end]

    @property
    def limit_s(self) -> Floats:
        """Return the longest each job may run."""
        return self._floats[LIMIT, self._begin : self._end]

    def add(self, job: Waiting, key: float, group: int, alike: int = 1) -> None:
        """Add a job of a group of users behind all with the same key; `alike` jobs get consecutive numbers."""
        if self._end + alike > self._ints.shape[1]:
            self._make_space(alike)
        keys = self._floats[KEY, self._begin : self._end]
        place = self._end
        if len(keys) and keys[-1] > key:
            place = self._begin + int(keys.searchsorted(key, side="right"))
            self._ints[:, place + alike : self._end + alike] = self._ints[:, place : self._end]
            self._floats[:, place + alike : self._end + alike] = self._floats[:, place : self._end]
        self._ints[:, place] = (job.number, 1, group, job.nodes, *job.demand)
        self._floats[:, place] = (key, job.predicted_s, job.limit_s)
        if alike > 1:
            self._ints[:, place + 1 : place + alike] = self._ints[:, place, None]
            self._ints[NUMBER, place : place + alike] += numpy.arange(alike)
            self._floats[:, place + 1 : place + alike] = self._floats[:, place, None]
        self._end += alike

    def _make_space(self, more: int) -> None:
        jobs = len(self)
        size = max(FIRST_SIZE, 2 * (jobs + more))
        ints, floats = numpy.zeros((len(self._ints), size), dtype=numpy.int64), numpy.zeros((3, size))
        ints[:, :jobs] = self.ints
        floats[:, :jobs] = self._floats[:, self._begin : self._end]
        self._ints, self._floats, self._begin, self._end = ints, floats, 0, jobs

    def number(self, position: int) -> int:
        """Return the number of a job."""
        return int(self._ints[NUMBER, self._begin + position])

    def demand(self, position: int) -> Amounts:
        """Return what a job needs."""
        return amounts_of(self._ints[DEMAND:, self._begin + position])

    def nodes(self, position: int) -> int:
        """Return on how many nodes a job needs its demand."""
        return int(self._ints[NODES, self._begin + position])

    def remove(self, position: int) -> None:
        """Remove a job."""
        begin, place = self._begin, self._begin + position
        if position < len(self) // 2:
            self._ints[:, begin + 1 : place + 1] = self._ints[:, begin:place]
            self._floats[:, begin + 1 : place + 1] = self._floats[:, begin:place]
            self._begin += 1
            return
        self._ints[:, place : self._end - 1] = self._ints[:, place + 1 : self._end]
        self._floats[:, place : self._end - 1] = self._floats[:, place + 1 : self._end]
        self._end -= 1

    def remove_all(self, positions: Sequence[int]) -> None:
        """Remove the jobs at these positions."""
        if len(positions) <= FEW:
            for position in sorted(positions, reverse=True):
                self.remove(position)
            return
        stays = numpy.ones(len(self), dtype=numpy.bool_)
        stays[list(positions)] = False
        begin, end = self._begin, self._end - len(positions)
        self._ints[:, begin:end], self._floats[:, begin:end] = (
            rows[:, begin : self._end][:, stays] for rows in (self._ints, self._floats)
        )
        self._end = end

    @property
    def keys(self) -> Floats:
        """Return the key of each job."""
        return self._floats[KEY, self._begin : self._end]

    def rekey(self, keys: Floats) -> bool:
        """Give every job a new key, in the queue's order; equal keys keep their order. Return whether any job moved."""
        order = numpy.argsort(keys, kind="stable")
        self.ints[:] = self.ints[:, order]
        floats = self._floats[:, self._begin : self._end]
        floats[:] = floats[:, order]
        floats[KEY] = keys[order]
        return bool((numpy.diff(order) < 0).any())

    def looked_at(self) -> None:
        """Note that a round has considered all waiting jobs."""
        self.ints[FRESH] = 0

    def within(self, most: Amounts) -> Mask:
        """Return which jobs need no more of anything than `most`."""
        demands = self.ints[DEMAND:]
        fit: Mask = demands[0] <= most[0]
        for row in range(1, len(most)):
            fit &= demands[row] <= most[row]
        return fit
