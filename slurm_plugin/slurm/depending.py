"""How a job that Slurm gave up, for one that failed, waits for that one again; every step may be its writer's last.

Slurm leaves such a job in the queue, or cancels it (kill_invalid_depend, `--kill-on-invalid-dep=yes`). One that it has
cancelled is queued again first, and held. Until its dependency is set anew Slurm may cancel it again (22.05, at its
next look at the queue): then it is queued again once more. Whoever is cut off before that is continued by the next one.
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
# Each look at a job is a step too.
_MOST_STEPS = 8


def depend(change: Dependent, show: Callable[[int], str], update: Update, kills: Callable[[], bool]) -> str:
    """Carry it out, or what is left of it; return why not, '' where it is done.

    `show` gives what scontrol shows of a job, `kills` whether the site cancels jobs whose dependency has failed.
    SlurmError where slurmctld does not answer.
    """
    problem = before = ""
    for _ in range(_MOST_STEPS):
        shown = show(change.job_id)
        job = next((one for one in parse_plain(shown) if one.job_id == change.job_id), None)
        if job is None:
            return GONE
        # Of an array Slurm also complains of what it does: the next look tells.
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
    """Whether Slurm has cancelled a job for its dependency: one that it does not kill, its user has cancelled."""
    [block] = [block for block in records_of(shown) if block.startswith(f"JobId={job.job_id} ")][:1]
    own = _OWN_WORD.search(block)
    return own[1] == "Yes" if own else kills()


def site_kills(config: Mapping[str, str]) -> bool:
    """Whether the words of `scontrol show config` say that jobs whose dependency has failed are cancelled."""
    return _KILLS in config.get("DependencyParameters", "").split(",")
