"""Tasks on several nodes, on a real Slurm: with fewer CPUs all would go to one node, whose memory cannot hold them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.recovery_site import past_of, start_site

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

TASKS, TASK_MIB, NODE_MIB = 12, 150, 1000
ASKED = {"num_tasks": TASKS, "cpus_per_task": 4, "mem_per_node_mib": NODE_MIB}
HELD = f"srun python3 -c 'import time; held = b\"1\" * ({TASK_MIB} << 20); time.sleep(2)'\n"


def test_tasks_of_several_nodes_are_not_gathered_on_one(make_folder: Callable[[], Path]) -> None:
    site = start_site(make_folder(), nodes=3)
    site.train({"mpi": past_of("mpi", HELD, 900_000, asked=ASKED, used_mib=TASKS * TASK_MIB)})
    job = site.submit("mpi", HELD, asked=(f"-n{TASKS}", "-c4", f"--mem={NODE_MIB}"))
    site.shell.wait_ended(job)
    ((run,),) = site.runs(job).values()
    assert (run.state, run.cpus) == ("COMPLETED", 4 * TASKS)
