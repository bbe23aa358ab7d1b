"""The one module that reads /proc and Slurm's cgroups: which job a process is of, and which jobs run on this host."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from accounting.gpu_collector.attribution import (
    Claim,
    JobHere,
    claim_of,
    job_of_cgroup,
    slurm_variables,
)

# Where slurmstepd makes a job's cgroup, below the mount point (of one controller in v1).
PLACES = (  # the first that has a job counts
    "system.slice/*slurmstepd.scope/job_*",
    "*slurmstepd.scope/job_*",
    "freezer/slurm*/uid_*/job_*",
    "memory/slurm*/uid_*/job_*",
    "cpuset/slurm*/uid_*/job_*",
    "devices/slurm*/uid_*/job_*",
)
# A job's first processes are slurmstepd's own and carry no variables of the job's; past these it has none.
MOST_READ = 16
MOST_TRIES = 5


@dataclass
class RunningJob:
    """A job with a cgroup on this host. `uid` is its user's, None until a process of his was seen."""

    folder: Path
    uid: int | None = None
    claim: Claim = field(default_factory=Claim)
    tries: int = 0


class JobProcesses:
    """What the kernel tells of jobs here. `node` is this host's name to Slurm; the two folders are for tests."""

    def __init__(self, node: str, proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> None:
        self._node = node
        self._proc = proc
        self._cgroup = cgroup
        self._job_of: dict[int, JobHere | None] = {}
        self._running: dict[JobHere, RunningJob] = {}
        self._claims: list[tuple[JobHere, Claim]] = []
        self._trusted_uid: dict[JobHere, int] = {}

    def trust(self, job_id: int, uid: int) -> None:
        """Believe the processes of a user that say they are of a job here, though Slurm made no cgroup for it."""
        self._trusted_uid[JobHere(job_id, self._node)] = uid

    def look_again(self) -> None:
        """Find the jobs that run now, and forget whose processes were: ids come again."""
        self._job_of.clear()
        found: dict[JobHere, Path] = {}
        for job, folder in self._folders():
            found.setdefault(job, folder)
        self._running = {job: self._running.get(job) or RunningJob(folder) for job, folder in found.items()}
        for job, running in self._running.items():
            # Slurm's cgroup says more than the processes do: whoever is left outside it is not the job any more.
            running.uid = self._trusted_uid.pop(job, running.uid)
            if running.tries < MOST_TRIES and running.claim == Claim():
                self._read_claim(running)
        # A slurmstepd that was killed leaves its cgroups behind: without a process they hold no GPU.
        self._claims = [
            (job, one.claim)
            for job, one in self._running.items()
            if one.claim != Claim() and next(self._members(one.folder), None) is not None
        ]

    def _folders(self) -> Iterator[tuple[JobHere, Path]]:
        for place in PLACES:
            for folder in self._cgroup.glob(place):
                controllers = 0 if "slurmstepd.scope" in place else 1
                path = "/" + "/".join(folder.relative_to(self._cgroup).parts[controllers:])
                job = job_of_cgroup(f"0::{path}", self._node)
                if job is not None:
                    yield job, folder

    def _read_claim(self, running: RunningJob) -> None:
        running.tries += 1
        for pid in itertools.islice(self._members(running.folder), MOST_READ):
            uid, variables = self._owner(pid), slurm_variables(self._read(pid, "environ"))
            if running.uid is None and uid:
                running.uid = uid
            claim = claim_of(variables)
            if claim != Claim():
                running.claim = claim
                return

    def jobs_of(self, pids: Iterable[int]) -> dict[int, JobHere | None]:
        """Return the job of each process, None for those of no job."""
        return {pid: self._remembered(pid) for pid in pids}

    def keep(self, pids: Iterable[int]) -> None:
        """Forget all processes but these: an id that was away may come again as another process."""
        self._job_of = {pid: self._job_of[pid] for pid in pids if pid in self._job_of}

    def _remembered(self, pid: int) -> JobHere | None:
        if pid not in self._job_of:
            self._job_of[pid] = self._find(pid)
        return self._job_of[pid]

    def _find(self, pid: int) -> JobHere | None:
        job = job_of_cgroup(self._read(pid, "cgroup").decode(errors="replace"), self._node)
        return job or self._job_by_variables(pid)

    def _job_by_variables(self, pid: int) -> JobHere | None:
        """Return the job that a process names, where it belongs to the user whose job runs here."""
        named = slurm_variables(self._read(pid, "environ")).get("SLURM_JOB_ID", "")
        if not (named.isascii() and named.isdigit() and len(named) <= 18):
            return None
        uid = self._owner(pid)
        for job in itertools.chain(self._running, self._trusted_uid):
            running = self._running.get(job)
            owners = {self._trusted_uid.get(job), running.uid if running else None} - {None}
            if job.job_id == int(named) and uid in owners:
                return job
        return None

    def claimants(self, gpu: int, instance: int, uuid: str) -> list[JobHere]:
        """Return the running jobs that were allocated a GPU or instance, as far as their variables tell."""
        return [job for job, claim in self._claims if claim.covers(gpu, instance, uuid)]

    def lives(self, job_id: int) -> bool:
        """Whether a job still has a process on this node beside this one."""
        # Where several slurmd share a host, another cluster's may have a job of the same number.
        job = JobHere(job_id, self._node)
        running = self._running.get(job)
        if running and any(pid != os.getpid() for pid in self._members(running.folder)):
            return True
        return job in self._trusted_uid and self._is_named(job)

    def _is_named(self, job: JobHere) -> bool:
        """Whether a process names a job without a cgroup; whoever started this one may name it too."""
        pids = (int(entry.name) for entry in self._proc.iterdir() if entry.name.isdigit())
        return any(self._find(pid) == job for pid in pids if pid not in (os.getpid(), os.getppid()))

    def _members(self, folder: Path) -> Iterator[int]:
        # The deepest hold the tasks, the first of them slurmstepd itself.
        try:
            for file in folder.rglob("cgroup.procs"):
                yield from (int(line) for line in file.read_text(encoding="ascii").split())
        except (OSError, ValueError):
            return  # the job ended while we looked

    def _owner(self, pid: int) -> int | None:
        try:
            return (self._proc / str(pid)).stat().st_uid
        except OSError:
            return None

    def _read(self, pid: int, name: str) -> bytes:
        try:
            return (self._proc / str(pid) / name).read_bytes()
        except OSError:
            return b""  # it has ended, or is not ours to read
