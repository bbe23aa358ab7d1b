"""Jobs submitted through slurmrestd, on a real Slurm: cut as by sbatch, each next to a twin that opted out."""

from collections.abc import Callable
from pathlib import Path

import pytest

from models.past.job_names import NAMELESS
from slurm_plugin.sandbox import cluster
from tests.cluster.recovery_site import ASKED_CPUS, ASKED_MIB, pasts_of, script_of, start_site
from tests.cluster.rest import rest_as

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

# The job's allocation must agree with its environment, and an srun in it must fit.
STEP = "test $SLURM_CPUS_ON_NODE = $(srun sh -c 'echo $SLURM_CPUS_ON_NODE')\n"
ASKED = {"cpus_per_task": ASKED_CPUS, "memory_per_node": ASKED_MIB}


def test_a_job_from_slurmrestd_is_cut_with_and_without_a_name(make_folder: Callable[[], Path]) -> None:
    site = start_site(make_folder(), nodes=1)
    with rest_as(site.user, site.folder) as rest:
        site.train(pasts_of(dict.fromkeys(("step", NAMELESS), STEP)))
        script = script_of(STEP)
        named, nameless = rest.submit(script, name="step", **ASKED), rest.submit(script, **ASKED)
        twin = rest.submit(script, comment="rightsize=off", **ASKED)
        cluster.stop_service(site.sandbox.directory)
        unserved = rest.submit(script, name="step", **ASKED)
        jobs = (named, nameless, twin, unserved)
        assert [site.shell.wait_ended(job) for job in jobs] == ["COMPLETED"] * len(jobs)
    cut, whole = {"cpu": "1", "mem": "128M"}, {"cpu": str(ASKED_CPUS), "mem": f"{ASKED_MIB}M"}
    given = [site.shell.allocated(job) for job in jobs]
    assert [{name: one[name] for name in whole} for one in given] == [cut, cut, whole, whole]
    assert site.shell.accounted(nameless, "JobName") == NAMELESS
