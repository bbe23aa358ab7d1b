"""What jobs keep, on a real Slurm: what their steps share out, seen in the script or not, and what they work in."""

from collections.abc import Callable
from pathlib import Path

import pytest

from models.past.failing import FAILS_IN_A_ROW
from tests.cluster.recovery_site import (
    AS_ASKED,
    ASKED,
    ASKED_CPUS,
    ASKED_MIB,
    Run,
    Site,
    past_of,
    pasts_of,
    start_site,
)

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

HELD_MIB = 400
# Four CPUs are left: with one, it would have all the memory that is.
STEPS = f"export OMP_NUM_THREADS=4\nsrun -n 1 -c 1 python3 -c 'held = b\"1\" * ({HELD_MIB} << 20)'\n"
# Four steps side by side, out of the sight of whoever reads the script.
STEP_MIB = 300
FARM = f"for n in 1 2 3 4; do sr''un -n1 -c1 --mem={STEP_MIB} sleep 3 & done; wait\n"
TASKS = "sr''un -n 4 -c 2 sleep 2\n"
# Like a tool that works out its own heap from the memory that its job has, and ends if that is too small.
FITS = f"env | grep -q MEM_PER_NODE={ASKED_MIB} || exit 1\n"
SCRIPTS = {
    "steps": STEPS,
    "session": "jupyter() { true; }\njupyter lab --no-browser\n",
    "pilot": "hq() { true; }\nhq worker start --manager slurm\n",
    "work": "true\n",
    "farm": FARM,
    "tasks": TASKS,
    "fits": FITS,
}
# Tasks of several nodes: with fewer CPUs all would go to one, whose memory cannot hold them.
RANKS, TASK_MIB, NODE_MIB = 12, 150, 1000
MPI = f"srun python3 -c 'import time; held = b\"1\" * ({TASK_MIB} << 20); time.sleep(2)'\n"
ASKED_MPI = {"num_tasks": RANKS, "cpus_per_task": 4, "mem_per_node_mib": NODE_MIB}


@pytest.fixture(scope="module")
def site(make_folder: Callable[[], Path]) -> Site:
    site = start_site(make_folder(), nodes=3)
    pasts = pasts_of(SCRIPTS, used_mib=HELD_MIB)
    pasts["mpi"] = past_of("mpi", MPI, 800_000, asked=ASKED_MPI, used_mib=RANKS * TASK_MIB)
    for number, name in enumerate(("python3", "solve")):
        pasts[name] = past_of(name, "", 700_000 + 1000 * number)
    site.train(pasts)
    return site


def run_of(site: Site, name: str, asked: tuple[str, ...] = ASKED) -> Run:
    job = site.submit(name, SCRIPTS[name], asked=asked)
    site.shell.wait_ended(job)
    ((run,),) = site.runs(job).values()
    return run


def test_a_step_with_one_of_the_cpus_has_the_memory_that_it_had(site: Site) -> None:
    """Of memory per CPU a step has that of its own CPUs alone."""
    run = run_of(site, "steps", (f"-c{ASKED_CPUS}", f"--mem-per-cpu={ASKED_MIB // ASKED_CPUS}"))
    assert (run.state, run.mem_mib) == ("COMPLETED", ASKED_MIB)


@pytest.mark.parametrize(("name", "kept"), [("session", True), ("pilot", True), ("work", False)])
def test_sessions_and_pilots_have_all_that_they_ask_for(site: Site, name: str, kept: bool) -> None:
    run = run_of(site, name)
    assert run.state == "COMPLETED"
    assert (run == AS_ASKED) is kept


@pytest.mark.parametrize(
    ("name", "kept"),
    [("farm", (4, 4 * STEP_MIB)), ("tasks", (ASKED_CPUS, HELD_MIB))],
    ids=["side_by_side", "more_tasks_than_the_job"],
)
def test_steps_that_no_script_shows_keep_what_they_asked_for_once_it_was_seen(
    site: Site, name: str, kept: tuple[int, int]
) -> None:
    cut = site.token_of(name, SCRIPTS[name]).granted
    assert (cut["cpus"], cut["mem"]) < kept
    site.shell.wait_ended(site.submit(name, SCRIPTS[name], "--comment=rightsize=off"))
    site.shell.run("rightsizer", "ingest")
    site.wait_for(lambda: site.token_of(name, SCRIPTS[name]).granted.get("cpus", ASKED_CPUS) == kept[0])
    run = run_of(site, name)
    assert (run.state, run.cpus) == ("COMPLETED", kept[0])
    assert kept[1] <= run.mem_mib < ASKED_MIB


def test_tasks_of_several_nodes_are_not_gathered_on_one(site: Site) -> None:
    job = site.submit("mpi", MPI, asked=(f"-n{RANKS}", "-c4", f"--mem={NODE_MIB}"))
    site.shell.wait_ended(job)
    ((run,),) = site.runs(job).values()
    assert (run.state, run.cpus) == ("COMPLETED", 4 * RANKS)


def test_an_interactive_session_in_an_interpreter_keeps_its_memory(site: Site) -> None:
    number = ("python3", "-c", "import os; print(os.environ['SLURM_JOB_ID'])")
    asks = ("srun", f"--mem={ASKED_MIB}")
    # A job with another name than its program's shows what the next one with that name does.
    jobs = [int(site.user.run(*asks, *more, *number)) for more in ((), ("--job-name=solve",))]
    assert [site.shell.wait_ended(job) for job in jobs] == ["COMPLETED"] * 2
    assert [site.shell.allocated(job)["mem"] for job in jobs] == [f"{ASKED_MIB}M", "128M"]


def test_after_three_failures_in_a_row_jobs_have_all_that_they_ask_for(site: Site) -> None:
    for _ in range(FAILS_IN_A_ROW):
        failed = run_of(site, "fits")
        assert failed.state == "FAILED"
        assert failed.mem_mib < ASKED_MIB
    for _ in range(2):
        site.shell.run("rightsizer", "ingest")
        site.wait_for(lambda: not site.token_of("fits", FITS).granted)
        assert run_of(site, "fits") == AS_ASKED
