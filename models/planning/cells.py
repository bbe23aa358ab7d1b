"""A problem cut into cells: machines linked by shared pools, with all jobs that want them. Pure.

What waits for one cell never waits for another, so each cell is rolled forward, and ordered, by itself. Within a cell
pools may overlap: jobs with the same pools form a group, and the engine's own rule of who may use which node keeps
each group to its machines. A machine on which more runs than it has counts as full.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec
import numpy

from models.planning.beginning import Beginning, beginning_of
from models.planning.cell_windows import Held, lasting, windows_beside
from models.planning.ledger import CONTINUOUS, Clock, Dues, Elsewhere, Ledger, Limits, elsewhere_of, of_limits
from models.planning.problem import Coming, Holding, Pending, Problem, Yields
from models.scheduling.availability import Window
from models.scheduling.placement import part_of
from models.scheduling.room import Amounts, Floats, Ints, Mask, amounts_of, exceeds

# Nothing that runs ends now: its end is an event to come.
SHORTEST_S = 1e-6


class Need(msgspec.Struct, frozen=True, gc=False):
    """What a task of a record needs on each of its nodes, how many tasks there are, their group and limit (seconds).

    `share` is the largest share of any resource of all the cell's machines that a task takes. The task may preempt
    what yields to its `tier`, and `yields` itself once it runs. Each task counts for limits by its `dues`.
    """

    demand: Amounts
    nodes: int
    tasks: int
    group: int
    limit_s: float
    share: float = 0.0
    tier: int = 1
    yields: Yields | None = None
    dues: Dues = ()


class Lined(NamedTuple):
    """What waits and may start, in columns: number, tasks, a task's share of the cell, and whether limits bind it."""

    numbers: Ints
    tasks: Floats
    share: Floats
    limited: Mask


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """Machines, windows, what runs, and which records wait, in Slurm's own order.

    `capacity` is resources × machines, `free` the part of it on which nothing runs. `only_for` has the groups that
    may use each machine; empty: every group may use all. `groups` maps pools to their group. `stuck` are the records
    that no machine here can ever hold, or that cannot start now; `active` are the others, and `queue` has these in
    columns. `in_line` are the active records and those stuck ones that keep their place and are not `out`: what we
    know of machines is not certain, and Slurm may start them. `preempts` says that some job that waits, or comes, may
    preempt another. `limits` are those that bind any waiting job, here or in other cells; jobs here count for
    `counts_for`, and what runs `elsewhere` counts, too. `bounds` and `clock` are as in Problem.
    """

    capacity: Ints
    free: Ints
    only_for: tuple[frozenset[int] | None, ...]
    windows: tuple[Window, ...]
    running: tuple[Held, ...]
    members: tuple[int, ...]
    active: tuple[int, ...]
    in_line: tuple[int, ...]
    stuck: frozenset[int]
    groups: dict[frozenset[int], int]
    needs: dict[int, Need]
    queue: Lined
    beginning: Beginning
    preempts: bool = False
    bounds: int = 0
    limits: Limits = {}
    counts_for: frozenset[str] = frozenset()
    elsewhere: tuple[Elsewhere, ...] = ()
    clock: Clock = CONTINUOUS

    @property
    def total(self) -> Amounts:
        """What all machines have together; 0 for bounds."""
        return total_of(self.capacity, self.bounds)


def slurm_order(pending: Sequence[Pending]) -> list[int]:
    """Return the records in the order in which Slurm would consider them without our factors."""
    return sorted(
        range(len(pending)), key=lambda at: (-pending[at].tier, -pending[at].priority, pending[at].job_id)
    )


def cells_of(problem: Problem) -> list[Cell]:
    """Return the cells; a record whose pools have no machine is in none of them."""
    home = _components(problem)
    machines: dict[int, list[int]] = {}
    for number, machine in enumerate(problem.machines):
        if machine.pools:
            machines.setdefault(home[min(machine.pools)], []).append(number)
    members: dict[int, list[int]] = {}
    for number in slurm_order(problem.pending):
        pools = problem.pending[number].pools
        if pools and home[min(pools)] in machines:
            members.setdefault(home[min(pools)], []).append(number)
    coming: dict[int, list[Coming]] = {}
    for one in (one for sample in problem.coming for one in sample if one.pools):
        coming.setdefault(home[min(one.pools)], []).append(one)
    limits = _limits(problem)
    elsewhere = _elsewhere(problem, {at for root in members for at in machines[root]}, limits)
    return [
        _cell(problem, machines[root], members[root], coming.get(root, []), limits, elsewhere)
        for root in sorted(machines)
        if root in members
    ]


