"""On a real Slurm: jobs that run longer because their CPUs or their memory were cut soon get that resource back."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from models.demand.slowed import LEAST_JOBS
from tests.cluster.recovery_site import USER, Run, Site, past_of, start_site

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

WORK = """python3 -c 'import time
while time.process_time() < 1: pass'
"""
# A second of work, then two pieces that wait for two seconds each: three seconds with two CPUs, five with one.
TURNS = f"""{WORK}seq 2 | xargs -P "$SLURM_CPUS_PER_TASK" -n 1 sh -c 'sleep 2'
"""
# Like a job that reads a file again because its memory cannot hold it: no disk of a test is slow enough. A script
# that names the variable keeps its memory.
AGAIN = f"""{WORK}env | grep -q MEM_PER_NODE=500 || sleep 4
"""


@pytest.fixture(scope="module")
def site(make_folder: Callable[[], Path]) -> Site:
    return start_site(make_folder(), 2)


@pytest.mark.parametrize(
    ("name", "body", "cpus", "busy", "cut", "said"),
    [
        ("turns", TURNS, 2, 1 / 3, lambda run: run.cpus < 2, "with half as many, jobs kept fewer busy"),
        ("again", AGAIN, 1, 0.9, lambda run: run.mem_mib < 500, "ran longer with less memory"),
    ],
    ids=["cpus", "memory"],
)
def test_a_family_that_keeps_fewer_cores_busy_than_before_the_cut_gets_them_back(
    site: Site, name: str, body: str, cpus: int, busy: float, cut: Callable[[Run], bool], said: str
) -> None:
    asked = (f"-c{cpus}", "--mem=500")
    amounts = {"cpus_per_task": cpus, "mem_per_node_mib": 500}
    whole = [
        msgspec.structs.replace(past, use=msgspec.structs.replace(past.use, cores_per_task=busy))
        for past in past_of(name, body, 900_000, asked=amounts, used_mib=30)
    ]
    site.train({name: whole})
    first = [site.submit(name, body, asked=asked) for _ in range(LEAST_JOBS)]
    site.wait_for(lambda: site.have_come_back(*first))
    assert all(cut(run) for runs in site.runs(*first).values() for run in runs)

    def is_whole() -> bool:
        site.shell.run("rightsizer", "ingest")
        job = site.submit(name, body, asked=asked)
        site.wait_for(lambda: site.have_come_back(job))
        return not any(map(cut, site.runs(job)[str(job)]))

    site.wait_for(is_whole)
    submitted = (*asked, f"--job-name={name}", str(site.folder / f"{name}.sh"))
    assert said in site.shell.run("rightsizer", "predict", "--why", f"--user={USER}", "--", *submitted)
