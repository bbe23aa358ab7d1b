"""Limits on what jobs may have together, by QOS, account, array and licence, and what each job counts for. Pure.

Follows `acct_policy.c` (22.05 to 26.05): what the QOS of the partition limits, the job's QOS does not, and what
either limits, an account does not; with OverPartQOS the job's own QOS comes first. What an account lets its jobs have
at a time is multiplied for jobs of a QOS with LimitFactor. A job that is not bound by a limit still counts for it.
Jobs, CPUs, memory, GPUs and billing are counted, and the nodes of jobs that have them to themselves: Slurm counts a
node that jobs share once.

The time that jobs may still use is counted too (GrpTRESRunMins, MaxTRESRunMinsPU and PA): it falls from a job's limit
to nothing as the job runs, and here each node counts for each job. Of a budget of time (GrpTRESMins, GrpWall), what
is left counts; if Slurm is `safe`, running jobs count with as much as their limits let them use. That a budget grows
again (PriorityDecayHalfLife, PriorityUsageResetPeriod) is not modelled.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from models.planning.ledger import CONTINUOUS, Clock, Due, Dues, Elsewhere
from models.planning.problem import Holding
from models.scheduling.room import MILLI, Amounts
from slurm_plugin.advisor.licences import licences_of
from slurm_plugin.advisor.room import Numbers, amounts_of_job
from slurm_plugin.advisor.run_time import RunTime, likely_left_s, limit_of, most_left_s
from slurm_plugin.advisor.waiting import Variant
from slurm_plugin.advisor.whole_cores import WholeCores
from slurm_plugin.slurm.snapshot import (
    MINUTES,
    MULTIFACTOR,
    RUN_MINUTES,
    WALL,
    AssociationState,
    QosState,
    QueuedJob,
    SchedulerTerms,
    Snapshot,
    is_budget,
    is_of_time,
)

JOBS, NODES = "jobs", "node"
# slurmctld first counts this long after the start that it reports: it reads its saved state first.
BOOTS_S = 1.0
MINUTE_S = 60
_ALL, _USER, _ACCOUNT = "all", "user", "account"


class _Rule(NamedTuple):
    """A limit: whose jobs it sums up, the kind of amount, its name, how much; `binds`: no other takes precedence."""

    whom: str
    kind: str
    name: str
    most: int
    binds: bool = True


class Whose(NamedTuple):
    """What decides which limits apply to a job; `partitions` are those where it may start, or runs."""

    qos: str
    user: str
    account: str
    partitions: tuple[str, ...]


class SharedLimits:
    """The limits of one snapshot; `most` has those for which any job was found to count, by name."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.most: dict[str, int] = {}
        holds = snapshot.terms.limits_hold
        self._qos = snapshot.qos if holds else {}
        self._partition_qos = {one.name: one.qos for one in snapshot.partitions if one.qos}
        associations = snapshot.associations if holds else ()
        self._associations = {(one.account, one.user, one.partition): one for one in associations}
        self._at_once = {job.array_job_id: most for job in snapshot.jobs if (most := at_once_of(job))}
        self._licences = snapshot.licences
        self._factors = {1.0} | {
            one.account_factor for one in self._qos.values() if one.account_factor is not None
        }
        # With another PriorityType it counts in full until the end.
        self._falls = snapshot.terms.priority_type == MULTIFACTOR
        self._safe, self._left = snapshot.terms.safe, snapshot.left if holds else {}
        self._for_each = snapshot.terms.counts_for_each
        self._time_s = snapshot.time_s
        # Of many jobs, few differ in these.
        self._rules: dict[Whose, tuple[_Rule, ...]] = {}

    def dues(self, job: QueuedJob, partitions: Sequence[str], taken: Amounts, limit_s: float) -> Dues:
        """Return what a job, or an array's task, counts for while it runs, given what it takes in all and its limit.

        `partitions` are those where it may start, or runs. A job that is `ending` no longer counts.
        """
        if job.ending:
            return ()
        found = self._counted(Whose(job.qos, job.user, job.account, tuple(partitions)), taken, limit_s, job)
        if job.array_job_id in self._at_once:
            array = f"array {job.array_job_id}"
            found.append((_Rule(_ALL, JOBS, array, self._at_once[job.array_job_id]), Due(array, 1)))
        asked = licences_of(job) if job.other and self._licences else {}
        for name in asked.keys() & self._licences.keys():
            licence = f"licence {name}"
            found.append((_Rule(_ALL, name, licence, self._licences[name]), Due(licence, asked[name])))
        for rule, _ in found:
            self.most[rule.name] = rule.most
        return tuple(due for _, due in found)

    def dues_to_come(self, whose: Whose, taken: Amounts, limit_s: float) -> Dues:
        """Return what a possible future job on one node counts for."""
        return tuple(due for _, due in self._counted(whose, taken, limit_s))

    def _counted(
        self, whose: Whose, taken: Amounts, limit_s: float, job: QueuedJob | None = None
    ) -> list[tuple[_Rule, Due]]:
        """Return the limits that apply to such a job, each with what the job counts for."""
        if whose not in self._rules:
            self._rules[whose] = tuple(self._rules_of(whose))
        rules = self._rules[whose]
        counts = _counts(taken, job) if rules else {}
        found = []
        for rule in rules:
            count = counts.get(_tres_of(rule.kind), 0)
            if rule.kind == NODES:
                count *= job is not None and job.exclusive
            due = self._due(rule, count, whose, limit_s, job) if count else None
            if due is not None and due.needs:
                found.append((rule, due))
        return found

    def _due(self, rule: _Rule, count: int, whose: Whose, limit_s: float, job: QueuedJob | None) -> Due:
        if not is_of_time(rule.kind):
            return Due(rule.name, count, rule.binds)
        if job is not None and not job.waits and job.ran_s(self._time_s) >= limit_s:
            # Beyond its limit it counts for nothing.
            return Due(rule.name, 0)
        qos = self._qos.get(whose.qos, QosState())
        factor = qos.usage_factor
        full = count * int(limit_s)
        amount = round(full * factor)
        needs = amount if qos.usage_factor_asked else full
        due = Due(rule.name, amount, rule.binds, asks=needs if needs != amount else 0)
        if not factor:
            # It is checked as if nothing were used.
            return due._replace(asks=0)
        if rule.kind.endswith(RUN_MINUTES):
            return due._replace(falls=count * factor) if self._falls else due
        if not self._safe:
            # It is enough that anything is left, and a running job counts only when it has run.
            return Due(rule.name, 0, rule.binds, asks=MINUTE_S)
        if rule.kind == WALL:
            return Due(rule.name, 0, rule.binds, asks=needs)
        return due._replace(spends=count * factor)

    def _rules_of(self, whose: Whose) -> Iterator[_Rule]:
        bound: set[tuple[str, str]] = set()
        for name in self._both_qos(whose):
            rules = [
                rule
                for rule in _rules_of_qos(name, self._qos[name], whose)
                if rule.whom == _ALL or self._for_each or not rule.kind.endswith(RUN_MINUTES)
            ]
            rules += self._budget(f"qos {name}")
            yield from _after(rules, bound)
            bound |= {(rule.whom, rule.kind) for rule in rules}
        yield from _after(self._rules_of_account(whose, bound), bound)

    def _both_qos(self, whose: Whose) -> list[str]:
        """Return the QOS whose limits apply to a job, the one that takes precedence first."""
        of_partitions = {self._partition_qos.get(name, "") for name in whose.partitions}
        found = [of_partitions.pop() if len(of_partitions) == 1 else "", whose.qos]
        if whose.qos in self._qos and self._qos[whose.qos].over_partition:
            found.reverse()
        return [name for name in dict.fromkeys(found) if name in self._qos]

    def _rules_of_account(self, whose: Whose, bound: set[tuple[str, str]]) -> Iterator[_Rule]:
        own = ((whose.account, whose.user, name) for name in (*whose.partitions, ""))
        first = next((key for key in own if key in self._associations), (whose.account, "", ""))
        told = (self._qos[name].account_factor for name in self._both_qos(whose))
        own_factor = next((factor for factor in told if factor is not None), 1.0)
        for one in self._upwards(first):
            for kind, most in one.together.items():
                rule = _Rule(_ALL, kind, f"{one.name}: {kind}", _most(kind, most))
                if kind == JOBS or is_of_time(kind):
                    yield rule
                else:
                    yield from self._multiplied(rule, own_factor)
            yield from self._budget(one.name)
            # Slurm passes MaxJobs down to the users' own associations, where it counts.
            if one.user and one.most_jobs is not None:
                whom = _ACCOUNT if (_ACCOUNT, JOBS) in bound else _USER
                yield _Rule(whom, JOBS, f"{one.name}: its user's jobs", one.most_jobs)

    def _multiplied(self, rule: _Rule, own_factor: float) -> Iterator[_Rule]:
        """Yield an account's limit with each LimitFactor that there is: a job counts for all, and is bound by one."""
        for factor in sorted(self._factors):
            name = rule.name if factor == 1 else f"{rule.name} times {factor:g}"
            yield rule._replace(name=name, most=int(rule.most * factor), binds=factor == own_factor)

    def _budget(self, whose: str) -> Iterator[_Rule]:
        for kind, left in self._left.get(whose, {}).items():
            yield _Rule(_ALL, kind, f"{whose}: {kind}", _most(kind, left))

    def _upwards(self, key: tuple[str, str, str]) -> Iterator[AssociationState]:
        """Yield an association and the accounts above it."""
        seen = set[tuple[str, str, str]]()
        while key in self._associations and key not in seen:
            seen.add(key)
            one = self._associations[key]
            yield one
            key = (one.account if one.user else one.parent, "", "")


