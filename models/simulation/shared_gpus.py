"""A cluster of GPUs that two jobs may share, event by event: each job runs at its true speed next to the other.

It decides when jobs end, what moving costs, and what is seen of speeds. The policy decides which job goes where; it
is asked at every arrival and end, and in every time slot. The policy knows neither how long jobs run nor the true
speeds; it is told how pairs did while they ran. Nothing is drawn at random here: the same load and policy give the
same result to the bit.

The engine of queues (engine.py) is a different one: there, the end of a job is known once it starts; here, every
start and end changes the speed of another job.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import msgspec
import numpy

from accounting.errors import ScheduleError
from models.scheduling.room import Floats, Ints

MOST_ON_A_GPU = 2
# Of the work that is left: sums of products of speeds and times drift by less.
ROUNDING_S = 1e-6


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of one GPU each, by arrival: when they come, how long they would run alone (seconds), and their kind."""

    submit_s: Floats
    alone_s: Floats
    kind: Ints

    def __len__(self) -> int:
        return len(self.submit_s)


class Machines(msgspec.Struct, frozen=True, kw_only=True):
    """GPUs that are alike. `speed[a, b]` is that of kind a next to b over its speed alone, 0 if both do not fit.

    Every `slot_s` seconds the policy may move running jobs; each move makes a job run `move_s` longer (its last
    checkpoint, its start).
    """

    gpus: int
    speed: Floats
    slot_s: float = 360.0
    move_s: float = 60.0


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy sees: which jobs are on each GPU, in the order they came there, and which wait, by arrival.

    Of each job it sees the kind, the arrival and how long it has run, at whatever speed (seconds, as of the last slot
    or change on its GPU). Running jobs may be moved only if this is a slot.
    """

    now_s: float
    slot: bool
    on_gpus: Sequence[Sequence[int]]
    waiting: Sequence[int]
    kind: Ints
    submit_s: Floats
    ran_s: Floats


class SharingPolicy(Protocol):
    """Which job goes where."""

    def decide(self, seen: Seen) -> dict[int, int | None]:
        """Return the GPU of each job that is to start or to move, None for one that is to wait again."""

    def saw(self, kind: int, beside: int, seconds: float, speed: float) -> None:
        """Learn how fast a job of a kind ran next to another, as a share of its speed alone, and for how long."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """When each job first started and ended (seconds), moves of running jobs, and how much GPUs were shared.

    `shared` is the share of busy GPU time with two jobs; `gain` is the work done over the busy GPU time.
    """

    start_s: Floats
    end_s: Floats
    moves: int
    shared: float
    gain: float


class _Gpu:
    """The jobs on a GPU, since when nothing changed there, and when the first of them will have ended."""

    __slots__ = ("jobs", "next_end_s", "since_s")

    def __init__(self) -> None:
        self.jobs: list[int] = []
        self.since_s = 0.0
        self.next_end_s = math.inf


class _Simulation:
    def __init__(self, load: Load, machines: Machines, policy: SharingPolicy) -> None:
        self.load, self.machines, self.policy = load, machines, policy
        self.gpus = [_Gpu() for _ in range(machines.gpus)]
        self.place: dict[int, int] = {}
        self.waiting: list[int] = []
        self.left_s = load.alone_s.astype(numpy.float64).copy()
        self.ran_s = numpy.zeros(len(load))
        self.start_s = numpy.full(len(load), numpy.nan)
        self.end_s = numpy.full(len(load), numpy.nan)
        self.moves = 0
        self.busy_s = self.shared_s = self.work_s = 0.0

    def run(self) -> Ended:
        """Run until everything has ended."""
        submit_s, slot_s = self.load.submit_s.tolist(), self.machines.slot_s
        came, number, now_s, slot_at_s = 0, len(self.load), 0.0, slot_s
        while came < number or self.place or self.waiting:
            ends = numpy.array([gpu.next_end_s for gpu in self.gpus])
            arrival_s = submit_s[came] if came < number else math.inf
            now_s = min(arrival_s, float(ends.min()), slot_at_s if self.place or self.waiting else math.inf)
            if math.isinf(now_s):
                raise ScheduleError("jobs wait that the policy never starts; start each at the latest alone")
            slot = slot_at_s <= now_s
            if slot:
                slot_at_s = (math.floor(now_s / slot_s) + 1) * slot_s
                for gpu in self.gpus:
                    self._advance(gpu, now_s)
            for place in numpy.flatnonzero(ends <= now_s):
                self._end(self.gpus[place], now_s)
            while came < number and submit_s[came] <= now_s:
                self.waiting.append(came)
                came += 1
            self._decide(now_s, slot=slot)
        return Ended(
            start_s=self.start_s,
            end_s=self.end_s,
            moves=self.moves,
            shared=self.shared_s / max(self.busy_s, 1e-9),
            gain=self.work_s / max(self.busy_s, 1e-9),
        )

    def _decide(self, now_s: float, *, slot: bool) -> None:
        seen = Seen(
            now_s=now_s,
            slot=slot,
            on_gpus=[gpu.jobs for gpu in self.gpus],
            waiting=self.waiting,
            kind=self.load.kind,
            submit_s=self.load.submit_s,
            ran_s=self.ran_s,
        )
        changes = {
            job: place
            for job, place in self.policy.decide(seen).items()
            if place is None or self.place.get(job) != place
        }
        touched = {place for place in changes.values() if place is not None}
        touched |= {self.place[job] for job in changes if job in self.place}
        for place in touched:
            self._advance(self.gpus[place], now_s)
        for job in changes:
            if job in self.place:
                self._leave(job, slot=slot)
        for job, target in changes.items():
            if target is not None:
                self._enter(job, target, now_s)
        for place in touched:
            self._expect(self.gpus[place])

    def _leave(self, job: int, *, slot: bool) -> None:
        if not slot:
            raise ScheduleError(f"job {job} runs and is moved between slots; move it in a slot")
        self.gpus[self.place.pop(job)].jobs.remove(job)
        self.left_s[job] += self.machines.move_s
        self.moves += 1
        self.waiting.append(job)
        self.waiting.sort()

    def _enter(self, job: int, place: int, now_s: float) -> None:
        gpu = self.gpus[place]
        if len(gpu.jobs) == MOST_ON_A_GPU or any(self._speed(job, other) <= 0 for other in gpu.jobs):
            raise ScheduleError(f"job {job} does not fit on GPU {place} beside {gpu.jobs}; leave it waiting")
        gpu.jobs.append(job)
        gpu.since_s = now_s
        self.place[job] = place
        self.waiting.remove(job)
        if math.isnan(self.start_s[job]):
            self.start_s[job] = now_s

    def _speed(self, job: int, other: int) -> float:
        return float(self.machines.speed[self.load.kind[job], self.load.kind[other]])

    def _speeds(self, gpu: _Gpu) -> list[float]:
        """Return how fast each job on a GPU runs."""
        if len(gpu.jobs) < MOST_ON_A_GPU:
            return [1.0] * len(gpu.jobs)
        one, other = gpu.jobs
        return [self._speed(one, other), self._speed(other, one)]

    def _advance(self, gpu: _Gpu, now_s: float) -> None:
        """Let time pass on a GPU, and tell the policy what was seen."""
        seconds, gpu.since_s = now_s - gpu.since_s, now_s
        if not gpu.jobs or seconds <= 0:
            return
        speeds = self._speeds(gpu)
        for job, speed in zip(gpu.jobs, speeds, strict=True):
            self.left_s[job] -= speed * seconds
            self.ran_s[job] += seconds
        self.busy_s += seconds
        self.work_s += sum(speeds) * seconds
        if len(gpu.jobs) == MOST_ON_A_GPU:
            self.shared_s += seconds
            one, other = (int(self.load.kind[job]) for job in gpu.jobs)
            self.policy.saw(one, other, seconds, speeds[0])
            self.policy.saw(other, one, seconds, speeds[1])

    def _end(self, gpu: _Gpu, now_s: float) -> None:
        self._advance(gpu, now_s)
        for job in [job for job in gpu.jobs if self.left_s[job] <= ROUNDING_S]:
            gpu.jobs.remove(job)
            del self.place[job]
            self.end_s[job] = now_s
        self._expect(gpu)

    def _expect(self, gpu: _Gpu) -> None:
        """Compute when the first job on a GPU will have ended."""
        ends_s = [
            gpu.since_s + max(self.left_s[job], 0.0) / speed
            for job, speed in zip(gpu.jobs, self._speeds(gpu), strict=True)
        ]
        gpu.next_end_s = min(ends_s, default=math.inf)


def share(load: Load, machines: Machines, policy: SharingPolicy) -> Ended:
    """Return what becomes of a load."""
    return _Simulation(load, machines, policy).run()
