"""Two rounds of recovery as its unit runs them with the drop-in: not as root, with only CAP_SETUID and CAP_SETGID.

test_output.py runs it under setpriv. Its input is JSON: uid, outputs of job 1, journal. Job 2 is another user's.
It prints what each round requeued, and what the outputs of job 1 say.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from slurm_plugin.recovery import output
from slurm_plugin.recovery.journal import Journal
from slurm_plugin.recovery.rounds import Recoverer
from slurm_plugin.slurm.queue import Dependent, Failed, Requeue, Written
from slurm_plugin.slurm.snapshot import QueuedJob
from tests.slurm_plugin.recovery.test_judging import failed


class Gate:
    """A controller with two failed jobs; it only counts what is requeued."""

    def __init__(self, uid: int, outputs: Sequence[str]) -> None:
        first, second = failed("FAILED", "1:0"), failed("OUT_OF_MEMORY")
        self.runs = {
            1: msgspec.structs.replace(
                first, job=msgspec.structs.replace(first.job, job_id=1, uid=uid), outputs=tuple(outputs)
            ),
            2: msgspec.structs.replace(second, job=msgspec.structs.replace(second.job, job_id=2)),
        }
        self.requeued: list[int] = []

    def failed_jobs(self, *, again: bool) -> dict[int, str]:
        del again
        return {job_id: run.job.state for job_id, run in self.runs.items()}

    def failed(self, job_id: int) -> Failed | None:
        return self.runs.get(job_id)

    def failed_of(self, job_ids: Sequence[int]) -> dict[int, Failed | None]:
        return {job_id: self.failed(job_id) for job_id in job_ids}

    def carries(self, job: QueuedJob) -> bool:
        return job.job_id in self.runs

    def requeue(self, wanted: Requeue, kept_open: Sequence[int] = (), *, only_hold: bool = False) -> Written:
        del kept_open, only_hold
        self.requeued.append(wanted.change.job_id)
        return Written(job_id=wanted.change.job_id)

    def given_up(self) -> list[Dependent]:
        return []

    def depend(self, change: Dependent) -> Written:
        return Written(job_id=change.job_id)


def main() -> None:
    """Run two rounds and print their results."""
    uid, outputs, journal = json.load(sys.stdin)
    gate, rounds, said, read = Gate(uid, outputs), [], [], output.Outputs()

    def said_by(run: Failed) -> object:
        said.append(read.said_by(run))
        return said[-1]

    recoverer = Recoverer(gate, Journal(Path(journal)), apply=True, most=10, said_by=said_by)  # type: ignore[arg-type]
    for _ in range(2):
        recoverer.round()
        rounds.append(list(gate.requeued))
    print(json.dumps({"unable": output.why_unable(), "rounds": rounds, "said": said}))


if __name__ == "__main__":
    main()