def counted(
    snapshot: Snapshot,
    running: Sequence[Holding],
    numbers: Numbers,
    cores: WholeCores,
    limits: SharedLimits,
    run_time: Callable[[QueuedJob], RunTime],
) -> tuple[tuple[Holding, ...], tuple[Elsewhere, ...]]:
    """Return running jobs with what they count for in limits, including those on nodes that are not planned."""
    jobs = [job for job in snapshot.jobs if not job.waits]
    dues = {
        job.job_id: found
        for job in jobs
        if (
            found := limits.dues(
                job, job.partitions, amounts_of_job(job, job.partitions, cores, numbers), limit_of(job)
            )
        )
    }
    if not dues:
        return tuple(running), ()
    planned = {held.job_id for held in running}
    elsewhere = (job for job in jobs if job.job_id in dues and job.job_id not in planned)
    return (
        tuple(msgspec.structs.replace(held, dues=dues.get(held.job_id, ())) for held in running),
        tuple(
            Elsewhere(
                dues=dues[job.job_id],
                left_s=likely_left_s(
                    run_time(job), job.ran_s(snapshot.time_s), most_left_s(job, snapshot.time_s)
                ),
                ran_s=job.ran_s(snapshot.time_s),
            )
            for job in elsewhere
        ),
    )


