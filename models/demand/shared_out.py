"""How much of a job its steps held at one time: with less, a step is refused, or waits for the others. Pure.

What a job used does not show this: eight steps that each asked for a CPU hold eight, however idle they are. Scripts
that start steps are read at submission (slurm_plugin/policy/script_floors.py). Steps that another file, a program or
a workflow engine starts inside the job are known only from the accounting of similar jobs
(docs/decisions/0076-what-steps-asked-for.md).
"""

from __future__ import annotations

from models.past.evidence import Evidence
from models.past.jobs import Learned


def shared_out(evidence: Evidence, dimension: Learned) -> float:
    """Return the most that steps of one job asked for and held at one time, in CPUs per task or MiB; 0 if none did.

    Jobs that are remembered in addition to the recent ones count too. If all recent jobs were cut to what a single
    step asks for, that step has all of its job, and the job no longer shows that the step asked.
    """
    if dimension == "cores":
        return max([job.step_cpus / job.num_tasks for job in evidence.compared if job.step_cpus], default=0.0)
    if dimension == "memory":
        return max([float(job.step_mem_mib) for job in evidence.compared if job.step_mem_mib], default=0.0)
    return 0.0
