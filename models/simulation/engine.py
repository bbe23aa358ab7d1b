"""A load on a cluster under a policy, event by event; equal load, policy and hooks give equal results, to the bit.

The engine decides when jobs end, fail and come back; policies decide the order, the place, and what may pass what.
Nothing is drawn at random here: the load was drawn, and an order may be, from their own seeds. A job granted less
memory than its peak fails after a share of its run, and comes back at once with its original request. A job that runs
past its limit is ended there, as in Slurm.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

import msgspec
import numpy

from accounting.errors import ModelError
from models.scheduling.deadlines import Terms
from models.scheduling.ordering import FIFO, Ordering, Waiting
from models.scheduling.placement import WHOLE, Placement
from models.scheduling.room import Amounts, Floats, Parts, Room, amounts_of
from models.scheduling.run_time_guess import ByLimit, RunTimeGuess, corrected_s
from models.simulation.devices import Devices, Profile, paces_of
from models.simulation.hooks import Advice, AsAsked, Moving, RunTime, Sizing, unchanged
from models.simulation.lending import GOES, Lending
from models.simulation.nodes import Cluster
from models.simulation.queue import NUMBER
from models.simulation.results import Moment, Outcome, Results, Run, lent_use
from models.simulation.rounds import ROUNDS, fair
from models.simulation.state import Running, State
from models.simulation.workload import Workload

END, OUTRUN = 0, 1
MEMORY = 1
FAILED_SHARE = 0.5


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How jobs come to start: their order, what a waiting job holds up, where jobs go, how long they may run.

    `guess` makes the object that tells backfill how long jobs are expected to run. With a fair ordering `start` has
    no effect. `seed` is for orderings that draw; `terms` are for a start by deadlines, which has an order of its own.
    """

    ordering: Ordering = FIFO
    start: str = "strict"
    placement: Placement = WHOLE
    guess: Callable[[], RunTimeGuess] = ByLimit
    seed: int = 1
    terms: Terms = Terms()

    def __post_init__(self) -> None:
        """Refuse a rule that does not exist."""
        if self.start not in ROUNDS:
            raise ModelError(f"no rule of starting is called {self.start}; there are {', '.join(ROUNDS)}")


class Hooks(msgspec.Struct, frozen=True, kw_only=True):
    """What jobs are granted and how long they then run; one with too little memory ends after FAILED_SHARE of its run.

    `advice` moves waiting jobs; it has nothing to move if the ordering is fair or an arrangement. If memory does not
    matter (`kills` is False), as in papers that know no failures, jobs with too little memory run on. `profiles` has
    the speed of each kind of jobs on each device; empty: the node's speed. `expected_s` is how long each job is
    expected to run at speed 1, None: as the policy guesses. A job that an owner interrupts keeps what it had done in
    whole multiples of `checkpoint_s`. The choice of device is `explained` for one job (-1: for none).
    """

    sizing: Sizing | None = None
    run_time: RunTime | None = None
    advice: Advice | None = None
    kills: bool = True
    profiles: tuple[Profile, ...] = ()
    expected_s: Floats | None = None
    checkpoint_s: float = float("inf")
    explained: int = -1


class _Fate(msgspec.Struct, frozen=True, gc=False):
    """How a run will end."""

    end_s: float
    outcome: int
    granted: Amounts