def clock_of(terms: SchedulerTerms, now_s: float) -> Clock:
    """Return when slurmctld recounts what jobs may still use, relative to a moment (unix seconds)."""
    if not (terms.counts_from_s and terms.counts_each_s):
        return CONTINUOUS
    return Clock(at_s=terms.counts_from_s + BOOTS_S - now_s, every_s=terms.counts_each_s)


def counted_anew(job: QueuedJob, found: Sequence[Variant], snapshot: Snapshot) -> list[Variant]:
    """Return the variants of a job, each with what it would count for: one that asks for less counts for less."""
    limits, replace = SharedLimits(snapshot), msgspec.structs.replace
    return [
        replace(
            one,
            job=replace(one.job, dues=limits.dues(job, job.partitions, one.job.demand, one.job.limit_s)),
        )
        for one in found
    ]


def at_once_of(job: QueuedJob) -> int:
    """Return how many tasks of a waiting array may run at a time (`%5`); 0: all."""
    at_once = job.array_tasks.partition("%")[2]
    return int(at_once) if at_once.isdecimal() else 0


def _rules_of_qos(name: str, qos: QosState, whose: Whose) -> Iterator[_Rule]:
    for whom, who, limits in (
        (_ALL, "", qos.together),
        (_USER, f" user {whose.user}", qos.of_user),
        (_ACCOUNT, f" account {whose.account}", qos.of_account),
    ):
        yield from (
            _Rule(whom, kind, f"qos {name}{who}: {kind}", _most(kind, most)) for kind, most in limits.items()
        )


def _after(rules: Iterable[_Rule], bound: Collection[tuple[str, str]]) -> Iterator[_Rule]:
    yield from (rule._replace(binds=rule.binds and (rule.whom, rule.kind) not in bound) for rule in rules)


def _counts(taken: Amounts, job: QueuedJob | None) -> dict[str, int]:
    cpu_milli, mem_mib, gpu_milli = taken[:3]
    counts = {JOBS: 1, WALL: 1, "cpu": -(-cpu_milli // MILLI), "mem": mem_mib, "gres/gpu": gpu_milli // MILLI}
    if job is not None:
        counts |= {NODES: job.num_nodes, "billing": job.billing}
        counts |= {f"gres/gpu:{name}": count for name, count in job.gpu_types}
    return counts


def _most(kind: str, most: int) -> int:
    """Return a limit as it is counted: minutes in seconds, and those below a whole minute that Slurm ignores."""
    return (most + 1) * MINUTE_S - 1 if is_of_time(kind) else most


def has_budget(dues: Dues) -> bool:
    """Whether a job counts for a budget of time."""
    return any(due.binds and is_budget(due.limit) for due in dues)


def _tres_of(kind: str) -> str:
    return kind.removesuffix(RUN_MINUTES).removesuffix(MINUTES)
