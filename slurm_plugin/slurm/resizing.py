"""How a pending job gets other resources, all of them or none.

The resources are changed in the job's own user's name: what root or an operator changes is marked as set by an
administrator, and limits of associations and QOS no longer apply to it (slurmctld's ADMIN_SET_LIMIT). `scontrol
--uid` lets root and SlurmUser do that, on every release from 22.05. Only AdminComment, which users may not write, is
written as an operator.

The comment comes first, since restoring it always works; raising resources again may not. So a change that fails, or
is not kept, leaves the job as it was. If the writer is killed between the two, only the comment is new, and the next
cycle sees that. A job that starts between the two runs as it was, and gets its old comment back: the comment must not
claim what the job has not got.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec

from slurm_plugin.slurm.gpu_fields import PER_TASK, with_cpus
from slurm_plugin.slurm.job_lines import is_held_again
from slurm_plugin.slurm.queue import Resize, Written
from slurm_plugin.slurm.snapshot import QueuedJob
from slurm_plugin.slurm.targets import target_of

Record = Callable[[int], "QueuedJob | None"]
# Runs `scontrol WORDS` and returns its complaint, '' if it succeeds.
Update = Callable[[Sequence[str]], str]
# What tasks of an array answer that have started or ended since: they may no longer be changed.
_PAST = ("no longer pending", "already")
# `1_7-8: Job is no longer pending execution` up to 24.11 or so, `1_[7-8]: …` since; for the others it says `No
# error`.
_TASK = re.compile(r"\d+_\[?([\d,\-:]+)\]?: ")
_FINE = "No error"
HELD = "was queued again and is held"
COMMENTED = "has another admin comment meanwhile"
CHANGED = "was changed by its user meanwhile"


def resize(change: Resize, record: Record, update: Update) -> Written:
    """Carry out a change; raises SlurmError if slurmctld does not answer."""
    before = record(change.job_id)
    problem = obstacle(change, before)
    if before is None or problem:
        return Written(job_id=change.job_id, problem=problem)
    if change.admin_comment is not None and change.admin_comment != before.admin_comment:
        problem = update(_comment(before, change.admin_comment))
        if problem:
            return Written(job_id=change.job_id, problem=problem)
    complaint = update(_resources(before, change))
    _correct_started(complaint, before, update)
    complaint = said(complaint)
    after = record(change.job_id)
    if complaint or after is None or not has(after, change):
        _take_back(before, after, change, update)
        return Written(job_id=change.job_id, problem=complaint or ended(after) or "not kept")
    return Written(job_id=change.job_id)


def obstacle(change: Resize, job: QueuedJob | None) -> str:
    """Return why a change cannot even be tried; '' if it can."""
    if ended(job) or job is None:
        return ended(job)
    # It may have started, failed, and been requeued since the queue was read.
    if is_held_again(job):
        return HELD
    if change.before not in (None, job.admin_comment):
        return COMMENTED
    if change.seen is not None and _user_set(change.seen) != _user_set(job):
        return CHANGED
    if job.uid != change.uid:
        return f"belongs to user {job.uid}, not {change.uid}"
    if job.num_tasks != change.num_tasks:
        return f"has {job.num_tasks} tasks, not {change.num_tasks}"
    if change.mem_per_node_mib is not None and job.mem_per_node_mib is None:
        return "asks for memory per CPU, not per node"
    if change.mem_per_cpu_mib is not None and job.mem_per_cpu_mib is None:
        return "asks for memory per node, not per CPU"
    if not resource_words(job, change):
        return "is that size already"
    return ""


def _user_set(job: QueuedJob) -> tuple[int | str | None, ...]:
    """Return what users change of a waiting job when they want other resources, or want it to be left alone."""
    return job.cpus_per_task, job.min_cpus, job.mem_per_node_mib, job.mem_per_cpu_mib, job.comment


def ended(job: QueuedJob | None) -> str:
    """Return a message if a job is gone or has started; '' if it waits."""
    if job is None:
        return "gone"
    return "" if job.waits else "started"


def resource_words(job: QueuedJob, change: Resize) -> list[str]:
    """Return the fields to write. The numbers of CPUs must agree with each other, or the job keeps what it had.

    If slurmctld also has the CPUs of a task in TresPerTask, srun inside the job compares the two and aborts if they
    differ: 25.05 to 25.11.1 export TresPerTask, and do not change it by themselves. Memory is never written alone:
    26.05 cuts that of a running job, if it has an extern step, and cannot raise it again. For a job that has started
    it refuses CPUs, with all that is in the same update, even if they are what the job has.
    """
    words: list[str] = []
    if change.mem_per_node_mib is not None and change.mem_per_node_mib != job.mem_per_node_mib:
        words.append(f"MinMemoryNode={change.mem_per_node_mib}")
    if change.mem_per_cpu_mib is not None and change.mem_per_cpu_mib != job.mem_per_cpu_mib:
        words.append(f"MinMemoryCPU={change.mem_per_cpu_mib}")
    if change.cpus_per_task is not None and change.cpus_per_task != job.cpus_per_task:
        least = -(-job.min_cpus_per_node * change.cpus_per_task // max(1, job.cpus_per_task))
        words += [
            f"CPUsPerTask={change.cpus_per_task}",
            f"NumCPUs={change.cpus_per_task * job.num_tasks}",
            f"MinCPUsNode={least}",
        ]
        if of_task := with_cpus(job.tres_per_task, change.cpus_per_task):
            words.append(f"{PER_TASK}={of_task}")
    elif words:
        words.append(f"CPUsPerTask={job.cpus_per_task}")
    return words


def is_split(job: QueuedJob, mem_per_cpu_mib: int | None, cpus_per_task: int | None) -> bool:
    """Whether a job has what slurmctld makes of memory per CPU above MaxMemPerCPU: more CPUs, with less for each.

    It does so both at submission and at an update (`_valid_pn_min_mem`).
    """
    times, rest = divmod(job.cpus_per_task, cpus_per_task or 1)
    if not mem_per_cpu_mib or rest or times < 2:
        return False
    return job.mem_per_cpu_mib == -(-mem_per_cpu_mib // times)


def is_raised(job: QueuedJob, mem_per_cpu_mib: int | None, cpus_per_task: int | None) -> bool:
    """Whether a job has what 24.05.2 to 24.11.0 make of such a share: more CPUs, but none for its tasks.

    For one task, the minimum on a node is raised; for several, the job's CPUs. A user's `--mincpus` looks the same,
    so this is meaningful only for a job to which the share has just been written.
    """
    if not mem_per_cpu_mib or not cpus_per_task or job.cpus_per_task != cpus_per_task:
        return False
    least = job.min_cpus_per_node if job.num_tasks == 1 else 0
    times, rest = divmod(max(least, job.cpus // max(1, job.num_tasks)), cpus_per_task)
    return times > 1 and not rest and job.mem_per_cpu_mib == -(-mem_per_cpu_mib // times)


def has(job: QueuedJob, change: Resize) -> bool:
    """Whether a job is as a change wants it; a job that started with it may have been given more CPUs."""
    if is_split(job, change.mem_per_cpu_mib, change.cpus_per_task):
        return change.admin_comment in (None, job.admin_comment)
    cpus = change.cpus_per_task and change.cpus_per_task * change.num_tasks
    wanted = (
        (change.mem_per_node_mib, job.mem_per_node_mib),
        (change.mem_per_cpu_mib, job.mem_per_cpu_mib),
        (change.cpus_per_task, job.cpus_per_task),
        (cpus, job.cpus if job.waits else cpus),
        (change.admin_comment, job.admin_comment),
    )
    return all(value is None or value == found for value, found in wanted)


def said(complaint: str) -> str:
    """Return what is left of a complaint without the answers of single tasks that no longer wait."""
    return "; ".join(
        part
        for part in complaint.split("; ")
        if not (_TASK.match(part) and any(word in part for word in (*_PAST, _FINE)))
    )


def _resources(job: QueuedJob, change: Resize) -> list[str]:
    return [f"--uid={job.uid}", "update", f"JobId={target_of(job)}", *resource_words(job, change)]


def _comment(job: QueuedJob, text: str) -> list[str]:
    return ["update", f"JobId={target_of(job)}", f"AdminComment={text}"]


def _correct_started(complaint: str, before: QueuedJob, update: Update) -> None:
    """Give tasks that started before their resources were changed the old comment back: it says what they have."""
    for part in complaint.split("; "):
        tasks = _TASK.match(part)
        if tasks and any(past in part for past in _PAST):
            started = msgspec.structs.replace(before, array_tasks=tasks[1])
            update(_comment(started, before.admin_comment))


def _take_back(before: QueuedJob, after: QueuedJob | None, change: Resize, update: Update) -> None:
    """Put back what a failed change has left; what has started runs with what it started with."""
    if after is None:
        return
    if after.admin_comment != before.admin_comment:
        update(_comment(after, before.admin_comment))
    if not after.waits:
        return
    as_before = msgspec.structs.replace(
        change,
        cpus_per_task=before.cpus_per_task,
        mem_per_node_mib=before.mem_per_node_mib,
        mem_per_cpu_mib=before.mem_per_cpu_mib,
    )
    if resource_words(after, as_before):
        update(_resources(after, as_before))
