"""For a waiting job: Slurm's reason in words, and what it might ask for instead. Pure; it changes nothing.

Statements about a start rest on a simulation (models/planning/rollout.py). It knows nodes, priorities and time
limits, what jobs may have at a time and what is left of budgets of time, but not when these grow again, and nothing
of what others are about to submit.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import msgspec

from accounting.decisions.token import asked_request, find_token, granted_by
from accounting.request import Grant, JobRequest, granted
from accounting.units import counted, format_mib, round_up
from models.planning.problem import Pending, Problem
from models.scheduling.room import MILLI
from slurm_plugin.advisor.standing import KINDS, cpus_stay_of, stands_at
from slurm_plugin.service.decide import BRAKED
from slurm_plugin.slurm.queue import Resize
from slurm_plugin.slurm.reasons import reason_of
from slurm_plugin.slurm.resizing import resource_words
from slurm_plugin.slurm.snapshot import QueuedJob, is_budget, is_of_time
from slurm_plugin.slurm.targets import target_of

# Time limits are proposed in these steps.
TIME_STEP_S = 300.0
# How Slurm's reasons begin for a job that asks for less than the minimum of its QOS.
_BELOW_MINIMUM = "QOSMin"


class Needed(msgspec.Struct, frozen=True, kw_only=True):
    """What similar jobs have needed: totals of CPUs and MiB as the site would grant, seconds; None: not known."""

    cpus: int | None = None
    mem_mib: int | None = None
    wall_s: float | None = None


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """The same job, asking for something else; `what` says what."""

    what: str
    job: Pending


def why_it_waits(job: QueuedJob, ahead: int) -> str:
    """Return Slurm's reason for a job in words; `ahead` jobs of its partitions come before it."""
    reason = reason_of(job.reason)
    words = reason.said
    if reason.of_partition and len(job.partitions) > 1:
        words += "; this applies to one of its partitions, and it also waits in the others"
    first = "1 other job comes first" if ahead == 1 else f"{ahead:,} other jobs come first"
    if ahead and job.reason == "Priority":
        words = first
    if ahead and job.reason == "None":
        words += f"; {first}"
    return f"{words} ({job.reason})"


def limit_in_words(job: Pending, problem: Problem) -> str:
    """Return in words which shared limit a job would exceed now, and how far it is used; '' if none."""
    ledger = problem.ledger
    due = ledger.barring(job.dues)
    if due is None:
        return ""
    limit = due.limit
    amounts = ledger.in_use(limit), max(0, problem.limits[limit]), due.needs
    used, most, needs = (_amount_in_words(limit, amount) for amount in amounts)
    if is_budget(limit):
        by_runs = f", and running jobs may use {used} of them" if used != "0" else ""
        return f"it has reached a limit, {limit}: {most} minutes are left{by_runs}, and it would need {needs}"
    return f"it has reached a limit, {limit}: {used} of {most} are in use, and it would need {needs}"


def _amount_in_words(limit: str, amount: float) -> str:
    return f"{int(amount // 60 if is_of_time(limit) else amount):,}"


def why_whole(job: QueuedJob) -> str:
    """Return in words that a job has what it asked for because cutting jobs like it is stopped; '' if not so."""
    token = find_token(job.admin_comment)
    if token is None or token.reason != BRAKED:
        return ""
    has = "what it asked for, but fewer GPUs" if token.granted else "what it asked for"
    return f"it has {has}, because cutting jobs like it is stopped; `rightsizer doctor` says why"


def is_cut(job: QueuedJob) -> bool:
    """Whether a job that waits was granted less than it asked for, and did not get that back since."""
    token = find_token(job.admin_comment)
    return job.waits and token is not None and bool(token.granted) and token.recovered_at is None


def _cut_of(job: QueuedJob) -> tuple[JobRequest, Grant] | None:
    """Return what a cut job that waits asked for, and what it was granted; None if it is none."""
    token = find_token(job.admin_comment)
    asked = asked_request(token, job.user) if token else None
    return None if token is None or asked is None or not is_cut(job) else (asked, granted_by(token))


def asks_now(job: QueuedJob) -> str:
    """Return in words what a cut job asks for, if that is no longer what it was granted; '' if it is."""
    cut = _cut_of(job)
    if cut is None or stands_at(job, granted(*cut)):
        return ""
    cpus = max(job.min_cpus, job.num_tasks * job.cpus_per_task)
    words = [counted(cpus, "CPU")]
    for amount_mib, where in ((job.mem_per_node_mib, "per node"), (job.mem_per_cpu_mib, "per CPU")):
        words += [f"{format_mib(amount_mib)} {where}"] if amount_mib else []
    return f"now it asks for {', '.join(words)}"


