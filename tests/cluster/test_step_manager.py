"""Steps managed on the job's node (enable_stepmgr): slurmctld never hears that one was killed for memory."""

from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_plugin.sandbox.release import find_programs, parse_version, release_of
from slurm_plugin.sandbox.shape import Shape
from tests.cluster.matrix.prefixes import chosen_prefix
from tests.cluster.recovery_site import ASKED_CPUS, ASKED_MIB, HOLD, Run, past_of, start_site

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

SINCE = (24, 5)
STEP = f"srun {HOLD}"
LINES = ("SlurmctldParameters=enable_stepmgr", "PrologFlags=contain")


@pytest.mark.usefixtures("cpus_follow")
def test_a_job_whose_step_was_killed_comes_back_by_what_accounting_says(
    make_folder: Callable[[], Path],
) -> None:
    if parse_version(release_of(find_programs(chosen_prefix()))) < SINCE:
        pytest.skip("this release of Slurm has no enable_stepmgr")
    site = start_site(make_folder(), 1, Shape(lines=LINES))
    site.train({"step": past_of("step", STEP, 900_000)})
    job = site.submit("step", STEP)
    site.wait_for(lambda: job in site.failed())
    # At once: the step's end may not be in accounting yet.
    site.shell.run("rightsizer", "recover", "--job", str(job), "--apply")
    site.wait_for(lambda: site.have_come_back(job))
    first, second = site.runs(job)[str(job)]
    assert first.mem_mib < ASKED_MIB
    assert second == Run("COMPLETED", ASKED_CPUS, ASKED_MIB)
