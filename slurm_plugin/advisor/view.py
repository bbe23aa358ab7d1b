"""A cycle as people and programs read it: a row for each job, and a summary in plain words. Pure."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

from accounting.units import counted
from models.planning.orders import AS_IS
from models.planning.problem import Pending
from slurm_plugin.advisor.cycle import Outcome
from slurm_plugin.slurm.queue import Written

Row = dict[str, object]


def rows_of(outcome: Outcome) -> list[Row]:
    """Return a row per waiting job, in the proposed order; places count from 1, starts are unix seconds or None."""
    jobs = {job.job_id: job for job in outcome.snapshot.jobs if job.waits}
    kept = {job.job_id: job for job in outcome.problem.pending}
    after = {change.job_id: change.after for change in outcome.changes}
    problems = {one.job_id: one.problem for one in outcome.written}
    proposed = {job.job_id: after.get(job.job_id, job.before) for job in outcome.plan.jobs}
    now_places = places_of(outcome.problem.pending, {job.job_id: job.before for job in outcome.plan.jobs})
    then_places = places_of(outcome.problem.pending, proposed)
    now_s = outcome.snapshot.time_s
    rows = []
    for job in outcome.plan.jobs:
        asked, pending = jobs[job.job_id], kept[job.job_id]
        changed = job.job_id in after
        rows.append(
            {
                "job_id": job.job_id,
                "user": asked.user,
                "factor": asked.site_factor,
                "place": now_places[job.job_id],
                "proposed_factor": after.get(job.job_id, asked.site_factor),
                "proposed_place": then_places[job.job_id],
                "base_start_s": _at(now_s, job.base_start_s),
                "start_s": _at(now_s, job.start_s),
                "low_s": _at(now_s, job.low_s),
                "high_s": _at(now_s, job.high_s),
                "likely_run_s": round(pending.likely_s),
                "why": pending.kept or (job.reason if changed else "as before"),
                "problem": problems.get(job.job_id, ""),
            }
        )
    return sorted(rows, key=lambda row: int(str(row["proposed_place"])))


def places_of(pending: Sequence[Pending], factors: Mapping[int, int]) -> dict[int, int]:
    """Return the places of waiting jobs in Slurm's queue with these factors; those that cannot start come last."""
    ordered = sorted(
        pending,
        key=lambda job: (
            job.out,
            -job.tier,
            -(job.priority + factors.get(job.job_id, job.factor)),
            job.job_id,
        ),
    )
    return {job.job_id: place for place, job in enumerate(ordered, 1)}


def _at(now_s: float, after_s: float) -> float | None:
    return round(now_s + after_s) if math.isfinite(after_s) else None


def table_of(rows: Sequence[Row], now_s: float) -> list[Row]:
    """Return the rows in short form, with starts as spans from now."""
    return [
        {
            "job": row["job_id"],
            "user": row["user"],
            "now": f"{row['place']} ({row['factor']:+})",
            "proposed": f"{row['proposed_place']} ({row['proposed_factor']:+})"
            if row["proposed_factor"] != row["factor"] or row["proposed_place"] != row["place"]
            else "-",
            "start without": _in(row["base_start_s"], now_s),
            "start with": _in(row["start_s"], now_s),
            "80 % within": f"{_in(row['low_s'], now_s)} to {_in(row['high_s'], now_s)}",
            "why": f"{row['why']}: {row['problem']}" if row["problem"] else row["why"],
        }
        for row in rows
    ]


def _in(at_s: object, now_s: float) -> str:
    """Return how far ahead a moment is, in Slurm's time format."""
    if not isinstance(at_s, (int, float)):
        return "later"
    left_s = max(0, round(at_s - now_s))
    days, rest = divmod(left_s, 86_400)
    clock = time.strftime("%H:%M:%S", time.gmtime(rest))
    return f"{days}-{clock}" if days else clock


def summary_of(outcome: Outcome, *, apply: bool) -> str:
    """Return in one line what is best to do, why, and what was done."""
    return _order_of(outcome, apply=apply) + _relisted(outcome.relisted, apply=apply)


def _relisted(written: Sequence[Written], *, apply: bool) -> str:
    if not written:
        return ""
    failed = sum(1 for one in written if one.problem) if apply else 0
    said = f"; other partitions {'listed' if apply else 'to be listed'} by {counted(len(written) - failed, 'job')}"
    return said + (f", and {failed} could not be changed" if failed else "")


def _order_of(outcome: Outcome, *, apply: bool) -> str:
    plan, failed = outcome.plan, sum(1 for one in outcome.written if one.problem)
    head = (
        f"{counted(len(outcome.problem.pending), 'waiting job')}, {len(outcome.problem.running):,} running; "
    )
    if outcome.cycle.control:
        return f"{head}drawn by lot, the advisor only watches in this block of time"
    if not outcome.changes and plan.order == AS_IS:
        return f"{head}the best plan is to change nothing, because {plan.why}"
    if not outcome.changes:
        return f"{head}the queue already has the order of the best plan: {plan.why}"
    if plan.order == AS_IS:
        head += f"the best plan is Slurm's own order, because {plan.why}; "
    else:
        head += f"the best plan: {plan.why}; "
    said = counted(len(outcome.changes), "factor")
    if not apply:
        return f"{head}{said} would change (this was a dry run; --apply makes the changes)"
    return f"{head}{said} changed" + (f", of which {failed} could not be set" if failed else "")
