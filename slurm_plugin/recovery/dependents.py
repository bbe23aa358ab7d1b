"""Jobs that wait for one to succeed, and that Slurm gave up when it failed: once it is back they may wait on. Pure.

Slurm looks at a dependency when its job ends. One of `afterok` or `aftercorr` is then failed for good, whatever becomes
of the job later, unless the same dependency is set anew. `afterok` of a whole array is failed for good all the same:
Slurm goes by the highest exit code that any of its tasks ever ended with (test_job_array_complete, 22.05 to 26.05), so
that only a dependency on its tasks one by one would help. Which tasks these are slurmctld does not tell.
"""

from __future__ import annotations

import re
from collections.abc import Collection

# `afterok:7_*(failed),afterany:9+5(unfulfilled)`, as squeue prints what is left of a dependency.
_FAILED = re.compile(r"(?:afterok|aftercorr):(\d+)(?:_(\d+|\*))?(?:\+\d+)?\(failed\)")
_OF_WHOLE_ARRAY = re.compile(r"afterok:(\d+)_\*\(failed\)")
_STATE = re.compile(r"(?:_\*)?\((?:failed|unfulfilled)\)")
_PLAIN = re.compile(r"[a-z]+(?::\d+(?:_\d+)?(?:\+\d+)?)?(?:[,?][a-z]+(?::\d+(?:_\d+)?(?:\+\d+)?)?)*")


def failed_by(dependency: str) -> set[int]:
    """Return the jobs and arrays that have failed a dependency."""
    return {int(job) for job, _ in _FAILED.findall(dependency)}


def stuck_by(dependency: str) -> set[int]:
    """Return the arrays that have failed a dependency on all of each, which nothing mends."""
    return set(map(int, _OF_WHOLE_ARRAY.findall(dependency)))


def mended(dependency: str, back: Collection[int]) -> str:
    """Return a dependency to set anew, '' where none of the jobs that failed it is back, or that would not help.

    `back` are jobs that were queued again, and the arrays that they are tasks of. A dependency in a form that is not
    understood stays.
    """
    if not failed_by(dependency) & set(back) or stuck_by(dependency):
        return ""
    plain = _STATE.sub("", dependency)
    return plain if _PLAIN.fullmatch(plain) else ""
