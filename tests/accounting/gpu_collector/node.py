"""A host made by a test, for the collector: GPUs, /proc, Slurm's cgroups, a spool."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from accounting.gpu_collector.attribution import JobHere
from accounting.gpu_collector.loop import Collector, CollectorSettings
from accounting.gpu_collector.nvml import Nvml
from accounting.gpu_collector.processes import JobProcesses
from accounting.gpu_collector.spool import SpoolWriter
from accounting.records import GpuUse
from tests.accounting.fake_gpus import FakePynvml
from tests.builders import T0
from tests.spools import read_spool

A, B = JobHere(7, "n1"), JobHere(8, "n1")
MIB = 1024**2


@dataclass
class Node:
    """A host made by a test: GPUs, /proc, Slurm's cgroups, a spool, and what the collector said."""

    folder: Path
    fake: FakePynvml
    said: list[str] = field(default_factory=list)

    @property
    def spool(self) -> Path:
        return self.folder / "spool"

    def process(self, pid: int, cgroup: str = "0::/init.scope", **variables: str) -> None:
        here = self.folder / "proc" / str(pid)
        here.mkdir(parents=True, exist_ok=True)
        (here / "cgroup").write_text(cgroup + "\n")
        (here / "environ").write_bytes(
            b"\0".join(f"{name}={value}".encode() for name, value in variables.items())
        )

    def job(
        self,
        job_id: int,
        pid: int,
        node: str = "",
        scope: str = "system.slice",
        name: str = "",
        **variables: str,
    ) -> None:
        """Start a job's batch step; `name` is that of its cgroup if it does not follow from the job's number."""
        path = f"{scope}/{node}slurmstepd.scope/{name or f'job_{job_id}'}/step_batch/user/task_0"
        self.procs(path, pid)
        self.process(pid, f"0::/{path}", SLURM_JOB_ID=str(job_id), **variables)

    def procs(self, path: str, pid: int) -> None:
        here = self.folder / "cgroup" / path
        here.mkdir(parents=True, exist_ok=True)
        (here / "cgroup.procs").write_text(f"{pid}\n")

    def stepd(self, pid: int, step: str, path: str) -> None:
        """Start the slurmstepd of a step, such as `7.batch`."""
        self.procs(path, pid)
        self.process(pid, f"0::/{path}")
        (self.folder / "proc" / str(pid) / "cmdline").write_bytes(f"slurmstepd: [{step}]".encode() + bytes(9))

    def end(self, job_id: int) -> None:
        shutil.rmtree(self.folder / "cgroup" / f"system.slice/slurmstepd.scope/job_{job_id}")

    def jobs(self) -> JobProcesses:
        return JobProcesses("n1", self.folder / "proc", self.folder / "cgroup")

    def collector(
        self, jobs: JobProcesses | None = None, settings: CollectorSettings | None = None
    ) -> Collector:
        writer = SpoolWriter(self.spool, "n1", 64 * MIB, self.said.append)
        return Collector(Nvml, jobs or self.jobs(), writer, settings or CollectorSettings(), self.said.append)

    def watch(self, collector: Collector, seconds: int = 30, first_s: int = T0) -> list[GpuUse]:
        """Let a window pass and return all that the spool holds then."""
        collector.look_again()
        for second in range(seconds):
            collector.tick(first_s + second)
        collector.flush(first_s + seconds)
        uses, quarantined = read_spool(self.spool)
        assert quarantined == []
        return sorted(uses, key=lambda use: (use.job_id, use.gpu, use.instance, use.first_s))
