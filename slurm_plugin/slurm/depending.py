"""How a job that Slurm has given up because another failed is made to wait for that other job again.

Slurm leaves such a job in the queue, or cancels it (kill_invalid_depend, `--kill-on-invalid-dep=yes`). A cancelled
job is first queued again, and held. Until its dependency is set again, Slurm may cancel it again (22.05, when it next
looks at the queue): then it is queued again once more. The writer may be interrupted at any step; the next one
continues.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from slurm_plugin.slurm.job_lines import is_held_again, parse_plain, records_of
from slurm_plugin.slurm.queue import Dependent
from slurm_plugin.slurm.resizing import Update
from slurm_plugin.slurm.snapshot import QueuedJob
from slurm_plugin.slurm.targets import target_of

CANCELLED = "CANCELLED"
GONE, NOT_KEPT = "gone", "not kept"
NOT_BY_SLURM = "cancelled, and not by Slurm"
# `--kill-on-invalid-dep`; 22.05 to 25.11 misspell it.
_OWN_WORD = re.compile(r"^   KillO(?:n|In)InvalidDependent=(Yes|No)", re.MULTILINE)
_KILLS = "kill_invalid_depend"
# Each look at a job counts as a step too.
_MOST_STEPS = 8


def depend(change: Dependent, show: Callable[[int], str], update: Update, kills: Callable[[], bool]) -> str:
    """Carry out the change, or what is left of it; return why that failed, '' if it is done.

    `show` returns what scontrol shows of a job, `kills` whether the site cancels jobs whose dependency has failed.
    Raises SlurmError if slurmctld does not answer.
    """
    problem = before = ""
    for _ in range(_MOST_STEPS):
        shown = show(change.job_id)
        job = next((one for one in parse_plain(shown) if one.job_id == change.job_id), None)
        if job is None:
            return GONE
        # For an array, Slurm also complains about tasks that it does change: the next look shows the truth.
        if problem and job.state == before:
            return problem
        before, target = job.state, target_of(job)
        wanted = (f"--uid={change.uid}", "update", f"JobId={target}", f"Dependency={change.dependency}")
        if job.state == CANCELLED:
            if not is_killed(shown, job, kills):
                return NOT_BY_SLURM
            problem = update(("requeuehold", target))
        elif not is_held_again(job):
            return update(wanted)
        # Slurm makes a job that is queued again wait for two minutes.
        elif not (problem := update((*wanted, "StartTime=now"))):
            return update(("release", target))
    return problem or NOT_KEPT


def is_killed(shown: str, job: QueuedJob, kills: Callable[[], bool]) -> bool:
    """Whether Slurm has cancelled a job for its dependency: if it would not, the job's user has cancelled it."""
    [block] = [block for block in records_of(shown) if block.startswith(f"JobId={job.job_id} ")][:1]
    own = _OWN_WORD.search(block)
    return own[1] == "Yes" if own else kills()


def site_kills(config: Mapping[str, str]) -> bool:
    """Whether the settings in `scontrol show config` say that jobs whose dependency has failed are cancelled."""
    return _KILLS in config.get("DependencyParameters", "").split(",")
