"""What only accounting tells of runs that failed: what sacct is asked of each, and what its answer makes of it. Pure.

All of a round that are asked the same are asked of in one call: of many that wait after a node has failed a call each
takes longer than Slurm lets them wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from accounting.decisions.token import find_token, granted_by
from accounting.units import parse_duration_s, whole
from slurm_plugin.slurm.queue import Failed
from slurm_plugin.slurm.requeuing import KILLED, KILLED_FOR_MEMORY

LEAST_MEASURED_S = 10


class Question(NamedTuple):
    """What sacct is asked (its options; the first column is JobIDRaw), and what it makes of a run, by its own lines.

    Where accounting is silent there are no lines, and the run stays as slurmctld tells it.
    """

    options: tuple[str, ...]
    answered: Callable[[Failed, Sequence[str]], Failed]


def question_of(run: Failed) -> Question | None:
    """Return what accounting is to be asked of a run; None where slurmctld tells all that counts."""
    token = find_token(run.job.admin_comment)
    if token is None:
        return None
    may_come_back = token.granted and token.recovered_at is None
    if run.waits_again and may_come_back:
        return None if KILLED_FOR_MEMORY in run.exit_codes else EARLIER_RUNS
    if run.job.state == "TIMEOUT" and granted_by(token).cpus_per_task is not None:
        return HOW_BUSY
    if may_come_back and may_be_of_an_earlier_run(run):
        return LAST_STEPS
    return STEPS if run.steps_elsewhere and run.job.state == "FAILED" else None


def lines_by_job(text: str) -> Mapping[int, list[str]]:
    """Return the lines of an answer by the job that each, or whose step, it tells of."""
    found: dict[int, list[str]] = {}
    for line in text.splitlines():
        job = line.partition("|")[0].partition(".")[0]
        if job.isdecimal():
            found.setdefault(int(job), []).append(line)
    return found


def with_steps(run: Failed, lines: Sequence[str]) -> Failed:
    """Return a run with the highest code of its steps, from `job id|that code` lines."""
    codes = (code for step, _, code in _told(lines) if "." not in step and code)
    return _with_code(run, next(codes, None))


def with_last_steps(run: Failed, lines: Sequence[str]) -> Failed:
    """Return a run with the codes of its own steps, from `step id|exit code` lines; unchanged where they tell none."""
    codes = tuple(code for step, _, code in _told(lines) if "." in step and code)
    return msgspec.structs.replace(run, exit_codes=(run.exit_codes[0], *codes)) if codes else run


def with_earlier_runs(run: Failed, lines: Sequence[str]) -> Failed:
    """Return a job that was queued again with what became of the steps of all its runs, from `step id|state` lines.

    slurmctld keeps the code of an srun that was killed, and none of a script that is queued again while it runs.
    """
    killed = any(state == "OUT_OF_MEMORY" for _, _, state in _told(lines))
    return _with_code(run, KILLED_FOR_MEMORY if killed else None)


def with_busy_share(run: Failed, lines: Sequence[str]) -> Failed:
    """Return a run with the share of its CPUs that was busy, from `job id|CPU time|seconds|CPUs` lines.

    Of a run of some seconds the rounding of these tells more than its CPUs; and 0 s is what nobody measured.
    """
    # Of a job without its steps sacct adds up no CPU time, so that lines of steps are there, too.
    for job, cpu_time, elapsed_s, cpus in (line.split("|") for line in lines if line.count("|") == 3):
        cpu_s, held_s = parse_duration_s(cpu_time) or 0.0, (whole(elapsed_s) or 0) * (whole(cpus) or 0)
        if "." not in job and cpu_s and held_s and (whole(elapsed_s) or 0) >= LEAST_MEASURED_S:
            return msgspec.structs.replace(run, busy_share=cpu_s / held_s)
    return run


def may_be_of_an_earlier_run(run: Failed) -> bool:
    """Whether the highest code of its steps, by which it was killed, may be that of a run before the last one.

    slurmctld keeps it when a job is queued again, as after a preemption, in which steps are killed (seen on 22.05).
    """
    own, *of_steps = run.exit_codes
    return (
        run.job.state == "FAILED"
        and run.restarts > 0
        and own not in KILLED
        and any(code in KILLED for code in of_steps)
    )


def _told(lines: Sequence[str]) -> list[tuple[str, str, str]]:
    return [line.partition("|") for line in lines]


def _with_code(run: Failed, code: str | None) -> Failed:
    return msgspec.structs.replace(run, exit_codes=(*run.exit_codes, code)) if code else run


EARLIER_RUNS = Question(("-D", "--format=JobIDRaw,State"), with_earlier_runs)
HOW_BUSY = Question(("--format=JobIDRaw,TotalCPU,ElapsedRaw,AllocCPUS",), with_busy_share)
LAST_STEPS = Question(("--format=JobIDRaw,ExitCode",), with_last_steps)
STEPS = Question(("-X", "--format=JobIDRaw,DerivedExitCode"), with_steps)