def way_back(job: QueuedJob, *, cpus_stay: bool) -> str:
    """Return in words how the user of a cut job gives it back what it asked for; '' if that is not to be said.

    Users need the whole command: with `NumCPUs=8` alone, 24.11 starts eight tasks of an srun in the job, and with
    `CPUsPerTask=8` alone the job gets one CPU. `cpus_stay` says that no CPUs may be changed on this release.

    A cut respects the minimum of the QOS that the job has then. Its user may choose another one later, and an
    administrator may raise the minimum.
    """
    found = _cut_of(job)
    if found is None or not stands_at(job, granted(*found)):
        return ""
    asked, grant = found
    is_below = job.reason.startswith(_BELOW_MINIMUM)
    why = "it was cut before that minimum applied to it; " if is_below else ""
    cut = {kind: value for kind, value in msgspec.structs.asdict(grant).items() if value is not None}
    stay = cpus_stay or cpus_stay_of(job)
    if not (job.batch and cut.keys() <= {*KINDS}) or (stay and "cpus_per_task" in cut):
        return f"{why}submit it again with --comment=rightsize=off" if is_below else ""
    back = {kind: getattr(asked, kind) for kind in cut}
    change = Resize(job_id=job.job_id, uid=job.uid, num_tasks=job.num_tasks, reason=why, **back)
    words = " ".join(resource_words(job, change))
    return f"{why}`scontrol update JobId={target_of(job)} {words}` gives it what it asked for"


def ahead_of(job: QueuedJob, others: tuple[QueuedJob, ...], out: Collection[int] = ()) -> int:
    """Return how many startable records of its partitions come before it; of equal priorities, older ones do.

    `out` are the ids of those that cannot start now, whatever their priority.
    """
    mine, place = set(job.partitions), (-job.priority, job.job_id)
    return sum(
        other.waits
        and not (other.held or other.job_id in out)
        and (-other.priority, other.job_id) < place
        and bool(mine & set(other.partitions))
        for other in others
    )


def variants(job: Pending, needed: Needed, *, step: int = 1, whole_nodes: bool = False) -> list[Variant]:
    """Return the job as it is, and as it might be: with less of what exceeds the need of similar jobs.

    If the need is not known, half is tried, to show what it would bring; nothing says that half is enough. The job is
    given a multiple of `step` CPUs of each node. A job that gets `whole_nodes` has all of their CPUs and memory,
    however little it asks for.
    """
    cpu_milli, mem_mib, *gpus = job.demand
    fewer = smaller = None
    if not whole_nodes:
        fewer = _less(
            cpu_milli, None if needed.cpus is None else needed.cpus * MILLI, step * job.nodes * MILLI
        )
        smaller = _less(mem_mib, needed.mem_mib, 1)
    shorter_s = _shorter(job.limit_s, needed.wall_s)
    replace = msgspec.structs.replace
    found = [Variant(what="as it is", job=job)]
    if fewer is not None:
        what = _words("CPUs", fewer, MILLI, known=needed.cpus is not None)
        found.append(Variant(what=what, job=replace(job, demand=(fewer, mem_mib, *gpus))))
    if smaller is not None:
        what = _words("MiB of memory", smaller, 1, known=needed.mem_mib is not None)
        found.append(Variant(what=what, job=replace(job, demand=(cpu_milli, smaller, *gpus))))
    if shorter_s is not None:
        what = _words("minutes of time", round(shorter_s), 60, known=needed.wall_s is not None)
        found.append(Variant(what=what, job=replace(job, limit_s=shorter_s)))
    if len(found) > 2:
        demand = (fewer or cpu_milli, smaller or mem_mib, *gpus)
        found.append(
            Variant(what="all of these", job=replace(job, demand=demand, limit_s=shorter_s or job.limit_s))
        )
    return found


def _less(asked: int, need: int | None, unit: int) -> int | None:
    """Return what is needed of an amount (half, if not known), rounded to units; None if that is not less."""
    less = max(unit, asked // 2 // unit * unit) if need is None else round_up(need, unit)
    return less if 0 < less < asked else None


def _shorter(limit_s: float, need_s: float | None) -> float | None:
    if math.isinf(limit_s) and need_s is None:
        return None
    less_s = limit_s / 2 if need_s is None else need_s
    rounded_s = math.ceil(less_s / TIME_STEP_S) * TIME_STEP_S
    return rounded_s if rounded_s < limit_s else None


def _words(what: str, amount: int, unit: int, *, known: bool) -> str:
    return f"{amount // unit:,} {what}, {'as jobs like it needed' if known else 'half of what it asks for'}"
