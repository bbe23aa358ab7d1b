"""The only module that reads /proc and Slurm's cgroups: the job of each process, and the jobs that run on this host."""

from __future__ import annotations

import glob
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
    job_of_title,
    slurm_variables,
    top_of,
)

# Where slurmstepd makes a job's cgroup: in v2 below the top of Slurm's, in v1 below one controller's mount point.
V2_PLACES = ("*.slice/*slurmstepd.scope/[js]*", "*slurmstepd.scope/[js]*")
V1_PLACES = (  # the first that has a job counts
    "freezer/slurm*/uid_*/job_*",
    "memory/slurm*/uid_*/job_*",
    "cpuset/slurm*/uid_*/job_*",
    "devices/slurm*/uid_*/job_*",
)
# Where a step's slurmstepd is in v2; users cannot place a process there.
STEPD = "step_*/slurm/cgroup.procs"
# A step's first processes are slurmstepd's own and lack the job's variables. No more than this many are read at once,
# and a step in which none is found so often has none.
MOST_READ = 16
MOST_TRIES = 5


@dataclass
class RunningJob:
    """A job with a cgroup on this host. `uid` is its user's, None until one of the user's processes was seen.

    `tries` says how often each of its steps was read; MOST_TRIES: no more, because its GPUs are known, or it has none.
    `inode` is that of its folder: a job that was queued again has another folder of the same name.
    """

    folder: Path
    inode: int = 0
    uid: int | None = None
    claim: Claim = field(default_factory=Claim)
    tries: dict[str, int] = field(default_factory=dict)


