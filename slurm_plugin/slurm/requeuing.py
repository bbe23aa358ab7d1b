"""How a job that failed is queued again with other resources, step by step.

slurmctld changes nothing of a job that has ended, not even its comment. So the job is first queued again and held.
Then its admin comment is written, which marks it; then the resources, in the user's name (resizing.py says why); only
then is it released. The writer may be interrupted at any step: what is left to do is read from the job each time, so
that the next writer continues. A job that has ended and carries the mark is never queued again: a job comes back only
once.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

from slurm_plugin.slurm.gpu_fields import gpu_words, parse_gpu_fields
from slurm_plugin.slurm.job_lines import is_held_again, parse_plain, records_of
from slurm_plugin.slurm.queue import Failed, GiveBack, Requeue, Written
from slurm_plugin.slurm.resizing import Update, is_raised, is_split, resource_words
from slurm_plugin.slurm.snapshot import QueuedJob
from slurm_plugin.slurm.targets import target_of

Look = Callable[[int], "Failed | None"]

# States in which this may queue a job again.
FAILED = ("OUT_OF_MEMORY", "FAILED", "TIMEOUT")
# slurmctld's own code for a step that was killed for memory.
KILLED_FOR_MEMORY = "0:125"
# Exit codes as slurmctld prints them, code:signal. A shell whose child was killed (SIGKILL, as the kernel does it)
# ends with 137.
KILLED = ("137:0", "0:9")
GONE = "gone"
STILL_ENDING = "still ending"
CHANGED = "changed by somebody else meanwhile"
RESTARTED = "restarted by somebody else"
# The rest follows once no more jobs have failed than a round takes.
ONLY_HELD = "held for now, as many others have failed too"
# Problems that no later attempt would change.
FINAL = (GONE, CHANGED, RESTARTED)
_LINE = re.compile(r"^   Requeue=(?P<requeue>\d) Restarts=\d+ .*?\bExitCode=(?P<code>\d+:\d+)", re.MULTILINE)
_OUTPUT = re.compile(r"^   Std(?:Err|Out)=(/.+)$", re.MULTILINE)
_OF_STEPS = re.compile(r"^   DerivedExitCode=(\d+:\d+)", re.MULTILINE)
_STEPS_ELSEWHERE = re.compile(r"^   StepMgrEnabled=Yes\b", re.MULTILINE)
# Seconds after a run's end; clocks show whole seconds, and may differ by one.
SETTLED_S = 3.0
_PAUSE_S, _PATIENCE_S = 0.1, 5.0
# Queue again, mark, resize, release; one more for each that a slow slurmctld shows late.
_MOST_STEPS = 8


def parse_failed(text: str, job_id: int) -> Failed | None:
    """Return a record of `scontrol --details show job`, in any state; None if it is gone, or not plain."""
    found = [job for job in parse_plain(text) if job.job_id == job_id]
    blocks = [block for block in records_of(text) if block.startswith(f"JobId={job_id} ")]
    line = _LINE.search(blocks[0]) if len(found) == len(blocks) == 1 else None
    if line is None:
        return None
    return Failed(
        job=found[0],
        requeues=line["requeue"] == "1",
        exit_codes=(line["code"], *_OF_STEPS.findall(blocks[0])),
        outputs=tuple(_OUTPUT.findall(blocks[0])),
        gpu_fields=parse_gpu_fields(blocks[0]),
        steps_elsewhere=_STEPS_ELSEWHERE.search(blocks[0]) is not None,
    )


def is_killed(run: Failed) -> bool:
    """Whether a run failed because something in it was killed, but not by Slurm for its memory."""
    codes = run.exit_codes
    return (
        run.job.state == "FAILED" and KILLED_FOR_MEMORY not in codes and any(code in KILLED for code in codes)
    )


def requeue(
    wanted: Requeue,
    look: Look,
    update: Update,
    sleep: Callable[[float], None] = time.sleep,
    *,
    only_hold: bool = False,
) -> Written:
    """Carry out the requeue, or what is left of it; raises SlurmError if slurmctld does not answer.

    With `only_hold`, a job that has ended is requeued held, and the rest is left to a later call.
    """
    job_id = wanted.change.job_id
    waits_until_s = time.monotonic() + _PATIENCE_S
    written = False
    for _ in range(_MOST_STEPS):
        run = look(job_id)
        while run is not None and run.job.ending and time.monotonic() < waits_until_s:
            sleep(_PAUSE_S)
            run = look(job_id)
        if run is not None and (left_s := unsettled_s(run, time.time())):
            sleep(left_s)
            run = look(job_id)
        if run is None:
            return Written(job_id=job_id, problem=GONE)
        words = next_words(run, wanted, written=written)
        if isinstance(words, str):
            return Written(job_id=job_id, problem=words)
        complaint = update(words)
        written = written or (not complaint and words[0] == _as_user(run.job))
        if complaint and not _is_carried_out(look(job_id), wanted, words):
            return Written(job_id=job_id, problem=complaint)
        if only_hold and words[0] == "requeuehold":
            return Written(job_id=job_id, problem=ONLY_HELD)
    return Written(job_id=job_id, problem="not kept")


def unsettled_s(run: Failed, now_s: float) -> float:
    """Return how much longer a job that has ended must be left alone (seconds).

    A node refuses a run whose credential is not from a later second than the end of the previous run, and the run
    fails with exit code 1. Slurm's own delay exists for that (`_credential_revoked`, `cred_lifetime`); it is removed
    here.
    """
    return until_settled_s(run.job.end_s, now_s) if run.job.state in FAILED else 0.0


def until_settled_s(ended_s: float, now_s: float) -> float:
    """Return how many seconds pass until all that is notified of a run's end knows that it ended then."""
    return min(SETTLED_S, max(0.0, ended_s + SETTLED_S - now_s))


