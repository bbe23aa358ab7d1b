"""The demo's jobs: five families, of which four ask for far more than they use. The scripts are in jobs/."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from accounting.errors import SlurmError
from accounting.frames import attempts_in
from accounting.labels.attempts import label
from accounting.records import Attempt
from accounting.slurm.sacct import query_sacct
from accounting.slurm.sacct_records import Metering, read_answer

JOBS = Path(__file__).parent / "jobs"
FAMILIES = ("align", "assemble", "ensemble", "train-net", "modest")
POLL_S = 0.5
# A busy slurmdbd shows a job's end before its admin comment, which says what was asked for.
TOKEN_PATIENCE_S = 10.0


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """A group of jobs that ended: `span_s` from first submission to last end, `side_by_side` at most at one time."""

    attempts: tuple[Attempt, ...]
    span_s: int
    side_by_side: int


def submit(family: str) -> tuple[int, str]:
    """Submit one job of a family with plain sbatch; return its id, and what sbatch printed for its user."""
    command = ["sbatch", "--parsable", "--output=/dev/null", str(JOBS / f"{family}.sbatch")]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        raise SlurmError(f"sbatch rejected {family}: {finished.stderr.strip()}; see the sandbox's log folder")
    return int(finished.stdout.split(";")[0]), finished.stderr.strip()


def wait_until_ended(job_ids: Sequence[int], progress: Callable[[int], None], patience_s: float) -> None:
    """Wait until none of the jobs is queued or running; `progress` is called with the number of jobs left.

    Raises SlurmError after `patience_s`, or if squeue fails.
    """
    wanted, deadline_s = set(job_ids), time.monotonic() + patience_s
    while True:
        listing = subprocess.run(
            ["squeue", "--noheader", "--format=%A"], capture_output=True, text=True, check=False
        )
        if listing.returncode != 0:
            raise SlurmError(f"squeue failed: {listing.stderr.strip()}; see the sandbox's log folder")
        left = wanted & {int(word) for word in listing.stdout.split()}
        progress(len(left))
        if not left:
            return
        if time.monotonic() > deadline_s:
            raise SlurmError(f"{len(left)} jobs have not ended after {patience_s:.0f} s; see `squeue`")
        time.sleep(POLL_S)


def read_queue(job_ids: Sequence[int], since_s: int, patience_s: float = 30) -> Queue:
    """Return what sacct says of jobs that have ended; wait until slurmdbd has the last one.

    Raises SlurmError if it does not have it after `patience_s`.
    """
    wanted, deadline_s = set(job_ids), time.monotonic() + patience_s
    tokens_until_s = time.monotonic() + TOKEN_PATIENCE_S
    while True:
        until_s = int(time.time()) + 60
        answer = query_sacct("sacct", since_s, until_s)
        ended = (attempts_in(label(records)) for records in read_answer(answer, until_s, Metering()))
        attempts = tuple(one for part in ended for one in part if one.row.job_id in wanted)
        told = all(one.decision_id for one in attempts) or time.monotonic() > tokens_until_s
        if len(attempts) >= len(wanted) and told:
            return summarise(attempts)
        if time.monotonic() > deadline_s:
            raise SlurmError(f"sacct shows {len(attempts)} of {len(wanted)} ended jobs; see slurmdbd's log")
        time.sleep(POLL_S)


def summarise(attempts: Sequence[Attempt]) -> Queue:
    """Return the attempts with their span, and the largest number that ran at one time."""
    starts = [attempt.row.start_s for attempt in attempts]
    most = max(sum(a.row.start_s <= start_s < a.row.end_s for a in attempts) for start_s in starts)
    first_s = min(attempt.row.submit_s for attempt in attempts)
    last_s = max(attempt.row.end_s for attempt in attempts)
    return Queue(attempts=tuple(attempts), span_s=last_s - first_s, side_by_side=most)


def install_work(folder: Path) -> None:
    """Install `pretend-work` in a folder that is on the jobs' PATH."""
    program = folder / "pretend-work"
    work = Path(__file__).parent / "pretend_work.py"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(work))} "$@"\n')
    program.chmod(0o755)
