"""Lets waiting jobs onto idle nodes of others if they will likely be done before the owner is back.

This is done once per cycle of the advisor, for partitions that the site names. A job that is let in lists the lent
partition after its own, and starts where it can first; Slurm ends it for an owner, and requeues it. lent.py decides
which jobs qualify. A job that no longer qualifies, and has not started, is taken out again; a job that was
interrupted is not let in a second time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from accounting.errors import SlurmError
from models.planning.problem import Plan, Problem
from models.scheduling.idleness import Owners
from slurm_plugin.advisor.lent import (
    Lent,
    Waits,
    is_worth_it,
    may_be_let_in,
    nodes_of_owners,
    rooms_of,
    waiting_of,
    why_not_lent,
)
from slurm_plugin.config.settings import Config, LentPartition
from slurm_plugin.log_lines import SaidOnce
from slurm_plugin.slurm.listed_by_us import taken_out
from slurm_plugin.slurm.owners_past import Span, had_nodes, spells_of
from slurm_plugin.slurm.queue import Relist, Written
from slurm_plugin.slurm.snapshot import NodeState, Snapshot

log = logging.getLogger(__name__)

NO_MORE = "it would probably not finish there before the owner is back"

# What slurmctld has refused, it will mostly refuse again.
REFUSED_S = 600.0
# What is longer ago says little about the owners' present habits.
DAYS, DAY_S = 28, 86_400.0

# From when to when owners' jobs had each node, between two moments.
Past = Callable[[Collection[str], float, float], Mapping[str, Sequence[Span]]]


class Relister(Protocol):
    """What changes jobs: the gateway, of which only this is needed here."""

    def listed_by_us(self) -> dict[int, str]:
        """Return the partition that each waiting job lists only because of us."""

    def relist(self, change: Relist) -> Written:
        """Change which partitions a pending record lists."""


class Lending:
    """Lets jobs into lent partitions, cycle by cycle, and learns when owners come and go."""

    def __init__(self, config: Config, past: Past = had_nodes) -> None:
        """Know no owner yet: accounting is asked at the first cycle."""
        self._settings, self._past = config.advisor, past
        self._terms: dict[str, LentPartition] = {one.name: one for one in config.lent_partitions}
        self._names = frozenset(self._terms)
        self._owners = Owners[str]()
        self._has_owner: dict[str, bool] = {}
        self._unlent = {name: SaidOnce() for name in self._names}
        # Until when (unix seconds) jobs that were refused are left alone.
        self._refused: dict[int, float] = {}

    def run(self, snapshot: Snapshot, problem: Problem, plan: Plan, gateway: Relister) -> list[Written]:
        """Let jobs in and take them out; raises SlurmError if slurmctld does not answer."""
        self._refused = {job: until_s for job, until_s in self._refused.items() if until_s > snapshot.time_s}
        written = []
        for change in self.changes(snapshot, problem, plan, gateway.listed_by_us()):
            one = gateway.relist(change)
            written.append(one)
            if one.problem:
                self._refused[change.job_id] = snapshot.time_s + REFUSED_S
        return written

    def see(self, snapshot: Snapshot) -> None:
        """Learn which lent nodes owners use now; for new nodes, ask accounting about the past."""
        lent = [node for node in snapshot.nodes if self._names & set(node.partitions)]
        if new := [node for node in lent if node.name not in self._has_owner]:
            self._learn(new, snapshot.time_s)
        had = nodes_of_owners(snapshot, self._names)
        for node in lent:
            has = node.name in had
            if has != self._has_owner[node.name]:
                (self._owners.comes if has else self._owners.goes)(node.name, snapshot.time_s)
            self._has_owner[node.name] = has

    def _learn(self, nodes: Sequence[NodeState], now_s: float) -> None:
        """Learn how long nodes were unused in the past, and since when; nothing if accounting does not answer."""
        owners = {name for node in nodes for name in node.partitions} - self._names
        since_s = now_s - DAYS * DAY_S
        try:
            had = self._past(owners, since_s, now_s)
        except SlurmError as error:
            log.warning("how long owners leave their nodes alone is learned from now on: %s", error)
            had, since_s = {}, now_s
        spells = spells_of(had)
        for node in nodes:
            self._owners.learned(node.name, spells.get(node.name, ()))
            spans = had.get(node.name, ())
            self._owners.goes(node.name, min(now_s, spans[-1][1]) if spans else since_s)
            self._has_owner[node.name] = False

    def changes(
        self, snapshot: Snapshot, problem: Problem, plan: Plan, ours: Mapping[int, str]
    ) -> list[Relist]:
        """Return what jobs are to list, in the order of Slurm's queue."""
        lent = self._lent(snapshot, problem)
        found: list[Relist | None] = []
        for one in waiting_of(snapshot, problem, plan):
            if added := ours.get(one.job.job_id):
                found.append(self._taken_out(one, added, lent.get(added), snapshot))
            elif target := lent.get(self._target(one.job.partitions)):
                found.append(self._let_in(one, target, snapshot))
        return [change for change in found if change is not None][: self._settings.most_changes]

    def _taken_out(self, one: Waits, added: str, target: Lent | None, snapshot: Snapshot) -> Relist | None:
        """Return the change that takes out a job that was let in; None: it stays."""
        demand = one.pending.demand
        # Whether it is worth it is not asked: its planned start is that of a job that was let in.
        if (
            target is not None
            and may_be_let_in(one, target.partition, snapshot)
            and target.risk_later(demand, one.needs_s) <= self._terms[added].risk
        ):
            target.take(demand, one.job.tasks)
            return None
        return taken_out([one.job], {one.job.job_id: added}, NO_MORE)[0]

    def _let_in(self, one: Waits, target: Lent, snapshot: Snapshot) -> Relist | None:
        """Return the change that lets a job in; None: it is not let in."""
        demand, job, name = one.pending.demand, one.job, target.partition.name
        if job.job_id in self._refused or not may_be_let_in(one, target.partition, snapshot):
            return None
        risk = target.risk(demand, one.needs_s)
        most, soon_s = self._terms[name].risk, self._settings.period_s
        if risk > most or not is_worth_it(one, risk, soon_s, snapshot.terms.again_s):
            return None
        target.take(demand, job.tasks)
        return Relist(
            job_id=job.job_id,
            uid=job.uid,
            before=job.partitions,
            after=(*job.partitions, name),
            reason=f"the owner is back within {one.needs_s:.0f} s in {100 * risk:.0f} % of cases",
            added=name,
        )

    def _target(self, names: Sequence[str]) -> str:
        """Return the partition into which a job that lists these may be let; '': none."""
        terms = (one for one in self._terms.values() if set(names) & set(one.jobs_of))
        return next((one.name for one in terms if one.name not in names), "")

    def _lent(self, snapshot: Snapshot, problem: Problem) -> dict[str, Lent]:
        """Return the lent partitions that are properly set up, with what is free there now."""
        partitions = {one.name: one for one in snapshot.partitions}
        whole, free = rooms_of(snapshot, problem)
        found = {}
        for name in sorted(self._names):
            if why := why_not_lent(name, snapshot):
                if self._unlent[name].is_new(why):
                    log.warning("nobody is let into the partition %s: %s", name, why)
                continue
            self._unlent[name].over()
            mine = [node.name for node in snapshot.nodes if name in node.partitions and node.name in free]
            idle = [node for node in mine if not self._has_owner[node]]
            found[name] = Lent(
                partitions[name],
                {node: whole[node] for node in idle},
                {node: free[node] for node in idle},
                lambda node, more_s: self._owners.back_within(node, snapshot.time_s, more_s),
            )
        return found