def next_words(run: Failed, wanted: Requeue, *, written: bool = False) -> Sequence[str] | str:
    """Return what to tell scontrol next; '' if all is done, or the reason why nothing may be done.

    `written` says that the resources were given back just now: what the job has is then what slurmctld made of them.
    """
    job, change, target = run.job, wanted.change, target_of(run.job)
    marked = job.admin_comment == change.admin_comment
    if not marked and job.admin_comment != wanted.before:
        return CHANGED
    if job.ending:
        return STILL_ENDING
    if run.restarts == wanted.restarts and job.state in FAILED and not marked:
        return ("requeuehold", target)
    if run.restarts != wanted.restarts + 1:
        return RESTARTED
    if is_held_again(job):
        return _next_of_held(run, wanted, target, marked=marked, written=written)
    # 22.05 shows the earlier CPUs in the TRES until such a job starts: compare what the job asks for.
    if marked:
        return CHANGED if _words_back(run, change, written=True) else ""
    return _next_of_waiting(run, wanted, target, written=written) if wanted.by_others else CHANGED


def _next_of_waiting(run: Failed, wanted: Requeue, target: str, *, written: bool) -> Sequence[str] | str:
    """Return what to tell scontrol about a job that others requeued and that may start at any moment.

    The mark comes last. If the job starts before it, it has all it asked for. Marked first, it could fail as before
    and would not come back.
    """
    words = _words_back(run, wanted.change, written=written)
    if words:
        return (_as_user(run.job), "update", f"JobId={target}", *words) if run.job.waits else CHANGED
    return ("update", f"JobId={target}", f"AdminComment={wanted.change.admin_comment}")


def _is_carried_out(run: Failed | None, wanted: Requeue, words: Sequence[str]) -> bool:
    """Whether a job is as it should be, although slurmctld complained.

    If a partition that the job lists accepts no job of that memory (MaxMemPerNode), slurmctld says so, and still does
    it.
    """
    return run is not None and next_words(run, wanted) != words


def _next_of_held(run: Failed, wanted: Requeue, target: str, *, marked: bool, written: bool) -> Sequence[str]:
    job, change = run.job, wanted.change
    if not marked:
        place = (f"SiteFactor={wanted.site_factor}",) if wanted.site_factor else ()
        return ("update", f"JobId={target}", f"AdminComment={change.admin_comment}", *place)
    words = _words_back(run, change, written=written)
    if words:
        # Slurm makes a job that is queued again wait for two minutes.
        return (_as_user(job), "update", f"JobId={target}", *words, "StartTime=now")
    return ("release", target)


def _as_user(job: QueuedJob) -> str:
    """Return the argument by which scontrol acts in the name of a job's user; only resources are written so."""
    return f"--uid={job.uid}"


def _words_back(run: Failed, change: GiveBack, *, written: bool) -> list[str]:
    """Return the fields that still have to change; they are written at once, so that all of them change or none."""
    share = (run.job, change.mem_per_cpu_mib, change.cpus_per_task)
    split = is_split(*share) or (written and is_raised(*share))
    words, gpus = [] if split else resource_words(run.job, change), gpu_words(run.gpu_fields, change)
    # A task's CPUs and GPUs share one field: the word that holds both is used.
    fields = {word.partition("=")[0] for word in gpus}
    return [*(word for word in words if word.partition("=")[0] not in fields), *gpus]
