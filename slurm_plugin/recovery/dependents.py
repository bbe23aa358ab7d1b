"""Jobs that Slurm gave up when one that they need to succeed failed: once that is back, they may wait on. Pure.

Slurm evaluates a dependency when its job ends. A dependency by `afterok` or `aftercorr` has then failed for good,
whatever becomes of the job later, unless the same dependency is set again. `afterok` on a whole array has failed for
good even so: Slurm goes by the highest exit code with which any of its tasks ever ended (test_job_array_complete,
22.05 to 26.05), so only a dependency on its tasks one by one would help. slurmctld does not say which tasks these
are.
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
    """Return the jobs and arrays whose failure has failed a dependency."""
    return {int(job) for job, _ in _FAILED.findall(dependency)}


def stuck_by(dependency: str) -> set[int]:
    """Return the arrays that have failed a dependency on all their tasks, which nothing repairs."""
    return set(map(int, _OF_WHOLE_ARRAY.findall(dependency)))


def mended(dependency: str, back: Collection[int]) -> str:
    """Return a dependency to set again; '' if none of the jobs that failed it is back, or that would not help.

    `back` are jobs that were requeued, and the arrays that they are tasks of. A dependency in a form that is not
    understood is left as it is.
    """
    if not failed_by(dependency) & set(back) or stuck_by(dependency):
        return ""
    plain = _STATE.sub("", dependency)
    return plain if _PLAIN.fullmatch(plain) else ""
