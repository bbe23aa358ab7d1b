"""Whether sacct's answer about a window is whole. Pure but for the questions that it asks.

sacct writes no end mark, and what runs it for a site (ssh, a container's command) may lose the end of its output and
still exit 0. A cut in the middle of a line shows. A cut between two lines shows in two ways: the texts, which were
asked for first, go on with attempts that the figures lack; and the last job of the figures has fewer rows than when it
is asked for by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from accounting.errors import SlurmError

# Of rows behind the last known one, so many are looked up: the rest of a forger's name is no reason to go on for ever.
MOST_LOOKED_UP = 20


def refuse_unknown_end(
    rows: Iterable[tuple[str, str]], known: Callable[[str, str], bool], submits: Callable[[str], list[str]]
) -> None:
    """Raise SlurmError where the texts end with an attempt that Slurm has, and the figures lack.

    `rows` are the ids and times of submission that the texts have, the last first; `submits` asks Slurm for the times
    at which a job was submitted. A row that somebody forged is of no such attempt.
    """
    looked_up = 0
    for job_id, submit in rows:
        if known(job_id, submit):
            return
        if not (job_id.isdigit() and submit.isdigit()):
            continue
        if submit in submits(job_id):
            raise _cut_off(f"job {job_id} is missing")
        looked_up += 1
        if looked_up == MOST_LOOKED_UP:
            return


def refuse_lost_steps(job_id: str, rows: int, count_rows: Callable[[str], int]) -> None:
    """Raise SlurmError where the figures' last job, which has ended, has fewer rows there than Slurm has of it."""
    if rows < count_rows(job_id):
        raise _cut_off(f"steps of job {job_id} are missing")


def _cut_off(what: str) -> SlurmError:
    return SlurmError(
        f"sacct's output was cut off ({what}), although it ended well; "
        "look at what accounting.sacct runs, and try again"
    )
