"""One job in slurmctld, as recovery meets it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from slurm_plugin.recovery.journal import Entry, Journal
from slurm_plugin.recovery.rounds import Recoverer
from slurm_plugin.slurm import requeuing
from slurm_plugin.slurm.job_lines import HELD_AGAIN, parse_failed_jobs
from slurm_plugin.slurm.queue import Dependent, Failed, Requeue, Written
from slurm_plugin.slurm.snapshot import QueuedJob
from tests.slurm_plugin.slurm.memory_queue import Killed


class Controller:
    """One job in slurmctld as a gateway shows it; it knows the commands that recovery sends, and refuses all others.

    A command of which it `complains` is executed all the same.
    `before_write` and `after_write` are called with the number of the write; they may raise.
    """

    def __init__(self, run: Failed) -> None:
        self.run: Failed | None = run
        self.writes: list[tuple[str, ...]] = []
        self.requeues = self.looks_again = 0
        self.refuses, self.complaint = "", "Access/permission denied"
        self.complains = ""
        self.dependents: list[Dependent] = []
        self.forgers = set[int]()
        self.before_write: Callable[[int], None] = lambda _: None
        self.after_write: Callable[[int], None] = lambda _: None

    def failed_jobs(self, *, again: bool) -> dict[int, str]:
        if self.run is None:
            return {}
        job = self.run.job
        states = (*requeuing.FAILED, *(("PENDING",) if again else ()))
        seen = (job.job_id, job.state, "N/A", self.run.restarts, 0 if job.held else 1, job.reason, job.uid)
        line = "".join(f"{one}|" for one in seen)
        self.looks_again += again
        return parse_failed_jobs(line) if job.state in states else {}

    def given_up(self) -> list[Dependent]:
        return [job for job in self.dependents if "(failed)" in job.dependency]

    def depend(self, change: Dependent) -> Written:
        self.dependents = [change if job.job_id == change.job_id else job for job in self.dependents]
        return Written(job_id=change.job_id)

    def failed(self, job_id: int) -> Failed | None:
        return self.run if self.run and self.run.job.job_id == job_id else None

    def failed_of(self, job_ids: Sequence[int]) -> dict[int, Failed | None]:
        return {job_id: self.failed(job_id) for job_id in job_ids}

    def carries(self, job: QueuedJob) -> bool:
        return job.job_id not in self.forgers

    def requeue(self, wanted: Requeue, kept_open: Sequence[int] = (), *, only_hold: bool = False) -> Written:
        assert len(kept_open) == 1
        return requeuing.requeue(wanted, self.failed, self.update, lambda _: None, only_hold=only_hold)

    def update(self, words: Sequence[str]) -> str:
        number = len(self.writes)
        self.before_write(number)
        self.writes.append(tuple(words))
        if self.refuses and any(word.startswith(self.refuses) for word in words):
            return self.complaint
        assert self.run is not None
        if words[0] == "requeuehold":
            self._hold()
        elif words[0] == "release":
            assert self.run.job.held
            self._set(held=False, reason="None")
        else:
            assert "update" in words
            assert self.run.job.state in ("PENDING", "RUNNING"), (
                "slurmctld changes nothing of a job that has ended"
            )
            assert self.run.job.state == "PENDING" or any(word.startswith("AdminComment=") for word in words)
            self._change(dict(word.split("=", 1) for word in words if "=" in word))
        self.after_write(number)
        return self.complains

    def _hold(self) -> None:
        assert self.run is not None
        assert self.run.job.state in requeuing.FAILED
        self.requeues += 1
        self._set(state="PENDING", held=True, reason=HELD_AGAIN, restarts=self.run.restarts + 1)

    def _change(self, fields: dict[str, str]) -> None:
        assert ("--uid" in fields) != ("AdminComment" in fields)
        if "AdminComment" in fields:
            self._set(admin_comment=fields["AdminComment"])
            return
        assert self.run is not None
        assert (fields.get("StartTime") == "now") is self.run.job.held
        asked = {name: fields.pop(name) for name in [*fields] if "Tres" in name}
        if asked:
            self.run = msgspec.structs.replace(self.run, gpu_fields={**self.run.gpu_fields, **asked})
        self._set(cpus_per_task=int(fields["CPUsPerTask"]), mem_per_node_mib=int(fields["MinMemoryNode"]))

    def _set(self, **fields: Any) -> None:
        assert self.run is not None
        self.run = msgspec.structs.replace(self.run, job=msgspec.structs.replace(self.run.job, **fields))

    def fail(self) -> None:
        """Let the job run, and fail again."""
        assert self.run is not None
        assert not self.run.job.held
        self._set(state="OUT_OF_MEMORY", reason="OutOfMemory")


def recoverer(gate: Controller, folder: Path, *, apply: bool = True) -> Recoverer:
    return Recoverer(gate, Journal(folder), apply=apply, most=10)


def entries(folder: Path) -> list[Entry]:
    return list(Journal(folder).newest().values())


def assert_back(gate: Controller) -> None:
    assert gate.run is not None
    job = gate.run.job
    assert (job.state, job.held, job.cpus_per_task, job.mem_per_node_mib) == ("PENDING", False, 8, 8000)
    assert (gate.requeues, gate.run.restarts) == (1, 1)


def kill_at(gate: Controller, folder: Path, step: int, *, after: bool) -> None:
    """Run a round that is killed before, or after, one of its writes."""

    def die(number: int) -> None:
        if number == step:
            raise Killed

    gate.after_write, gate.before_write = (die, lambda _: None) if after else (lambda _: None, die)
    with pytest.raises(Killed):
        recoverer(gate, folder).round()
    gate.after_write = gate.before_write = lambda _: None
