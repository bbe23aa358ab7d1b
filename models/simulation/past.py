"""From attempts in accounting to a load that can be simulated again: what each asked for, used, and was held up by.

It decides what of the past can be replayed, and what must stay as it was because nothing more is known. Pure. A job
is an attempt: tasks of an array are jobs of their own, and an attempt after a requeue comes no sooner than the
previous one ended. Attempts that had not ended, or never started, are left out. What was not measured counts as used
in full, and stays as asked. Jobs that were submitted before the window and waited or ran when it began come at its
first moment, as asked, and are not counted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby

import msgspec
import numpy

from accounting.errors import ModelError
from accounting.records import Attempt
from models.judging.online import OnlineJob
from models.past.attempts import past_job, request_of
from models.scheduling.room import MILLI, Amounts, Floats, Ints
from models.simulation.workload import Flags, Workload

Kept = tuple[bool, bool, bool]
ALL_KEPT: Kept = (True, True, True)
NOT_ENDED = "had not ended"
NEVER_STARTED = "never started"
NOTHING_HELD = "held nothing that accounting records"
NOT_MEASURED = ("CPU use was not measured", "memory was not measured", "GPU use was not measured")
WHOLE_NODES = "held more CPUs than they asked for, as whole nodes,"
# The qualities of a memory figure that says how much a job needs; all others only show a lower bound.
MEASURED = ("exact", "sampled", "contaminated")
OUT_OF_MEMORY, COMPLETED, TIMEOUT = "out_of_memory", "completed", "timeout"

# Why the service leaves a job alone, whatever it asks for; '' if it does not.
LeftAlone = Callable[[Attempt], str]


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """A window of the past as a load. Rows are jobs; seconds count from the window's first moment, `since_s` (unix).

    `cases` are the jobs as the service's learning sees them, `before` those that had ended by then. `counted` are the
    jobs that came in the window; `keeps` (jobs × resources) is what stays as asked. `busiest` is what a job would
    keep busy if all its tasks were as busy as its busiest. `start_s`, `end_s`, `held` and `outcome` are what really
    became of it. `left_out` and `kept` have the number of jobs of the window, by reason.
    """

    since_s: int
    window_s: float
    jobs: Workload
    cases: tuple[OnlineJob, ...]
    before: tuple[OnlineJob, ...]
    counted: Flags
    keeps: Flags
    busiest: Ints
    nodes: Ints
    start_s: Floats
    end_s: Floats
    held: Ints
    outcome: tuple[str, ...]
    left_out: Mapping[str, int]
    kept: Mapping[str, int]


class _Row(msgspec.Struct, frozen=True, gc=False):
    """One job of a past, before it goes into columns."""

    attempt: Attempt
    submit_s: float
    run_s: float
    limit_s: float
    counted: bool
    asked: Amounts
    used: Amounts
    busiest: Amounts
    keeps: Kept


def past_of(
    attempts: Iterable[Attempt], since_s: int, until_s: int, left_alone: LeftAlone = lambda _: ""
) -> Past:
    """Return what came from `since_s` to `until_s` (unix seconds) as a load; ModelError if there is nothing.

    Attempts come in order of submission; those that had ended before the window are not held in memory.
    """
    left_out, kept = Counter[str](), Counter[str]()
    rows: list[_Row] = []
    before: list[OnlineJob] = []
    for attempt, arrival_s in arrivals(attempts):
        reason, counted = why_left_out(attempt), since_s <= arrival_s < until_s
        if arrival_s >= until_s or (reason and not counted):
            continue
        if reason:
            left_out[reason] += 1
        elif not counted and attempt.row.end_s <= since_s:
            before.append(_case(attempt, f"before {len(before)}"))
        else:
            reasons, keeps = what_stays(attempt, left_alone(attempt)) if counted else ((), ALL_KEPT)
            kept.update(reasons)
            rows.append(_row(attempt, arrival_s, since_s, keeps, counted=counted))
    if not any(row.counted for row in rows):
        raise ModelError(
            f"no job that ran was submitted in that time ({sum(left_out.values())} did not run); ingest "
            "more of the past, or give another --since and --until"
        )
    # Jobs that were there at the first moment come first, in the order of their starts; sorting is stable.
    rows.sort(key=lambda row: (row.submit_s, row.counted, 0 if row.counted else row.attempt.row.start_s))
    return _columns(rows, before, since_s, until_s, left_out, kept)


def arrivals(attempts: Iterable[Attempt]) -> Iterator[tuple[Attempt, int]]:
    """Yield attempts, given in order of submission, each with the time at which it came (unix seconds).

    That is never before its job's last attempt had ended, and never after its own start.
    """
    ended_s: dict[tuple[str, int], int] = {}
    for _, of_a_second in groupby(attempts, key=lambda one: one.row.submit_s):
        for attempt in sorted(of_a_second, key=lambda one: (one.row.start_s, one.row.job_id)):
            row = attempt.row
            job = (row.cluster, row.job_id)
            came_s = max(row.submit_s, ended_s.get(job, 0))
            if row.start_s:
                came_s = min(came_s, row.start_s)
                ended_s[job] = row.end_s
            yield attempt, came_s


def why_left_out(attempt: Attempt) -> str:
    """Return why an attempt cannot be replayed; '' if it can."""
    row = attempt.row
    if attempt.use.outcome == "unfinished" or not row.end_s:
        return NOT_ENDED
    if not row.start_s or (not attempt.use.wall_s and not row.alloc_cpus):
        return NEVER_STARTED
    return "" if any(asked_of(attempt)) else NOTHING_HELD


def asked_of(attempt: Attempt) -> Amounts:
    """Return what an attempt takes as asked: what its user asked for, or what Slurm made of it if that is more."""
    row = attempt.row
    return (
        max(attempt.asked_cpus or 0, row.alloc_cpus or 0) * MILLI,
        max(attempt.asked_mem_mib or 0, row.alloc_mem_mib or 0),
        max(attempt.asked_gpus or 0, row.alloc_gpus or 0) * MILLI,
    )


def used_of(attempt: Attempt) -> tuple[Amounts, Kept]:
    """Return what an attempt used, and for which resources that is unknown: those count as used in full.

    A job that was killed for memory needed at least what it had.
    """
    use, asked = attempt.use, asked_of(attempt)
    killed = use.outcome == OUT_OF_MEMORY
    peak_mib = use.peak_mem_mib if use.memory_quality in MEASURED and not killed else None
    found = (use.cores and use.cores * MILLI, peak_mib, None if use.gpus is None else use.gpus * MILLI)
    cpu_milli, mem_mib, gpu_milli = (
        most if amount is None else min(most, math.ceil(amount))
        for most, amount in zip(asked, found, strict=True)
    )
    unknown = (use.cores is None, peak_mib is None and not killed, use.gpus is None and asked[2] > 0)
    return (cpu_milli, mem_mib, gpu_milli), unknown


def what_stays(attempt: Attempt, left_alone: str) -> tuple[tuple[str, ...], Kept]:
    """Return the reasons, and which resources stay as asked: not measured, not its user's choice, or left alone."""
    row = attempt.row
    if left_alone:
        return (left_alone,), ALL_KEPT
    if (row.alloc_cpus or 0) > (attempt.asked_cpus or 0) + attempt.num_tasks:
        return (WHOLE_NODES,), ALL_KEPT
    _, unknown = used_of(attempt)
    raised = (
        (row.alloc_cpus or 0) > (attempt.asked_cpus or 0),
        (row.alloc_mem_mib or 0) > (attempt.asked_mem_mib or 0),
        (row.alloc_gpus or 0) > (attempt.asked_gpus or 0),
    )
    cpus, memory, gpus = (one or other for one, other in zip(unknown, raised, strict=True))
    return tuple(reason for reason, is_so in zip(NOT_MEASURED, unknown, strict=True) if is_so), (
        cpus,
        memory,
        gpus,
    )


