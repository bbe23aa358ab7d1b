"""What only accounting knows of runs that failed: what to ask sacct about each, and how to use the answer. Pure.

All runs of a round with the same question share one call. When many wait after a node has failed, a call for each
would take longer than Slurm lets them wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from accounting.decisions.token import find_token, granted_by
from accounting.units import parse_duration_s, whole
from slurm_plugin.slurm.queue import Failed
from slurm_plugin.slurm.requeuing import KILLED, KILLED_FOR_MEMORY, is_killed

LEAST_MEASURED_S = 10
# sacct's word for a step that a user has cancelled.
_CANCELLED_BY = "CANCELLED by "


class Question(NamedTuple):
    """What sacct is asked (its options; the first column is JobIDRaw), and what its lines of a run make of the run.

    If accounting is silent there are no lines, and the run stays as slurmctld shows it.
    """

    options: tuple[str, ...]
    answered: Callable[[Failed, Sequence[str]], Failed]


def question_of(run: Failed) -> Question | None:
    """Return what to ask accounting about a run; None if slurmctld knows all that matters."""
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
    if run.steps_elsewhere:
        return STEPS if run.job.state == "FAILED" else None
    return STOPPED_STEPS if may_come_back and is_killed(run) else None


def lines_by_job(text: str) -> Mapping[int, list[str]]:
    """Return the lines of an answer by the job that they, or their steps, belong to."""
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
    """Return a run with the codes of its own steps, from `step id|exit code` lines; unchanged if there are none."""
    codes = tuple(code for step, _, code in _told(lines) if "." in step and code)
    return msgspec.structs.replace(run, exit_codes=(run.exit_codes[0], *codes)) if codes else run


def with_stopped_steps(run: Failed, lines: Sequence[str]) -> Failed:
    """Return a run with whether its user meant its steps to be killed, from `step id|exit code|state` lines.

    That is so if each step that was killed had been cancelled by its user, or had reached a time limit of its own. A
    script that ends with such a step has the same exit code as one whose program was killed for memory.
    """
    steps = [line.split("|") for line in lines if line.partition("|")[0].partition(".")[2].isdecimal()]
    killed = ["".join(rest) for _, code, *rest in steps if code in KILLED]
    meant = ("TIMEOUT", *([f"{_CANCELLED_BY}{run.job.uid}"] if run.job.uid else []))
    return msgspec.structs.replace(run, stopped=bool(killed) and all(state in meant for state in killed))


def with_earlier_runs(run: Failed, lines: Sequence[str]) -> Failed:
    """Return a requeued job with how the steps of all its runs ended, from `step id|state` lines.

    slurmctld keeps the code of an srun that was killed, but not that of a script that is requeued while it runs.
    """
    killed = any(state == "OUT_OF_MEMORY" for _, _, state in _told(lines))
    return _with_code(run, KILLED_FOR_MEMORY if killed else None)


def with_busy_share(run: Failed, lines: Sequence[str]) -> Failed:
    """Return a run with the share of its CPUs that was busy, from `job id|CPU time|seconds|CPUs` lines.

    Short runs are left out: in a run of a few seconds the rounding of these figures matters more than its CPUs. 0 s
    means that nothing was measured.
    """
    # sacct adds up no CPU time for a job unless its steps are listed, so there are lines of steps too.
    for job, cpu_time, elapsed_s, cpus in (line.split("|") for line in lines if line.count("|") == 3):
        cpu_s, held_s = parse_duration_s(cpu_time) or 0.0, (whole(elapsed_s) or 0) * (whole(cpus) or 0)
        if "." not in job and cpu_s and held_s and (whole(elapsed_s) or 0) >= LEAST_MEASURED_S:
            return msgspec.structs.replace(run, busy_share=cpu_s / held_s)
    return run


def may_be_of_an_earlier_run(run: Failed) -> bool:
    """Whether the highest code of its steps, by which it was killed, may come from a run before the last one.

    slurmctld keeps it when a job is requeued, as after a preemption, in which steps are killed (seen on 22.05).
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
STOPPED_STEPS = Question(("--format=JobIDRaw,ExitCode,State",), with_stopped_steps)