class JobProcesses:
    """What the kernel knows of jobs here. `node` is this host's name in Slurm; the two folders are for tests."""

    def __init__(self, node: str, proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> None:
        self._node = node
        self._proc = proc
        self._cgroup = cgroup
        self._top = ""
        # A job that a process on a GPU names although Slurm has made no cgroup here at all.
        self.outside: int | None = None
        # Whether the kernel refused access to a job's process: this collector then lacks capabilities.
        self.kept_out = False
        self._job_of: dict[int, JobHere | None] = {}
        # By the path of a cgroup that does not name its job.
        self._numbers: dict[str, int] = {}
        self._running: dict[JobHere, RunningJob] = {}
        self._claims: list[tuple[JobHere, Claim]] = []
        self._trusted_uid: dict[JobHere, int] = {}

    def trust(self, job_id: int, uid: int) -> None:
        """Accept a user's processes that say they belong to a job here, although Slurm made no cgroup for it."""
        self._trusted_uid[JobHere(job_id, self._node)] = uid

    def look_again(self) -> None:
        """Find the jobs that run now, and forget the jobs of all processes: process ids are reused."""
        self._job_of.clear()
        self._top = top_of(self._read(1, "cgroup").decode(errors="replace"))
        self._numbers = {path: job_id for path, job_id in self._numbers.items() if self._below(path).is_dir()}
        found: dict[JobHere, Path] = {}
        for job, folder in self._folders():
            found.setdefault(job, folder)
        self._running = {job: self._known(job, folder) for job, folder in found.items()}
        for job, running in self._running.items():
            # Slurm's cgroup is more reliable than what processes say: a process outside it is no longer the job's.
            running.uid = self._trusted_uid.pop(job, running.uid)
            self._look_for_claims(running)
        # A slurmstepd that was killed leaves its cgroups behind: without processes, they hold no GPU.
        self._claims = [
            (job, one.claim)
            for job, one in self._running.items()
            if one.claim != Claim() and next(self._members(one.folder), None) is not None
        ]

    def _known(self, job: JobHere, folder: Path) -> RunningJob:
        """Return what is known of a job, but nothing of its earlier attempts."""
        running, inode = self._running.get(job), _inode(folder)
        if running and (running.folder, running.inode) == (folder, inode):
            return running
        return RunningJob(folder, inode)

    def _folders(self) -> Iterator[tuple[JobHere, Path]]:
        below = self._below(self._top)
        v2 = (
            (f"{self._top}/{found}", below / found)
            for place in V2_PLACES
            for found in _those_there(place, below)
        )
        v1 = (
            (f"/{found.partition('/')[2]}", self._cgroup / found)
            for place in V1_PLACES
            for found in _those_there(place, self._cgroup)
        )
        for path, folder in itertools.chain(v2, v1):
            job = self._job_in(f"0::{path}")
            if job is not None:
                yield job, folder

    def _job_in(self, cgroups: str) -> JobHere | None:
        return job_of_cgroup(cgroups, self._node, self._number_of, self._top)

    def _below(self, path: str) -> Path:
        return self._cgroup / path.lstrip("/")

    def _number_of(self, path: str) -> int | None:
        """Return the number of the job with this cgroup, from the title of any of its slurmstepd."""
        if path not in self._numbers:
            folder = self._below(path)
            pids = (pid for file in _those_there(STEPD, folder) for pid in self._pids(folder / file))
            number = next(filter(None, (job_of_title(self._read(pid, "cmdline")) for pid in pids)), None)
            if number is None:
                return None
            self._numbers[path] = number
        return self._numbers[path]

    def _look_for_claims(self, running: RunningJob) -> None:
        """Add the GPUs of steps that are not known yet: on a job's further nodes, each may have a part of them."""
        steps = _those_there("step_*", running.folder)
        running.tries = {step: running.tries.get(step, 0) for step in steps}
        for step, tries in running.tries.items():
            if tries < MOST_TRIES:
                found = self._read_claim(running, step)
                running.claim |= found
                running.tries[step] = MOST_TRIES if found != Claim() else tries + 1

    def _read_claim(self, running: RunningJob, step: str) -> Claim:
        claim = Claim()
        for pid in itertools.islice(self._members(running.folder / step), MOST_READ):
            uid, variables = self._owner(pid), slurm_variables(self._read(pid, "environ"))
            if running.uid is None and uid:
                running.uid = uid
            claim |= claim_of(variables, step)
        return claim

    def jobs_of(self, pids: Iterable[int]) -> dict[int, JobHere | None]:
        """Return the job of each process, None for those of no job."""
        return {pid: self._remembered(pid) for pid in pids}

    def keep(self, pids: Iterable[int]) -> None:
        """Forget all processes but these: an id may return as another process."""
        self._job_of = {pid: self._job_of[pid] for pid in pids if pid in self._job_of}

    def _remembered(self, pid: int) -> JobHere | None:
        if pid not in self._job_of:
            self._job_of[pid] = self._find(pid)
        return self._job_of[pid]

    def _find(self, pid: int) -> JobHere | None:
        return self._job_in(self._read(pid, "cgroup").decode(errors="replace")) or self._job_by_variables(pid)

    def _job_by_variables(self, pid: int) -> JobHere | None:
        """Return the job that a process names, if the process belongs to that job's user."""
        named = slurm_variables(self._read(pid, "environ")).get("SLURM_JOB_ID", "")
        if not (named.isascii() and named.isdigit() and len(named) <= 18):
            return None
        uid = self._owner(pid)
        for job in itertools.chain(self._running, self._trusted_uid):
            running = self._running.get(job)
            owners = {self._trusted_uid.get(job), running.uid if running else None} - {None}
            if job.job_id == int(named) and uid in owners:
                return job
        if not self._running:
            self.outside = int(named)
        return None

    def claimants(self, index: int | None, uuid: str) -> list[JobHere]:
        """Return the running jobs allocated a GPU or instance, as far as their variables show (`covers`)."""
        return [job for job, claim in self._claims if claim.covers(index, uuid)]

    def lives(self, job_id: int) -> bool:
        """Whether a job still has a process on this node other than this one."""
        # If several slurmd share a host, another cluster may have a job of the same number.
        job = JobHere(job_id, self._node)
        running = self._running.get(job)
        if running and any(pid != os.getpid() for pid in self._members(running.folder)):
            return True
        return job in self._trusted_uid and self._is_named(job)

    def _is_named(self, job: JobHere) -> bool:
        """Whether a process names a job without a cgroup; this process's parent may name it too and does not count."""
        pids = (int(entry.name) for entry in self._proc.iterdir() if entry.name.isdigit())
        return any(self._find(pid) == job for pid in pids if pid not in (os.getpid(), os.getppid()))

    def _members(self, folder: Path) -> Iterator[int]:
        # The deepest cgroups hold the tasks, the first slurmstepd itself. A step that ends meanwhile is skipped.
        for place, _, files in os.walk(folder):
            if "cgroup.procs" in files:
                yield from self._pids(Path(place, "cgroup.procs"))

    def _pids(self, file: Path) -> list[int]:
        try:
            return [int(line) for line in file.read_text(encoding="ascii").split()]
        except (OSError, ValueError):
            return []  # the step ended meanwhile

    def _owner(self, pid: int) -> int | None:
        try:
            return (self._proc / str(pid)).stat().st_uid
        except OSError:
            return None

    def _read(self, pid: int, name: str) -> bytes:
        try:
            return (self._proc / str(pid) / name).read_bytes()
        except OSError as error:
            self.kept_out |= isinstance(error, PermissionError)
            return b""  # it has ended, or we may not read it


def _inode(folder: Path) -> int:
    try:
        return folder.stat().st_ino
    except OSError:
        return 0  # the job ended meanwhile


def _those_there(pattern: str, folder: Path) -> Iterator[str]:
    """Yield the matching paths below a folder. What disappears meanwhile, with a job that ends, is skipped."""
    return glob.iglob(pattern, root_dir=folder)  # noqa: PTH207  Path.glob raises there before Python 3.13