def _row(attempt: Attempt, arrival_s: int, since_s: int, keeps: Kept, *, counted: bool) -> _Row:
    wall_s, limit_s = max(1.0, float(attempt.use.wall_s)), attempt.row.limit_s
    # What ran at the first moment has run for a part of its time.
    gone_s = min(wall_s - 1.0, max(0.0, float(since_s - attempt.row.start_s)))
    asked, (used, _) = asked_of(attempt), used_of(attempt)
    per_task = attempt.use.cores_per_task
    busiest = used[0] if per_task is None else math.ceil(per_task * attempt.num_tasks * MILLI)
    return _Row(
        attempt=attempt,
        submit_s=float(max(0, arrival_s - since_s)),
        run_s=wall_s - gone_s,
        # Slurm ends jobs up to minutes after their limit: a job that was let run on then is let run on again.
        limit_s=math.inf if limit_s is None else max(float(limit_s), wall_s) - gone_s,
        counted=counted,
        asked=asked,
        used=used,
        busiest=(min(asked[0], max(used[0], busiest)), used[1], used[2]),
        keeps=keeps,
    )


def _case(attempt: Attempt, name: str) -> OnlineJob:
    row = attempt.row
    return OnlineJob(
        job_id=name,
        submit_s=float(row.submit_s),
        start_s=float(row.start_s),
        end_s=float(row.end_s),
        request=request_of(attempt),
        past=past_job(attempt),
    )


