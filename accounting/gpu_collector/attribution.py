"""Attributes GPUs: from processes' cgroups and environments to jobs, and from jobs to samples. Pure.

The kernel's information comes first (the cgroup that slurmstepd made), then Slurm's variables in a process's
environment, which `processes` accepts only from a user whose job runs here. Use that belongs to no job is not recorded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

# Anchored: a user may make cgroups of any name below their own, but none next to Slurm's.
#   v1   4:memory:/slurm/uid_1000/job_123/step_0/task_0           /slurm_n1/… if several slurmd share a host
#   v2   0::/system.slice/slurmstepd.scope/job_123/step_0/user/task_0        n1_slurmstepd.scope in that case
# From 25.11 on the slice is CgroupSlice's; from 26.05 on v2 has the job's SLUID (sEKNKTV3WPV500) in place of job_123.
_JOB_PATH = re.compile(
    r"^(?:/slurm(?:_(?P<v1_node>[^/]+))?/uid_\d+"
    r"|(?:/(?!user\.slice/)[^/]+\.slice)?/(?:(?P<v2_node>[^/]+)_)?slurmstepd\.scope)"
    r"/(?:job_(?P<job>[0-9]{1,18})|s[0-9A-Z]{13})(?=/|\Z)"
)
# slurmstepd's process title names the step that it serves.
_STEPD_TITLE = re.compile(rb"^slurmstepd: \[(?P<job>[0-9]{1,18})\.")
_INDEXES = re.compile(r"^[0-9]{1,4}(?:-[0-9]{1,4})?\Z")
MOST_GPUS = 1024
# The steps whose processes have the job's GPUs on their node in SLURM_JOB_GPUS.
OF_JOB = ("step_batch", "step_interactive")
VARIABLES = ("SLURM_JOB_ID", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "CUDA_VISIBLE_DEVICES")


@dataclass(frozen=True)
class JobHere:
    """A job on one of this host's nodes (there are several only if several slurmd share the host)."""

    job_id: int
    node: str


@dataclass(frozen=True)
class GpuProcess:
    """A process on a GPU; `mem_mib` is None if NVML does not report it."""

    pid: int
    mem_mib: float | None


@dataclass(frozen=True)
class Load:
    """The load of a whole GPU, or of an instance; utilisation and power are None if NVML has none."""

    util_pct: float | None
    mem_mib: float
    power_w: float | None


@dataclass(frozen=True)
class Claim:
    """The GPUs that a job was allocated, by Slurm's index or by UUID."""

    indexes: frozenset[int] = frozenset()
    uuids: frozenset[str] = frozenset()

    def covers(self, index: int | None, uuid: str) -> bool:
        """Whether a GPU or instance is among them; `index` is Slurm's, None if only the UUID identifies it."""
        return uuid in self.uuids or index in self.indexes

    def __or__(self, other: Claim) -> Claim:
        """Return the GPUs of both."""
        return Claim(self.indexes | other.indexes, self.uuids | other.uuids)


@dataclass(frozen=True)
class Held:
    """What a job has on a GPU: its processes, and their memory if NVML reports it."""

    pids: tuple[int, ...] = ()
    mem_mib: float | None = 0.0


@dataclass(frozen=True)
class Sample:
    """One reading of one GPU for one job. Utilisation in per cent, memory in MiB, power in watts."""

    job: JobHere
    gpu: int
    instance: int
    util_pct: float | None
    mem_mib: float
    power_w: float | None


def job_of_cgroup(
    text: str, node: str, number_of: Callable[[str], int | None] = lambda _: None, top: str = ""
) -> JobHere | None:
    """Return the job named by /proc/PID/cgroup, on `node` if the path names no other node; None outside Slurm.

    If the path has no job number, `number_of` finds it from the path of the job's own cgroup. `top` is the cgroup
    below which Slurm's begin (`top_of`), or empty.
    """
    for line in text.splitlines():
        path = line.split(":", 2)[-1]
        below = path.removeprefix(top)
        match = _JOB_PATH.match(below)
        if match is None:
            continue
        number = int(match["job"]) if match["job"] else number_of(path.removesuffix(below) + match[0])
        if number:
            return JobHere(number, match["v1_node"] or match["v2_node"] or node)
    return None


def top_of(text: str) -> str:
    """Return the cgroup in which Slurm's begin in v2, from /proc/1/cgroup: the first process's parent, "" at the root.

    In a container without its own cgroup namespace, that is deep inside the host's (Slurm's cgroup_v2.c).
    """
    path = next((line.removeprefix("0::") for line in text.splitlines() if line.startswith("0::/")), "/")
    return path.rpartition("/")[0]


