"""A queue that the gateway changes: what Slurm shows of it, and what its jobs ask for."""

from pathlib import Path

from slurm_plugin.slurm import factor_state
from slurm_plugin.slurm.factor_log import FactorLog
from slurm_plugin.slurm.gateway import WriteTerms
from slurm_plugin.slurm.queue import FactorChange
from slurm_plugin.slurm.snapshot import QueuedJob, Snapshot
from tests.cluster.advised_site import is_numbered
from tests.cluster.conftest import Shell
from tests.waiting import wait_until

TERMS = WriteTerms(writes_per_s=2000.0)


def shown(shell: Shell) -> dict[int, int]:
    """Return the SiteFactors as sprio shows them."""
    lines = shell.run("sprio", "--noheader", "--format=%i %S").splitlines()
    return {int(job): int(factor) for job, factor in (line.split() for line in lines)}


def in_force(folder: Path) -> dict[int, int]:
    """Return the SiteFactors that are noted as ours and have not been taken back."""
    return factor_state.in_force(FactorLog(folder, "").read())


def array_records(shell: Shell, array: int) -> list[str]:
    """Return the pending tasks in each of the array's records."""
    lines = shell.run("scontrol", "--oneliner", "show", "job", str(array)).splitlines()
    return [line.split("ArrayTaskId=")[1].split()[0] for line in lines if "JobState=PENDING" in line]


def wait_known(shell: Shell, *jobs: int) -> None:
    """Wait until sprio shows these jobs and they may be changed: before 24.11 only with a number from slurmdbd."""
    wait_until(lambda: set(jobs) <= shown(shell).keys() and all(is_numbered(shell, job) for job in jobs))


def running(shell: Shell, array: int) -> int:
    """Return how many tasks of an array run."""
    return len(shell.run("squeue", "--noheader", "--states=R", f"--jobs={array}").splitlines())


def change(job: QueuedJob, after: int) -> FactorChange:
    return FactorChange(job_id=job.job_id, before=job.site_factor, after=after, reason="test")


def asked(job: QueuedJob) -> tuple[object, ...]:
    """Return what a resize may change, and whether the record is still one."""
    sizes = (
        job.cpus,
        job.cpus_per_task,
        job.min_cpus_per_node,
        job.num_nodes,
        job.mem_mib,
        job.mem_per_cpu_mib,
    )
    return (*sizes, job.num_tasks, job.array_tasks, job.comment, job.admin_comment)


def waiting(snapshot: Snapshot, *ids: int) -> list[QueuedJob]:
    """Return the pending jobs with these ids, or of the arrays and het jobs with them, in their order."""
    found = [job for job in snapshot.jobs if {job.job_id, job.array_job_id, job.het_job_id} & set(ids)]
    return sorted((job for job in found if job.waits), key=lambda job: job.job_id)