def _columns(
    rows: Sequence[_Row],
    before: Sequence[OnlineJob],
    since_s: int,
    until_s: int,
    left_out: Mapping[str, int],
    kept: Mapping[str, int],
) -> Past:
    users: dict[str, int] = {}

    def amounts(name: str) -> Ints:
        return numpy.array([getattr(row, name) for row in rows], dtype=numpy.int64)

    def seconds(name: str) -> Floats:
        return numpy.array([getattr(row, name) for row in rows], dtype=numpy.float64)

    found = [row.attempt for row in rows]
    jobs = Workload(
        submit_s=seconds("submit_s"),
        run_s=seconds("run_s"),
        asked=amounts("asked"),
        used=amounts("used"),
        limit_s=seconds("limit_s"),
        deadline_s=numpy.full(len(rows), numpy.inf),
        user=numpy.array([users.setdefault(one.row.user, len(users)) for one in found], dtype=numpy.int64),
        kind=numpy.zeros(len(rows), dtype=numpy.int64),
    )
    return Past(
        since_s=since_s,
        window_s=float(until_s - since_s),
        jobs=jobs,
        cases=tuple(_case(attempt, str(number)) for number, attempt in enumerate(found)),
        before=tuple(before),
        counted=numpy.array([row.counted for row in rows], dtype=numpy.bool_),
        keeps=numpy.array([row.keeps for row in rows], dtype=numpy.bool_),
        busiest=amounts("busiest"),
        nodes=numpy.array([max(1, one.row.nodes) for one in found], dtype=numpy.int64),
        start_s=numpy.array([one.row.start_s - since_s for one in found], dtype=numpy.float64),
        end_s=numpy.array([one.row.end_s - since_s for one in found], dtype=numpy.float64),
        held=numpy.array([_held(one) for one in found], dtype=numpy.int64),
        outcome=tuple(one.use.outcome for one in found),
        left_out=dict(left_out),
        kept=dict(kept),
    )


def _held(attempt: Attempt) -> Amounts:
    """Return what an attempt really held: what Slurm allocated, else what was asked."""
    row, asked = attempt.row, asked_of(attempt)
    return (
        asked[0] if row.alloc_cpus is None else row.alloc_cpus * MILLI,
        asked[1] if row.alloc_mem_mib is None else row.alloc_mem_mib,
        asked[2] if row.alloc_gpus is None else row.alloc_gpus * MILLI,
    )