def job_of_title(command: bytes) -> int | None:
    """Return the number of the job that a slurmstepd serves, from its /proc/PID/cmdline."""
    match = _STEPD_TITLE.match(command)
    return int(match["job"]) if match else None


def slurm_variables(environ: bytes) -> dict[str, str]:
    """Return those of VARIABLES that are in /proc/PID/environ."""
    pairs = (entry.partition(b"=") for entry in environ.split(b"\0"))
    found = {name.decode(errors="replace"): value.decode(errors="replace") for name, _, value in pairs}
    return {name: found[name] for name in VARIABLES if name in found}


def claim_of(variables: Mapping[str, str], step: str) -> Claim:
    """Return the GPUs that Slurm's variables name to a process of a step; `step` is the name of its cgroup.

    Only the variable that Slurm sets for such a step counts. srun hands SLURM_JOB_GPUS of the batch script's node on to
    all nodes, and sbatch hands SLURM_STEP_GPUS of the step that it runs in on to another job (22.05).
    CUDA_VISIBLE_DEVICES counts only if it holds UUIDs: its numbers begin at 0 in every job if Slurm constrains devices.
    """
    named = variables.get("SLURM_JOB_GPUS" if step in OF_JOB else "SLURM_STEP_GPUS", "")
    parts = [part for part in named.split(",") if _INDEXES.match(part)]
    ends = [(int(part.partition("-")[0]), int(part.rpartition("-")[2])) for part in parts]
    indexes = (index for low, high in ends for index in range(low, min(high, MOST_GPUS) + 1))
    visible = variables.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return Claim(frozenset(indexes), frozenset(name for name in visible if name.startswith(("GPU-", "MIG-"))))


def holders(
    processes: Sequence[GpuProcess],
    jobs: Mapping[int, JobHere | None],
    claimants: Sequence[JobHere],
) -> dict[JobHere, Held]:
    """Return the jobs on a GPU, given the job of each process and the jobs that were allocated the GPU.

    A job without a process on the GPU holds it only if no other job has a process there. With processes of no job,
    it must also be the only job that was allocated the GPU.
    """
    by_job: dict[JobHere, list[GpuProcess]] = {}
    for process in processes:
        job = jobs.get(process.pid)
        if job is not None:
            by_job.setdefault(job, []).append(process)
    if by_job:
        return {job: _held(own) for job, own in by_job.items()}
    if not processes:
        return {job: Held() for job in claimants}
    # Processes whose job cannot be found (in a container, in another PID namespace) belong to the only claimant.
    return {claimants[0]: Held(mem_mib=None)} if len(claimants) == 1 else {}


def _held(own: Iterable[GpuProcess]) -> Held:
    # A process that both computes and draws on one GPU is listed twice.
    memory: dict[int, float | None] = {}
    for process in own:
        known = memory.get(process.pid)
        memory[process.pid] = process.mem_mib if known is None else max(known, process.mem_mib or 0.0)
    known_mib = [mem_mib for mem_mib in memory.values() if mem_mib is not None]
    complete = len(known_mib) == len(memory)
    return Held(tuple(memory), sum(known_mib) if complete else None)


@dataclass(frozen=True)
class Reading:
    """One pass over one GPU or instance that a job holds.

    `process_util_pct` is read if several jobs share it; None if NVML does not report it. `nobodys` are the
    processes on it that belong to no job, such as MPS's server.
    """

    gpu: int
    instance: int
    held: Mapping[JobHere, Held]
    load: Load
    process_util_pct: Mapping[int, float] | None = field(default_factory=dict)
    nobodys: tuple[int, ...] = ()


def samples_of(reading: Reading) -> list[Sample]:
    """Return one sample per job. If several jobs share a GPU, power is unknown: it cannot be attributed.

    If NVML does not report memory by process, the whole GPU's is used: an upper bound.
    """
    shared = len(reading.held) > 1
    return [
        Sample(
            job=job,
            gpu=reading.gpu,
            instance=reading.instance,
            util_pct=_util_pct(reading, held) if shared else reading.load.util_pct,
            mem_mib=reading.load.mem_mib if held.mem_mib is None else held.mem_mib,
            power_w=None if shared else reading.load.power_w,
        )
        for job, held in reading.held.items()
    ]


def _util_pct(reading: Reading, held: Held) -> float | None:
    by_process = reading.process_util_pct
    if reading.load.util_pct is None or by_process is None:
        return None
    # A process that did nothing since the last pass has no sample.
    own_pct = min(100.0, sum(by_process.get(pid, 0.0) for pid in held.pids))
    # NVML counts the work of MPS's clients as its server's, so whose work that was is unknown.
    is_another_busy = any(by_process.get(pid, 0.0) > 0.0 for pid in reading.nobodys)
    return None if own_pct == 0.0 and is_another_busy else own_pct
