"""Steps that share out a job, on a real Slurm: of memory per CPU a step has that of its own CPUs alone."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.recovery_site import past_of, start_site

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

CPUS, CPU_MIB, HELD_MIB = 8, 1000, 400
# Four CPUs are left: with one, it would have all the memory that is.
HELD = f"export OMP_NUM_THREADS=4\nsrun -n 1 -c 1 python3 -c 'held = b\"1\" * ({HELD_MIB} << 20)'\n"


def test_a_step_with_one_of_the_cpus_has_the_memory_that_it_had(make_folder: Callable[[], Path]) -> None:
    site = start_site(make_folder(), nodes=1)
    asked = {"cpus_per_task": CPUS, "mem_per_node_mib": CPUS * CPU_MIB}
    site.train({"steps": past_of("steps", HELD, 900_000, asked=asked, used_mib=HELD_MIB)})
    job = site.submit("steps", HELD, asked=(f"-c{CPUS}", f"--mem-per-cpu={CPU_MIB}"))
    site.shell.wait_ended(job)
    ((run,),) = site.runs(job).values()
    assert (run.state, run.mem_mib) == ("COMPLETED", CPUS * CPU_MIB)
