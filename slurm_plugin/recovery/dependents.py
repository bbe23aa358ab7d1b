"""Jobs that Slurm gave up when one that they need to succeed failed: once that is back, they may wait on. Pure.

Slurm evaluates a dependency when its job ends. A dependency by `afterok` or `aftercorr` has then failed for good,
whatever becomes of the job later, unless the same dependency is set again. `afterok` on a whole array has failed for
good even so: Slurm goes by the highest exit code with which any of its tasks ever ended (test_job_array_complete,
22.05 to 26.05), so only a dependency on its tasks one by one would help. slurmctld does not say which tasks these
are.

A dependency is set again only once all that failed it are back. Of a job that slurmctld has forgotten meanwhile it
takes such a dependency for granted, even if that job failed by itself (22.05).
"""

from __future__ import annotations

import re
from collections.abc import Collection

# A job by its number; a task of an array by that of the array, and its own.
Named = tuple[int, str]

# `afterok:7_*(failed),afterany:9+5(unfulfilled)`, as squeue prints what is left of a dependency.
_FAILED = re.compile(r"([a-z]+):(\d+)(?:_(\d+|\*))?(?:\+\d+)?\(failed\)")
_MENDED = ("afterok", "aftercorr")
_OF_WHOLE_ARRAY = re.compile(r"afterok:(\d+)_\*\(failed\)")
_STATE = re.compile(r"(?:_\*)?\((?:failed|unfulfilled)\)")
_PLAIN = re.compile(r"[a-z]+(?::\d+(?:_\d+)?(?:\+\d+)?)?(?:[,?][a-z]+(?::\d+(?:_\d+)?(?:\+\d+)?)?)*")


def failed_by(dependency: str, task: str) -> set[Named]:
    """Return the jobs and tasks whose end has failed a dependency of a job, which may itself be a task of an array.

    A job that waits by `afterok` for a whole array needs all tasks, `*`.
    """
    return {(int(job), _needed(kind, its, task)) for kind, job, its in _FAILED.findall(dependency)}


def _needed(kind: str, its: str, task: str) -> str:
    """Return which task has to come back; `*` if none can help, as with `afternotok`."""
    if kind == "aftercorr" and its == "*":
        return task
    return its if kind in _MENDED else "*"


def stuck_by(dependency: str) -> set[int]:
    """Return the arrays that have failed a dependency on all their tasks, which nothing repairs."""
    return set(map(int, _OF_WHOLE_ARRAY.findall(dependency)))


def mended(dependency: str, task: str, back: Collection[Named]) -> str:
    """Return a dependency to set again; '' if what failed it is not back, or that would not help.

    `back` are jobs that were requeued. If any one of several jobs would do (`?`), those that are not back are left
    out. A dependency in a form that is not understood is left as it is.
    """
    hopeful = [part for part in dependency.split("?") if failed_by(part, task) <= set(back)]
    if not any(failed_by(part, task) for part in hopeful):
        return ""
    plain = _STATE.sub("", "?".join(hopeful))
    return plain if _PLAIN.fullmatch(plain) else ""
