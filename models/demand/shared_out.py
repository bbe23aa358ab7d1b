"""How much of a job its steps shared out among them: with less, a step is refused, or waits for the others. Pure.

What a job used does not tell it: eight steps that each asked for a CPU hold eight, however idle they are. Scripts that
start steps are read when they are submitted (slurm_plugin/policy/script_floors.py); those that another file, a program
or a workflow engine starts inside the job are known by what accounting told of jobs like it
(docs/decisions/0076-what-steps-asked-for.md).
"""

from __future__ import annotations

from models.past.evidence import Evidence
from models.past.jobs import Learned


def shared_out(evidence: Evidence, dimension: Learned) -> float:
    """Return the most CPUs a task, or MiB, that steps of one job held at one time, of what they asked for; 0 for none.

    Those count too that are remembered beside the recent jobs: where all of those were cut to what a single step asks
    for, it has all of its job, and no longer shows that it asked.
    """
    if dimension == "cores":
        return max([job.step_cpus / job.num_tasks for job in evidence.compared if job.step_cpus], default=0.0)
    if dimension == "memory":
        return max([float(job.step_mem_mib) for job in evidence.compared if job.step_mem_mib], default=0.0)
    return 0.0