def _limits(problem: Problem) -> dict[str, int]:
    """Return the limits that bind any job that waits, or comes."""
    waiting = (one.dues for one in problem.pending)
    coming = (one.dues for sample in problem.coming for one in sample)
    names = {due.limit for dues in chain(waiting, coming) for due in dues if due.binds}
    return {name: most for name, most in problem.limits.items() if name in names}


def _elsewhere(problem: Problem, machines: Container[int], limits: Limits) -> tuple[Elsewhere, ...]:
    """Return what counts for limits but runs on no machine for which any job waits."""
    if not limits:
        return ()
    others = [
        Elsewhere(dues=one.dues, left_s=max(SHORTEST_S, one.likely_left_s), ran_s=one.ran_s)
        for one in problem.running
        if one.dues and not any(machine in machines for machine, _ in one.parts)
    ]
    return elsewhere_of(limits, [*problem.elsewhere, *others])


def total_of(capacity: Ints, bounds: int) -> Amounts:
    """Return what machines (resources × machines) have in all; 0 for the last `bounds` rows."""
    resources = amounts_of(capacity[: len(capacity) - bounds].sum(axis=1))
    return (*resources, *([0] * bounds))


def ledger_of(cells: Sequence[Cell]) -> Ledger:
    """Return how much is in use now of the limits of cells that share some, or of all cells."""
    running = ((held.dues, held.ran_s) for cell in cells for held in cell.running)
    elsewhere = ((one.dues, one.ran_s) for one in cells[0].elsewhere)
    return Ledger(cells[0].limits, chain(running, elsewhere), cells[0].clock)


def at_limits(cells: Sequence[Cell], records: int) -> Mask:
    """Return which of the records could not start now, however much is free."""
    found: Mask = numpy.zeros(records, dtype=numpy.bool_)
    ledger = ledger_of(cells)
    for cell in (cell for cell in cells if cell.counts_for):
        found[[at for at in cell.active if ledger.barring(cell.needs[at].dues)]] = True
    return found


def home_of(cells: Sequence[Cell], pools: frozenset[int]) -> tuple[int, int] | None:
    """Return the cell and the group of some pools; None: they have no machine, or nothing waits for one."""
    for number, cell in enumerate(cells):
        if pools in cell.groups:
            return number, cell.groups[pools]
    return None


def _components(problem: Problem) -> dict[int, int]:
    """Return, for each pool, the representative of all pools that are linked to it by machines or by jobs."""
    parent: dict[int, int] = {}

    def root(pool: int) -> int:
        parent.setdefault(pool, pool)
        while parent[pool] != pool:
            parent[pool] = parent[parent[pool]]
            pool = parent[pool]
        return pool

    kinds = {machine.pools for machine in problem.machines} | {job.pools for job in problem.pending}
    kinds |= {one.pools for sample in problem.coming for one in sample}
    for pools in kinds:
        for pool in pools:
            first, other = root(min(pools)), root(pool)
            parent[max(first, other)] = min(first, other)
    return {pool: root(pool) for pool in parent}


def _cell(
    problem: Problem,
    machines: list[int],
    members: list[int],
    coming: list[Coming],
    limits: Limits,
    elsewhere: tuple[Elsewhere, ...],
) -> Cell:
    place = {machine: column for column, machine in enumerate(machines)}
    capacity = numpy.array(
        [problem.machines[number].amounts for number in machines], dtype=numpy.int64
    ).T.copy()
    may_start: list[Pending | Coming] = [*(problem.pending[number] for number in members), *coming]
    running = _running(problem.running, place, capacity, limits)
    windows, running = windows_beside(problem.windows, place, capacity, running)
    groups = _groups({one.pools for one in may_start})
    pools = [problem.machines[number].pools for number in machines]
    only_for = tuple(frozenset(group for each, group in groups.items() if each & own) for own in pools)
    everybody = frozenset(groups.values())
    if all(each == everybody for each in only_for):
        only_for = ()
    total = total_of(capacity, problem.bounds)
    never_fit = _misfits(problem.pending, members, lasting(capacity, windows), pools)
    ledger = Ledger(limits)
    stuck = never_fit | frozenset(
        number
        for number in members
        if problem.pending[number].out or ledger.never(problem.pending[number].dues)
    )
    active = tuple(number for number in members if number not in stuck)
    in_line = tuple(
        number
        for number in members
        if number not in stuck or (problem.pending[number].kept and not problem.pending[number].out)
    )
    needs = {number: _need(problem.pending[number], groups, total, limits) for number in members}
    return Cell(
        capacity=capacity,
        free=_free(capacity, running),
        only_for=only_for,
        windows=windows,
        running=tuple(running),
        members=tuple(members),
        active=active,
        in_line=in_line,
        stuck=stuck,
        groups=groups,
        needs=needs,
        queue=Lined(
            numpy.array(active, dtype=numpy.int64),
            numpy.array([float(needs[number].tasks) for number in active]),
            numpy.array([needs[number].share for number in active]),
            numpy.array(
                [any(due.binds for due in needs[number].dues) for number in active], dtype=numpy.bool_
            ),
        ),
        beginning=beginning_of(capacity, running, windows, only_for),
        preempts=_may_preempt(problem, members, running),
        bounds=problem.bounds,
        limits=limits,
        counts_for=frozenset(
            due.limit for one in (*may_start, *running) for due in one.dues if due.limit in limits
        ),
        elsewhere=elsewhere,
        clock=problem.clock,
    )


