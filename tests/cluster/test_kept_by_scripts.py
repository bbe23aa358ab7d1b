"""What jobs keep, on a real Slurm: what their steps share out, seen in the script or not, and what one works in."""

from collections.abc import Callable
from pathlib import Path

import pytest

from models.past.failing import FAILS_IN_A_ROW
from tests.cluster.recovery_site import Run, Site, pasts_of, start_site

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

CPUS, CPU_MIB, HELD_MIB = 8, 1000, 400
# Four CPUs are left: with one, it would have all the memory that is.
STEPS = f"export OMP_NUM_THREADS=4\nsrun -n 1 -c 1 python3 -c 'held = b\"1\" * ({HELD_MIB} << 20)'\n"
# Four steps side by side, out of the sight of whoever reads the script.
STEP_MIB = 300
FARM = f"for n in 1 2 3 4; do sr''un -n1 -c1 --mem={STEP_MIB} sleep 3 & done; wait\n"
TASKS = "sr''un -n 4 -c 2 sleep 2\n"
# Like a tool that works out its own heap from the memory that its job has, and ends if that is too small.
FITS = f"env | grep -q MEM_PER_NODE={CPUS * CPU_MIB} || exit 1\n"
SCRIPTS = {
    "steps": STEPS,
    "session": "jupyter() { true; }\njupyter lab --no-browser\n",
    "pilot": "hq() { true; }\nhq worker start --manager slurm\n",
    "work": "true\n",
    "farm": FARM,
    "tasks": TASKS,
    "fits": FITS,
}


@pytest.fixture(scope="module")
def site(make_folder: Callable[[], Path]) -> Site:
    site = start_site(make_folder(), nodes=1)
    asked = {"cpus_per_task": CPUS, "mem_per_node_mib": CPUS * CPU_MIB}
    site.train(pasts_of(SCRIPTS, asked=asked, used_mib=HELD_MIB))
    return site


def run_of(site: Site, name: str, *memory: str) -> Run:
    job = site.submit(name, SCRIPTS[name], asked=(f"-c{CPUS}", *memory))
    site.shell.wait_ended(job)
    ((run,),) = site.runs(job).values()
    return run


def test_a_step_with_one_of_the_cpus_has_the_memory_that_it_had(site: Site) -> None:
    """Of memory per CPU a step has that of its own CPUs alone."""
    run = run_of(site, "steps", f"--mem-per-cpu={CPU_MIB}")
    assert (run.state, run.mem_mib) == ("COMPLETED", CPUS * CPU_MIB)


@pytest.mark.parametrize(("name", "kept"), [("session", True), ("pilot", True), ("work", False)])
def test_sessions_and_pilots_have_all_that_they_ask_for(site: Site, name: str, kept: bool) -> None:
    run = run_of(site, name, f"--mem={CPUS * CPU_MIB}")
    assert run.state == "COMPLETED"
    assert ((run.cpus, run.mem_mib) == (CPUS, CPUS * CPU_MIB)) is kept


@pytest.mark.parametrize(
    ("name", "kept"),
    [("farm", (4, 4 * STEP_MIB)), ("tasks", (CPUS, HELD_MIB))],
    ids=["side_by_side", "more_tasks_than_the_job"],
)
def test_steps_that_no_script_shows_keep_what_they_asked_for_once_it_was_seen(
    site: Site, name: str, kept: tuple[int, int]
) -> None:
    asked = (f"-c{CPUS}", f"--mem={CPUS * CPU_MIB}")
    cut = site.token_of(name, SCRIPTS[name], asked).granted
    assert (cut["cpus"], cut["mem"]) < kept
    site.shell.wait_ended(site.submit(name, SCRIPTS[name], "--comment=rightsize=off", asked=asked))
    site.shell.run("rightsizer", "ingest")
    site.wait_for(lambda: site.token_of(name, SCRIPTS[name], asked).granted.get("cpus", CPUS) == kept[0])
    run = run_of(site, name, asked[1])
    assert (run.state, run.cpus) == ("COMPLETED", kept[0])
    assert kept[1] <= run.mem_mib < CPUS * CPU_MIB


def test_after_three_failures_in_a_row_jobs_have_all_that_they_ask_for(site: Site) -> None:
    asked = (f"-c{CPUS}", f"--mem={CPUS * CPU_MIB}")
    for _ in range(FAILS_IN_A_ROW):
        failed = run_of(site, "fits", asked[1])
        assert failed.state == "FAILED"
        assert failed.mem_mib < CPUS * CPU_MIB
    for _ in range(2):
        site.shell.run("rightsizer", "ingest")
        site.wait_for(lambda: not site.token_of("fits", FITS, asked).granted)
        assert run_of(site, "fits", asked[1]) == Run("COMPLETED", CPUS, CPUS * CPU_MIB)
