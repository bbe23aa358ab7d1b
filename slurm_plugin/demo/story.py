"""The demo on a real Slurm: a history of jobs, training, the same jobs with the hook enforcing, and the results."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from accounting.errors import RightsizerError
from slurm_plugin.demo.workload import FAMILIES, Queue, install_work, read_queue, submit, wait_until_ended
from slurm_plugin.sandbox import cluster
from slurm_plugin.sandbox.environment import foreign_variables

HISTORY_ROUNDS = 14
HISTORY_GAP_S = 2.0
HISTORY_JOB_S = 2.5
QUEUE_ROUNDS = 10
QUEUE_JOB_S = 5.0
PATIENCE_S = 240.0


class Voice(msgspec.Struct, frozen=True):
    """How the demo reports: `say` prints a line that stays, `tick` one that the next replaces."""

    say: Callable[[str], None]
    tick: Callable[[str], None]

    def left(self, jobs: int) -> None:
        """Show how many jobs have not ended yet."""
        self.tick(f"{jobs} jobs left")


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The results: the same queue before and after, and the line that a user was shown."""

    before: Queue
    after: Queue
    user_line: str


def begin(directory: Path, voice: Voice) -> cluster.Sandbox:
    """Start the private Slurm in `directory`; SandboxError or SlurmError, with nothing left running, if that fails."""
    voice.say(
        "starting a private Slurm: munge, MariaDB, slurmdbd, slurmctld, four nodes, and the rightsizer "
        "service"
    )
    # An earlier demo in the same folder left the mode at `enforce`.
    return cluster.start(cluster.Options(directory=directory, mode="observe"), voice.tick)


def tell(sandbox: cluster.Sandbox, voice: Voice) -> Outcome:
    """Run the whole demo in a private Slurm, which the caller has to stop.

    Raises SandboxError, SlurmError or RightsizerError if a step fails.
    """
    say = voice.say
    for name in foreign_variables():
        del os.environ[name]
    os.environ.update(sandbox.environment())
    install_work(sandbox.layout.bin)
    enforcement = sandbox.manifest.enforcement
    enforced = "enforced" if enforcement.memory else "not enforced"
    say(f"{sandbox.manifest.release}; memory limits {enforced}: {enforcement.reason}")
    say(
        f"mode observe: {HISTORY_ROUNDS} rounds of {len(FAMILIES)} job families, to have a past to learn from"
    )
    run_history(voice)
    say(f"the queue with the requests that people make: {QUEUE_ROUNDS * len(FAMILIES)} jobs at once")
    before, _ = run_queue(voice)
    for command in ("ingest", "train", "evaluate"):
        say(f"$ rightsizer {command}")
        for line in run_command(command).splitlines():
            say(f"    {line}")
    cluster.set_mode(sandbox.directory, "enforce")
    say("mode enforce: the same scripts, the same sbatch, the same queue")
    after, user_line = run_queue(voice)
    return Outcome(before=before, after=after, user_line=user_line)


def run_history(voice: Voice) -> None:
    """Submit the families round by round, so that earlier jobs have ended when later ones come, and wait for all."""
    os.environ["PRETEND_SECONDS"] = str(HISTORY_JOB_S)
    job_ids: list[int] = []
    for number in range(HISTORY_ROUNDS):
        voice.tick(f"round {number + 1} of {HISTORY_ROUNDS}")
        job_ids += [submit(family)[0] for family in FAMILIES]
        time.sleep(HISTORY_GAP_S)
    wait_until_ended(job_ids, voice.left, PATIENCE_S)
    voice.say(f"{len(job_ids)} jobs have run")


def run_queue(voice: Voice) -> tuple[Queue, str]:
    """Submit the whole queue at once and wait for its end; return it, and the first message that a user was shown."""
    os.environ["PRETEND_SECONDS"] = str(QUEUE_JOB_S)
    since_s = int(time.time())
    submitted = [submit(family) for _ in range(QUEUE_ROUNDS) for family in FAMILIES]
    job_ids = [job_id for job_id, _ in submitted]
    wait_until_ended(job_ids, voice.left, PATIENCE_S)
    queue = read_queue(job_ids, since_s)
    voice.say(f"{len(job_ids)} jobs took {queue.span_s} s, at most {queue.side_by_side} at a time")
    return queue, next((line for _, line in submitted if line), "")


def run_command(*words: str) -> str:
    """Run a `rightsizer` command as a user would, and return its output; RightsizerError if it fails."""
    finished = subprocess.run(
        [sys.executable, "-m", "slurm_plugin.cli", *words], capture_output=True, text=True, check=False
    )
    if finished.returncode != 0:
        raise RightsizerError(f"`rightsizer {' '.join(words)}` failed: {finished.stderr.strip()}")
    return (finished.stdout + finished.stderr).strip()