def _may_preempt(problem: Problem, members: Sequence[int], running: Sequence[Held]) -> bool:
    """Whether anything that waits or comes is of a tier to which something yields."""
    pending = [problem.pending[number] for number in members]
    yields = [*(one.yields for one in running), *(one.yields for one in pending)]
    above = {one.above for one in yields if one}
    tiers = {one.tier for one in pending} | {one.tier for sample in problem.coming for one in sample}
    return bool(above) and max(tiers, default=0) > min(above)


def _free(capacity: Ints, running: Sequence[Held]) -> Ints:
    """Return what is not held by running jobs."""
    free = capacity.copy()
    parts = [part for held in running for part in held.parts]
    if parts:
        machines = numpy.array([machine for machine, _ in parts])
        held_by = numpy.array([amounts for _, amounts in parts], dtype=numpy.int64).T
        for row, amounts in zip(free, held_by, strict=True):
            numpy.subtract.at(row, machines, amounts)
    return free


def _need(job: Pending, groups: dict[frozenset[int], int], total: Amounts, limits: Limits) -> Need:
    share = 0.0
    for amount, whole in zip(job.demand, total, strict=True):
        if whole and amount / whole > share:
            share = amount / whole
    demand = part_of(job.demand, job.nodes)
    group = groups[job.pools]
    dues = of_limits(job.dues, limits)
    return Need(demand, job.nodes, job.tasks, group, job.limit_s, share, job.tier, job.yields, dues)


def _groups(pools: Iterable[frozenset[int]]) -> dict[frozenset[int], int]:
    return {each: group for group, each in enumerate(sorted(pools, key=sorted))}


def _running(
    holdings: Sequence[Holding], place: dict[int, int], capacity: Ints, limits: Limits
) -> list[Held]:
    """Return what runs here, cut so that no machine holds more than it has."""
    left: list[list[int]] = capacity.T.tolist()
    found = []
    for holding in holdings:
        parts = []
        for machine, amounts in holding.parts:
            if machine not in place:
                continue
            free = left[place[machine]]
            taken = amounts
            if exceeds(amounts, free):
                taken = tuple(map(min, amounts, free))
            for row, amount in enumerate(taken):
                free[row] -= amount
            parts.append((place[machine], taken))
        if parts:
            limit_s = max(1.0, holding.limit_left_s)
            likely_s = min(max(SHORTEST_S, holding.likely_left_s), limit_s)
            found.append(
                Held(
                    parts=tuple(parts),
                    limit_left_s=limit_s,
                    likely_left_s=likely_s,
                    user=holding.user,
                    ran_s=holding.ran_s,
                    yields=holding.yields,
                    dues=of_limits(holding.dues, limits),
                )
            )
    return found


def _misfits(
    pending: Sequence[Pending], members: Sequence[int], capacity: Ints, pools: Sequence[frozenset[int]]
) -> frozenset[int]:
    """Return the records that the machines of their pools can never hold."""
    known: dict[tuple[frozenset[int], Amounts, int], bool] = {}
    found = set()
    for number in members:
        job = pending[number]
        kind = (job.pools, part_of(job.demand, job.nodes), job.nodes)
        if kind not in known:
            own = numpy.array([bool(job.pools & each) for each in pools])
            fit = (capacity >= numpy.array(kind[1])[:, None]).all(axis=0) & own
            known[kind] = int(fit.sum()) >= job.nodes
        if not known[kind]:
            found.add(number)
    return frozenset(found)
