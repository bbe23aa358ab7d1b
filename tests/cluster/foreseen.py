"""What is foreseen for the queue of a real Slurm, for tests that compare it with what Slurm then does."""

from models.planning.rollout import expected_starts
from slurm_plugin.advisor.problem import problem_of
from slurm_plugin.advisor.run_time import by_limit
from slurm_plugin.slurm.scontrol_queue import ScontrolQueue
from slurm_plugin.slurm.snapshot import Snapshot


def foreseen() -> tuple[Snapshot, dict[int, float]]:
    """Return the queue, and in how many seconds each pending job would start if all jobs ran to their time limits."""
    now = ScontrolQueue().read()
    spans = expected_starts(problem_of(now, lambda job: by_limit(job, "this is a test")), samples=0)
    waiting = [job for job in now.jobs if job.waits]
    return now, {job.job_id: span.start_s for job, span in zip(waiting, spans, strict=True)}
