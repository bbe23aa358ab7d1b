"""What scontrol, squeue and sprio of each release printed about one queue (tests/contract/queue)."""

from pathlib import Path

from slurm_plugin.slurm import cluster_lines, job_lines
from slurm_plugin.slurm.scontrol_queue import with_factors
from slurm_plugin.slurm.snapshot import QueuedJob

CAPTURED = Path(__file__).parents[2] / "contract" / "queue"
RELEASES = sorted(folder.name for folder in CAPTURED.iterdir())


class Captured:
    """The output of a release's commands about one queue with jobs of every kind."""

    def __init__(self, release: str) -> None:
        self.folder = CAPTURED / release
        self.owners = job_lines.parse_owners(self.text("owners"))
        self.listing = job_lines.parse_jobs(self.text("jobs"), self.owners)
        self.factors = cluster_lines.parse_factors(self.text("factors"))
        self.first_node = cluster_lines.parse_node_states(self.text("nodes"))[0].name

    def text(self, name: str) -> str:
        return (self.folder / f"{name}.txt").read_text(encoding="utf-8")

    def alone(self) -> job_lines.Listing:
        """Return the jobs that had to be asked for one by one."""
        found = [
            job_lines.parse_jobs(self.text(f"alone/{job}"), {job: self.owners[job]})
            for job in self.listing.doubtful
        ]
        return job_lines.Listing(
            tuple(job for one in found for job in one.jobs),
            tuple(job for one in found for job in one.doubtful),
        )

    def job(self, name: str) -> QueuedJob:
        (found,) = [job for job in (*self.listing.jobs, *self.alone().jobs) if job.name == name]
        return with_factors(found, self.factors.get(found.job_id), fair_share_counts=True)
