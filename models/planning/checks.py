"""What no plan can be made of: refused with an error, or returned as the reason why nothing is changed. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from accounting.errors import ModelError
from models.planning.cells import Cell
from models.planning.problem import Coming, Holding, Pending, Problem
from models.scheduling.availability import Window

MOST_PRIORITY = 1 << 32
MOST_COMING = 100_000


def check(problem: Problem) -> None:
    """Refuse values that make no sense; ModelError names the record."""
    for number, machine in enumerate(problem.machines):
        if min(machine.amounts) < 0:
            raise ModelError(f"machine {number} has {machine.amounts}; give amounts of at least 0")
    _check_resources(problem)
    for job in problem.pending:
        _check_pending(job)
    if len({job.job_id for job in problem.pending}) < len(problem.pending):
        raise ModelError("two waiting records have one job id; give each record once")
    for holding in problem.running:
        _check_holding(holding, len(problem.machines))
    for sample in problem.coming:
        _check_sample(sample)
    for window in problem.windows:
        _check_window(window, len(problem.machines))


def _check_resources(problem: Problem) -> None:
    amounts = [machine.amounts for machine in problem.machines]
    amounts += [window.amounts for window in problem.windows]
    amounts += [job.demand for job in problem.pending]
    amounts += [held for holding in problem.running for _, held in holding.parts]
    amounts += [one.demand for sample in problem.coming for one in sample]
    if len({len(each) for each in amounts}) > 1:
        raise ModelError("amounts are of different resources; give each type of GPU to all or to none")


def nothing_to_plan(problem: Problem, cells: Sequence[Cell]) -> str:
    """Return why there is nothing to plan, or '' if there is something."""
    if not problem.pending:
        return "nothing waits"
    if not problem.machines:
        return "there are no machines"
    if not any(number not in cell.stuck for cell in cells for number in cell.members):
        return "nothing that waits can start: it is held, or no machine of its partitions can hold it"
    return ""


def _check_pending(job: Pending) -> None:
    times = (job.limit_s, job.likely_s, job.upper_s)
    if not all(value > 0 for value in times) or math.isinf(job.likely_s):
        raise ModelError(
            f"job {job.job_id} runs {times} s; give a likely run above 0 s, and a limit above 0 s"
        )
    if not 0 <= job.waited_s < math.inf:
        raise ModelError(f"job {job.job_id} has waited {job.waited_s} s; give seconds of at least 0")
    if math.isnan(job.unmoved_start_s) or math.isnan(job.deadline_s):
        raise ModelError(f"job {job.job_id} has a deadline that is no number; leave it out or give seconds")
    if min(job.demand) < 0 or job.tasks < 1 or job.nodes < 1:
        raise ModelError(
            f"job {job.job_id} needs {job.demand}, {job.tasks} times, on {job.nodes} nodes; give at least 1"
        )
    if not 0 <= job.priority < MOST_PRIORITY:
        raise ModelError(f"job {job.job_id} has priority {job.priority}; Slurm's are 0 to 2^32 - 1")
    if job.fair_share is not None and not 0 <= job.fair_share <= 1:
        raise ModelError(f"job {job.job_id} has a fair share of {job.fair_share}; give 0 to 1, or None")


def _check_holding(job: Holding, machines: int) -> None:
    if not (job.likely_left_s >= 0 and not math.isnan(job.limit_left_s)):
        raise ModelError(f"job {job.job_id} runs {job.likely_left_s} s more; give seconds of at least 0")
    for machine, amounts in job.parts:
        if not 0 <= machine < machines or min(amounts) < 0:
            raise ModelError(
                f"job {job.job_id} runs on machine {machine} with {amounts}; name one of {machines} machines"
            )


def _check_coming(one: Coming) -> None:
    if not (
        0 <= one.at_s < math.inf and 0 < one.likely_s < math.inf and one.limit_s > 0 and min(one.demand) >= 0
    ):
        raise ModelError(f"{one} is no job to expect; give times and amounts of at least 0")


def _check_sample(sample: Sequence[Coming]) -> None:
    if len(sample) > MOST_COMING:
        raise ModelError(f"a forecast of {len(sample):,} jobs is none; give at most {MOST_COMING:,}")
    for one in sample:
        _check_coming(one)


def _check_window(window: Window, machines: int) -> None:
    if not (0 <= window.node < machines and window.from_s < window.to_s) or min(window.amounts) < 0:
        raise ModelError(
            f"{window} is no window; name one of {machines} machines, amounts of at least 0, an end after its start"
        )