class Simulation:
    """One run of the loop; others call `simulate`."""

    def __init__(self, jobs: Workload, cluster: Cluster, policy: Policy, hooks: Hooks) -> None:
        self.jobs = jobs
        self.policy = policy
        self.speeds = cluster.speeds
        self.one_speed = cluster.speeds[0] if len(set(cluster.speeds)) == 1 else None
        self.sizing = hooks.sizing or AsAsked(jobs)
        self.run_time = hooks.run_time or unchanged(jobs)
        self.kills = hooks.kills
        self.guess = policy.guess()
        self.advice = hooks.advice
        # When advice is due; infinite: nothing has changed since the last.
        self.advise_at_s, self.advised_s = float("inf"), -float("inf")
        arrangement = policy.ordering.arrangement
        self.arrange = arrangement(policy.seed) if arrangement else None
        self.round = fair if policy.ordering.fair else ROUNDS[policy.start]
        self.room = Room(cluster.capacity.copy(), cluster.total)
        # A reserved part is no larger than its node.
        self.empty = Room(cluster.capacity[:, : cluster.own], cluster.total)
        windows = cluster.availability()
        self.state = State(self.room, policy.ordering, policy.placement, self._started, windows)
        self.lending = Lending(cluster.owners) if cluster.owners else None
        self.cluster = cluster
        # If neither devices nor deadlines count, each node has one speed, and a job is expected to run equally long
        # on all.
        self.devices: Devices | None = None
        if hooks.profiles or policy.start == "deadlines":
            paces = paces_of(jobs, cluster, hooks.profiles)
            self.devices = Devices(jobs, cluster, paces, self.lending, policy.terms, hooks.explained)
            self.state.devices = self.devices
        self.expected_s = None if hooks.expected_s is None else hooks.expected_s.tolist()
        self.checkpoint_s = hooks.checkpoint_s
        self.events: list[tuple[float, int, int]] = []
        self.now_s = 0.0
        self.submit_s, self.limit_s = jobs.submit_s.tolist(), jobs.limit_s.tolist()
        self.deadline_s, self.user = jobs.deadline_s.tolist(), jobs.user.tolist()
        self.asked = [amounts_of(row) for row in jobs.asked]
        self.used = [amounts_of(row) for row in jobs.used]
        self.predicted_s: dict[int, float] = {}
        self.fates: dict[int, _Fate] = {}
        number = len(jobs)
        self.outcome = [int(Outcome.ABSENT)] * number
        self.failures = [0] * number
        self.interruptions = [0] * number
        # How much of each job is still to do.
        self.left = [1.0] * number
        self.granted: list[Amounts] = [(0, 0, 0)] * number
        self.first_start_s, self.start_s, self.end_s = ([float("nan")] * number for _ in range(3))
        self.moments: list[Moment] = []
        self.runs: list[Run] = []
        self.run_of: dict[int, int] = {}
        self.allocated: list[int] = [0, 0, 0]
        self.in_use: list[int] = [0, 0, 0]

    def run(self, until_s: float) -> Results:
        """Run until everything has ended, or until `until_s`."""
        came, jobs = 0, len(self.jobs)
        endless = float("inf")
        while True:
            arrival_s = self.submit_s[came] if came < jobs else endless
            now_s = self._next_s(arrival_s)
            if now_s == endless or now_s > until_s:
                break
            self.now_s = now_s
            while self.events and self.events[0][0] == now_s:
                _, kind, number = heapq.heappop(self.events)
                self._end(number) if kind == END else self._outrun(number)
            if self.state.changes_at_s <= now_s:
                self.state.pass_to(now_s)
            if self.lending is not None:
                self._lend(self.lending)
            while came < jobs and self.submit_s[came] == now_s:
                self._arrive(came)
                came += 1
            self._schedule()
            if self.advice is not None:
                self._advise(self.advice, changed=now_s < self.advise_at_s)
        return self._results(until_s if until_s < endless else self.now_s)

    def _next_s(self, arrival_s: float) -> float:
        """Return when something happens next; infinite: nothing for which any job waits."""
        endless, waits = float("inf"), bool(self.state.waiting)
        now_s = min(arrival_s, self.events[0][0] if self.events else endless)
        if now_s < endless or waits:
            now_s = min(now_s, self.state.changes_at_s)
            if self.lending is not None:
                now_s = min(now_s, self.lending.changes_at_s)
        return min(now_s, self.advise_at_s) if waits else now_s

    def _arrive(self, number: int) -> None:
        asked = self.asked[number]
        if self.policy.placement.place(self.empty, asked) is None:
            self.outcome[number] = Outcome.UNFIT
            return
        granted = self.sizing.grant(number, self.now_s)
        if any(part > whole for part, whole in zip(granted, asked, strict=True)) or min(granted) < 0:
            raise ModelError(
                f"job {number} asked for {asked} and was granted {granted}; grant no more than was asked"
            )
        self._wait(number, granted)

    def _wait(self, number: int, granted: Amounts) -> None:
        limit_s = self.limit_s[number]
        self.granted[number] = granted
        self.outcome[number] = Outcome.WAITING
        if self.advice is not None:
            self.advice.came(number, self.now_s)
        left = self.left[number]
        guess_s = self.guess.guess_s(self.user[number], limit_s)
        self.predicted_s[number] = (guess_s if self.expected_s is None else self.expected_s[number]) * left
        self.state.enqueue(
            Waiting(
                number=number,
                submit_s=self.now_s,
                user=self.user[number],
                demand=granted,
                total=self.room.total,
                predicted_s=self.predicted_s[number],
                remaining_s=min(self.run_time(number, granted) * left, limit_s),
                limit_s=limit_s,
                deadline_s=self.deadline_s[number],
            )
        )

    def _schedule(self) -> None:
        state = self.state
        if self.arrange is not None and state.arrived:
            places = self.arrange([state.waiting[number] for number in state.queue.ints[NUMBER].tolist()])
            state.queue.rekey(numpy.array(places, dtype=numpy.float64))
        if state.waiting and (state.released or state.stale or state.arrived):
            self.round(state, self.now_s)
            state.queue.looked_at()
            state.released = state.stale = False
        state.arrived = False
        self._note()

    def _advise(self, advice: Advice, *, changed: bool) -> None:
        """Ask for new keys once they are due, after this moment's round, which used those in force."""
        if changed and self.advise_at_s == float("inf"):
            self.advise_at_s = max(self.now_s, self.advised_s + advice.period_s)
        if not self.state.waiting or self.advise_at_s > self.now_s:
            return
        self.advise_at_s, self.advised_s = float("inf"), self.now_s
        queue = self.state.queue
        standing = dict(zip(queue.ints[NUMBER].tolist(), queue.keys.tolist(), strict=True))
        running = [Moving(number, job.start_s, job.parts) for number, job in self.state.running.items()]
        standing |= advice.keys(self.now_s, standing, running)
        if queue.rekey(numpy.array(list(standing.values()))):
            self.state.stale = True
            self._schedule()

    def _started(self, number: int, parts: Parts) -> None:
        granted, limit_s = self.granted[number], self.limit_s[number]
        predicted_s = self.predicted_s[number]
        if self.devices is not None:
            speed = self.devices.speed(number, parts)
            # All other rounds take a job to run equally long on all devices, as its limit is the same on all of them.
            if self.policy.start == "deadlines":
                predicted_s /= speed
        else:
            speed = self.one_speed or min(self.speeds[node] for node, _ in parts)
        run_s = self.run_time(number, granted) * self.left[number] / speed
        outcome = Outcome.COMPLETED
        if self.kills and self.used[number][MEMORY] > granted[MEMORY]:
            run_s, outcome = run_s * FAILED_SHARE, Outcome.FAILED
        if run_s > limit_s:
            run_s, outcome = limit_s, Outcome.TIMEOUT
        end_s = self.now_s + run_s
        self.fates[number] = _Fate(end_s, outcome, granted)
        self.outcome[number] = Outcome.RUNNING
        self.start_s[number] = self.now_s
        if self.first_start_s[number] != self.first_start_s[number]:  # NaN: it never started before
            self.first_start_s[number] = self.now_s
        expected_s = self.now_s + predicted_s
        self.state.run(number, Running(self.now_s, parts, expected_s, self.now_s + limit_s))
        heapq.heappush(self.events, (end_s, END, number))
        if expected_s < end_s:
            heapq.heappush(self.events, (expected_s, OUTRUN, number))
        self._account(number, granted, 1)
        self.run_of[number] = len(self.runs)
        self.runs.append(Run(number, self.now_s, end_s, parts))

    def _outrun(self, number: int) -> None:
        fate, running = self.fates.get(number), self.state.running.get(number)
        # A job that was interrupted meanwhile, and may run again, is expected to end at another time.
        if fate is None or running is None or running.expected_end_s != self.now_s:
            return
        told_s = running.expected_end_s - running.start_s
        expected_s = running.start_s + corrected_s(told_s, running.outrun, self.limit_s[number])
        self.state.expect(number, expected_s)
        if expected_s < fate.end_s:
            heapq.heappush(self.events, (expected_s, OUTRUN, number))

    def _end(self, number: int) -> None:
        fate = self.fates.get(number)
        if fate is None or fate.end_s != self.now_s:
            return  # It was interrupted, and this is when it would have ended.
        del self.fates[number]
        running = self.state.end(number, self.user[number], fate.granted, self.now_s)
        self._account(number, fate.granted, -1)
        self.end_s[number], self.outcome[number] = self.now_s, fate.outcome
        self.guess.ended(self.user[number], self.now_s - running.start_s)
        enough = fate.outcome != Outcome.FAILED
        if self.advice is not None:
            self.advice.ended(number, self.now_s, running.start_s)
        self.sizing.ended(number, self.now_s, running.start_s, fate.granted, enough=enough)
        if not enough:
            self.failures[number] += 1
            if fate.granted != self.asked[number]:
                self._wait(number, self.asked[number])

    def _lend(self, lending: Lending) -> None:
        """Let owners come and go; jobs on the node of an owner who comes are interrupted, and wait again."""
        for _, kind, node in lending.pass_to(self.now_s):
            amounts = amounts_of(self.cluster.capacity[:, node])
            if kind == GOES:
                self.state.owner_goes(node, amounts)
                continue
            there = [
                number
                for number, job in self.state.running.items()
                if any(part[0] == node for part in job.parts)
            ]
            for number in there:
                self._interrupt(number)
            self.state.owner_comes(node, amounts)

    def _interrupt(self, number: int) -> None:
        fate = self.fates.pop(number)
        running = self.state.end(number, self.user[number], fate.granted, self.now_s)
        self._account(number, fate.granted, -1)
        if self.advice is not None:
            self.advice.ended(number, self.now_s, running.start_s)
        ran_s = self.now_s - running.start_s
        if fate.outcome == Outcome.COMPLETED and self.checkpoint_s < float("inf"):
            kept_s = ran_s // self.checkpoint_s * self.checkpoint_s
            self.left[number] *= 1 - kept_s / (fate.end_s - running.start_s)
        at = self.run_of[number]
        self.runs[at] = msgspec.structs.replace(self.runs[at], end_s=self.now_s)
        self.interruptions[number] += 1
        self._wait(number, fate.granted)

    def _account(self, number: int, granted: Amounts, sign: int) -> None:
        cpu_milli, mem_mib, gpu_milli = granted
        used_cpu, used_mem, used_gpu = self.used[number]
        allocated, in_use = self.allocated, self.in_use
        allocated[0] += sign * cpu_milli
        allocated[1] += sign * mem_mib
        allocated[2] += sign * gpu_milli
        in_use[0] += sign * min(cpu_milli, used_cpu)
        in_use[1] += sign * min(mem_mib, used_mem)
        in_use[2] += sign * min(gpu_milli, used_gpu)

    def _note(self) -> None:
        cpu, mem, gpu = self.allocated
        used_cpu, used_mem, used_gpu = self.in_use
        waiting, running = len(self.state.waiting), len(self.state.running)
        self.moments.append(
            Moment(self.now_s, (cpu, mem, gpu), (used_cpu, used_mem, used_gpu), waiting, running)
        )

    def _results(self, until_s: float) -> Results:
        return Results(
            jobs=self.jobs,
            total=self.room.total,
            until_s=until_s,
            outcome=numpy.array(self.outcome, dtype=numpy.int64),
            start_s=numpy.array(self.start_s),
            first_start_s=numpy.array(self.first_start_s),
            end_s=numpy.array(self.end_s),
            failures=numpy.array(self.failures, dtype=numpy.int64),
            granted=numpy.array(self.granted, dtype=numpy.int64).reshape(len(self.jobs), 3),
            moments=self.moments,
            runs=self.runs,
            interruptions=numpy.array(self.interruptions, dtype=numpy.int64),
            lent=lent_use(self.cluster, self.runs, until_s),
            why=self.devices.why if self.devices is not None else "",
        )


def simulate(
    jobs: Workload,
    cluster: Cluster,
    policy: Policy | None = None,
    hooks: Hooks | None = None,
    until_s: float = float("inf"),
) -> Results:
    """Return what becomes of a load; by default first come, first served, each job with what it asked for."""
    return Simulation(jobs, cluster, policy or Policy(), hooks or Hooks()).run(until_s)
