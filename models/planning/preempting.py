"""Which running jobs Slurm would preempt for which waiting job as a rollout goes on. Pure.

Of the jobs on the nodes that it considers, Slurm takes those of the lowest tier first, and of these those on the
fewest nodes (`_gen_job_prio`; 22.05 to 26.05). Which nodes it considers depends on the order of its list of jobs,
which cannot be seen from outside; here the fullest nodes are taken, as for any placement. Nothing else is decided
here: the rollout decides which job is first in the queue, and whether it fits without preemption.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy

from models.planning.problem import Yields
from models.scheduling.room import Amounts, Ints, Parts, Room, amounts_of, exceeds


class Victim(NamedTuple):
    """A running task that jobs of a tier above `above` may preempt; sorts in Slurm's order."""

    above: int
    nodes: int
    task: int
    parts: Parts

    def on(self, machine: int) -> Amounts:
        """Return what it holds of a machine."""
        return dict(self.parts)[machine]


class Yielding:
    """The running tasks that may be preempted, and what they hold together (resources × machines), by their `above`."""

    def __init__(self, resources: int, machines: int) -> None:
        self._resources = resources
        self._victims: dict[int, Victim] = {}
        self._on: list[dict[int, Victim]] = [{} for _ in range(machines)]
        self._held: dict[int, Ints] = {}
        # Tasks that are exempt for a while, and until when (seconds).
        self._exempt: list[tuple[float, Victim]] = []
        self._ended: set[int] = set()

    def started(self, task: int, yields: Yields | None, parts: Parts, start_s: float, now_s: float) -> None:
        """Note that a task runs since `start_s`; ignore it if it yields to nobody."""
        if yields is None:
            return
        victim, from_s = Victim(yields.above, len(parts), task, parts), start_s + yields.exempt_s
        if from_s > now_s:
            heapq.heappush(self._exempt, (from_s, victim))
        else:
            self._add(victim)

    def ended(self, task: int) -> None:
        """Forget a task; ignore it if it may not be preempted."""
        victim = self._victims.pop(task, None)
        if victim is None:
            self._ended.add(task)
            return
        for machine, amounts in victim.parts:
            del self._on[machine][task]
            self._held[victim.above][:, machine] -= amounts

    @property
    def changes_at_s(self) -> float:
        """Return when the next task stops being exempt; infinite: never."""
        return self._exempt[0][0] if self._exempt else math.inf

    def pass_to(self, now_s: float) -> bool:
        """Return whether any task stopped being exempt since the last call."""
        before = len(self._victims)
        while self._exempt and self._exempt[0][0] <= now_s:
            victim = heapq.heappop(self._exempt)[1]
            if victim.task not in self._ended:
                self._add(victim)
        return len(self._victims) > before

    def chosen(self, tier: int, room: Room, place: Callable[[Room], Parts | None]) -> list[int]:
        """Return the tasks to end so that a job of this tier finds its place; none if that is not enough."""
        held = [amounts for above, amounts in self._held.items() if above < tier]
        parts = place(Room(numpy.sum([room.free, *held], axis=0), room.total)) if held else None
        chosen: dict[int, Victim] = {}
        for machine, amounts in parts or ():
            free = amounts_of(room.free[:, machine])
            mine: list[Victim] = []
            for victim in sorted(self._on[machine].values()):
                if victim.task in chosen:
                    free = _sum(free, victim.on(machine))
                elif victim.above < tier and exceeds(amounts, free):
                    mine.append(victim)
                    free = _sum(free, victim.on(machine))
            # Slurm makes another pass to preempt fewer of them (preempt_reorder_count).
            for victim in mine:
                without = _sum(free, victim.on(machine), -1)
                if exceeds(amounts, without):
                    chosen[victim.task] = victim
                else:
                    free = without
        return list(chosen)

    def _add(self, victim: Victim) -> None:
        self._victims[victim.task] = victim
        if victim.above not in self._held:
            self._held[victim.above] = numpy.zeros((self._resources, len(self._on)), dtype=numpy.int64)
        for machine, amounts in victim.parts:
            self._on[machine][victim.task] = victim
            self._held[victim.above][:, machine] += amounts


def _sum(first: Amounts, second: Amounts, sign: int = 1) -> Amounts:
    return tuple(has + sign * more for has, more in zip(first, second, strict=True))
