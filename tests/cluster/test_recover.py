"""Jobs cut below their need, on a real Slurm with real memory limits: each comes back once, with its original request.

RIGHTSIZER_RECOVERIES=50 makes it fifty jobs, RIGHTSIZER_RECOVERY_KILLS=20 kills the watcher twenty times.
"""

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_plugin.sandbox.shape import Shape
from slurm_plugin.slurm.scontrol_queue import ScontrolQueue
from tests.cluster import conftest
from tests.cluster.late_cycles import sizing
from tests.cluster.recovery_site import (
    AS_ASKED,
    ASKED_MIB,
    HOLD,
    NEEDS_MIB,
    USER,
    Run,
    Site,
    pasts_of,
    start_site,
)

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

JOBS = int(os.environ.get("RIGHTSIZER_RECOVERIES", "6"))
KILLS = int(os.environ.get("RIGHTSIZER_RECOVERY_KILLS", "3"))
PATIENCE_S = conftest.PATIENCE_S + 4 * JOBS
# It ends by itself, with its own exit code, like programs that get no memory.
SAYS = 'test "${SLURM_RESTART_COUNT:-0}" -gt 0 || { echo MemoryError >&2; exit 1; }\n'

STEP = f"srun {HOLD}"
# They requeue themselves, so that Slurm does not see them fail.
ITSELF = "{ scontrol requeue $SLURM_JOB_ID; sleep 60; }\n"
MODEST = "true # modest\n"
FAMILIES = {
    "hold": HOLD,
    "step": STEP,
    "step-again": f"{STEP.strip()} || {ITSELF}",
    "hold-again": f"{HOLD.strip()} || {ITSELF}",
    "grow": HOLD,
    "says": SAYS,
    "modest": MODEST,
    "held": HOLD,
    "raised": HOLD,
}


# It accepts the cut request, but not the original one.
SMALL = f"PartitionName=small Nodes={{node[0]}} MaxMemPerNode={ASKED_MIB // 2}"


@pytest.fixture(scope="module")
def site(make_folder: Callable[[], Path]) -> Site:
    site = start_site(make_folder(), 4, Shape(lines=(SMALL,)), PATIENCE_S)
    site.train(pasts_of(FAMILIES))
    return site


@pytest.mark.usefixtures("cpus_follow")
def test_each_job_comes_back_once_whenever_the_watcher_is_killed(site: Site) -> None:
    tasks = max(2, JOBS // 3)
    array = site.submit("hold", HOLD, f"--array=1-{tasks}")
    steps = [site.submit("step", STEP) for _ in range(JOBS // 3)]
    singles = [site.submit("hold", HOLD) for _ in range(JOBS - tasks - len(steps))]
    ours = (array, *steps, *singles)
    own = site.submit("hold", HOLD, "--comment=rightsize=off", "--mem=100")
    site.wait_for(lambda: len(site.failed()) == JOBS + 1)
    known = {entry.run for entry in site.entries()}
    draw, cut_off = random.Random(8), 0
    for kill in range(KILLS):
        watcher = site.watch()
        # Every second kill comes at any time, the others in the middle of a job.
        seen = len(site.entries())
        if kill % 2:
            time.sleep(draw.uniform(0.3, 2.0))
        else:
            site.wait_for(lambda seen=seen: len(site.entries()) > seen or not undone(site, known))  # type: ignore[misc]
            time.sleep(draw.uniform(0.0, 0.3))
        watcher.send_signal(signal.SIGKILL)
        watcher.wait()
        cut_off += any(entry.what == "begun" for entry in site.entries())
    print(f"{cut_off} of {KILLS} kills came in the middle of a job")
    assert cut_off or KILLS < 10
    # The watcher and EpilogSlurmctld's call may meet.
    watcher = site.watch()
    calls = [site.recover(job) for job in singles]
    try:
        site.wait_for(lambda: all(call.poll() is not None for call in calls))
        assert {call.returncode for call in calls} == {0}
        site.wait_for(lambda: site.have_come_back(*ours) and len(site.runs(*ours)) == JOBS)
    finally:
        watcher.send_signal(signal.SIGTERM)
        assert watcher.wait(PATIENCE_S) == 0
    runs = site.runs(*ours)
    assert len(runs) == JOBS
    for first, second in runs.values():
        assert first.state in ("OUT_OF_MEMORY", "FAILED", "REQUEUED")
        assert first.mem_mib < NEEDS_MIB
        assert second == AS_ASKED
    assert [run.state for run in site.runs(own)[str(own)]] == ["OUT_OF_MEMORY"]
    concluded = [entry for entry in site.entries() if entry.run not in known]
    assert [entry.what for entry in concluded] == ["requeued"] * JOBS


def undone(site: Site, known: set[tuple[int, int, str]]) -> bool:
    done = [entry for entry in site.entries() if entry.run not in known and entry.what == "requeued"]
    return len(done) < JOBS


def run_and_come_back(site: Site, *options: str) -> list[Run]:
    """Return both runs of a job that fails because it is cut and is brought back by one call."""
    job = site.submit("hold", HOLD, *options)
    site.wait_for(lambda: job in site.failed())
    assert site.recover(job).wait(PATIENCE_S) == 0
    site.wait_for(lambda: site.have_come_back(job))
    return site.runs(job)[str(job)]


@pytest.mark.usefixtures("cpus_follow")
def test_a_job_that_lists_a_partition_too_small_for_its_request_comes_back_by_one_call(site: Site) -> None:
    """slurmctld complains about the small partition, but does what it is told."""
    first, second = run_and_come_back(site, "--partition=small,main")
    assert first.mem_mib < NEEDS_MIB
    assert second == AS_ASKED


@pytest.mark.usefixtures("cpus_follow")
@pytest.mark.parametrize("name", ["step-again", "hold-again"])
def test_a_job_that_requeues_itself_after_a_kill_restarts_with_its_original_request(
    site: Site, name: str
) -> None:
    """Slurm makes it wait for two minutes. A killed srun is shown by slurmctld, a killed script only by sacct."""
    job = site.submit(name, FAMILIES[name])
    site.wait_for(lambda: "REQUEUED" in {run.state for run in site.runs(job).get(str(job), ())})
    site.shell.wait_state(job, "PENDING")
    assert site.recover(job).wait(PATIENCE_S) == 0
    site.user.run("scontrol", "update", f"JobId={job}", "StartTime=now")
    site.wait_for(lambda: site.have_come_back(job))
    first, second = site.runs(job)[str(job)]
    assert (first.state, second) == ("REQUEUED", AS_ASKED)
    assert first.mem_mib < NEEDS_MIB


def test_a_job_that_requeued_itself_and_waits_for_room_gets_its_original_request(
    site: Site, cpus_stay: bool
) -> None:
    """It waits among jobs that begin later at their own request; nothing is looked up about those."""
    job = site.submit("hold-again", FAMILIES["hold-again"])
    later = site.submit("modest", MODEST, "--begin=now+1hour")
    site.wait_for(lambda: "REQUEUED" in {run.state for run in site.runs(job).get(str(job), ())})
    site.shell.wait_state(job, "PENDING")
    nodes = f"NodeName={','.join(site.sandbox.manifest.nodes)}"
    site.shell.run("scontrol", "update", nodes, "State=DRAIN", "Reason=full")
    try:
        site.user.run("scontrol", "update", f"JobId={job}", "StartTime=now")
        told = ("squeue", "--noheader", "--format=%r", f"--jobs={job}")
        site.wait_for(lambda: site.shell.run(*told).strip() not in ("BeginTime", "None"))
        with conftest.commands_on(site.sandbox):
            seen = ScontrolQueue().failed_jobs(again=True)
        assert (job in seen, later in seen) == (True, False)
        site.shell.run("rightsizer", "recover", "--apply")
    finally:
        site.shell.run("scontrol", "update", nodes, "State=RESUME")
        site.shell.run("scancel", str(later))
    site.wait_for(lambda: site.have_come_back(job))
    first, second = site.runs(job)[str(job)]
    assert first.state == "REQUEUED"
    assert second == (AS_ASKED._replace(cpus=first.cpus) if cpus_stay else AS_ASKED)


def test_a_job_that_may_not_be_requeued_is_explained_and_its_user_credited(site: Site) -> None:
    job = site.submit("hold", HOLD, "--no-requeue")
    site.wait_for(lambda: job in site.failed())
    dry = site.shell.run("rightsizer", "recover", "--job", str(job))
    assert "its user forbids requeueing it" in dry
    assert job not in {entry.job_id for entry in site.entries()}
    for _ in range(2):
        site.shell.run("rightsizer", "recover", "--apply")
    [entry] = [entry for entry in site.entries() if entry.job_id == job]
    assert (entry.what, entry.cause, entry.user) == ("lost", "out_of_memory", USER)
    assert site.shell.wait_ended(job) == "OUT_OF_MEMORY"
    site.shell.run("rightsizer", "ingest")
    _, story = site.shell.run_both("rightsizer", "explain", str(job))
    assert "failed because it had been cut" in story
    assert "its user forbids requeueing it" in story
    assert [run.state for run in site.runs(job)[str(job)]] == ["OUT_OF_MEMORY"]


@pytest.mark.usefixtures("cpus_follow")
def test_a_job_whose_output_says_that_memory_ran_out_comes_back_if_the_site_wants_that(site: Site) -> None:
    home = site.folder / "home"
    home.mkdir()
    shutil.chown(home, USER)
    ours = site.submit("says", SAYS, f"--output={home}/%x-%j.out")
    # This output is a link to another user's file that says so. The user may not read it, so it proves nothing.
    foreign = site.submit("says", SAYS.replace("echo", "true"), f"--output={home}/foreign.out")
    site.wait_for(lambda: {ours, foreign} <= set(site.failed()))
    secret = site.folder / "secret"
    secret.write_text("MemoryError\n", encoding="utf-8")
    secret.chmod(0o600)
    (home / "foreign.out").unlink()
    (home / "foreign.out").symlink_to(secret)
    assert f" {ours} " not in site.shell.run("rightsizer", "recover")
    site.recover_by_output()
    site.wait_for(lambda: site.have_come_back(ours))
    first, second = site.runs(ours)[str(ours)]
    assert first.mem_mib < ASKED_MIB
    assert second == AS_ASKED
    assert len(site.runs(foreign)[str(foreign)]) == 1


def test_dependent_jobs_wait_on_and_the_family_is_not_cut_that_far_again(site: Site) -> None:
    job = site.submit("grow", HOLD)
    waits_for_it = site.submit("after", "true", f"--dependency=afterok:{job}")
    # Slurm cancels these: the array because of the job, and the last one because of the array.
    killed = "--kill-on-invalid-dep=yes"
    array = site.submit("after", "true", f"--dependency=afterok:{job}", "--array=1-2", killed)
    last = site.submit("after", "true", f"--dependency=afterok:{array}_2", killed)
    given_up = site.submit("after", "true", f"--dependency=afterok:{job}")
    site.wait_for(lambda: job in site.failed())
    site.wait_for(lambda: states_of(site, array, last) == {"CANCELLED"})
    # Slurm keeps this one, and calls it a job whose dependency is never satisfied.
    site.wait_for(lambda: "DependencyNeverSatisfied" in shown(site, given_up))
    site.user.run("scancel", str(given_up))
    site.shell.run("rightsizer", "recover", "--job", str(job), "--apply")
    site.wait_for(lambda: site.have_come_back(job, waits_for_it))
    site.wait_for(lambda: states_of(site, array, last) == {"COMPLETED"})
    assert states_of(site, given_up) == {"CANCELLED"}
    site.shell.run("rightsizer", "ingest")

    # The service hears of ended jobs within a moment.
    site.wait_for(lambda: site.token_of("grow", HOLD).granted.get("mem", ASKED_MIB) >= NEEDS_MIB)
    again = site.submit("grow", HOLD)
    assert site.shell.wait_ended(again) == "COMPLETED"


def states_of(site: Site, *jobs: int) -> set[str]:
    """Return the states of these jobs, and of all tasks of those that are arrays."""
    listed = ",".join(map(str, jobs))
    return set(site.shell.run("squeue", "-h", "-r", "--states=all", f"--jobs={listed}", "-o%T").split())


def shown(site: Site, job: int) -> str:
    return site.shell.run("scontrol", "show", "job", str(job))


def test_a_job_whose_watcher_is_killed_before_the_mark_is_not_sized_again_meanwhile(
    site: Site, monkeypatch: pytest.MonkeyPatch, cpus_stay: bool
) -> None:
    job = site.submit("held", HOLD)
    site.wait_for(lambda: job in site.failed())
    # The failure counts at once: similar jobs get more.
    site.shell.run("rightsizer", "ingest")
    killer = killed_before_the_mark(site)
    site.wait_for(lambda: killer.poll() is not None)
    assert killer.returncode == -signal.SIGKILL
    shown = site.shell.run("scontrol", "show", "job", str(job))
    assert "Reason=job_requeued_in_held_state" in shown
    assert "recovery=" not in shown
    with sizing(site.sandbox, site.config, monkeypatch) as cycle:
        assert cycle() == []
    watcher = site.watch()
    try:
        site.wait_for(lambda: site.have_come_back(job))
    finally:
        watcher.send_signal(signal.SIGTERM)
        assert watcher.wait(PATIENCE_S) == 0
    first, *_, last = site.runs(job)[str(job)]
    assert last == (AS_ASKED._replace(cpus=first.cpus) if cpus_stay else AS_ASKED)


@pytest.mark.parametrize("change", [("CPUsPerTask=4", "NumCPUs=4", "MinCPUsNode=4"), ("MinCPUsNode=4",)])
def test_what_its_user_has_changed_stays_and_its_memory_comes_back(
    site: Site, change: tuple[str, ...]
) -> None:
    """Its user raised its CPUs while it waited, but not its memory."""
    job = site.submit("raised", HOLD, "--hold")
    site.user.run("scontrol", "update", f"JobId={job}", *change)
    site.user.run("scontrol", "release", str(job))
    site.wait_for(lambda: job in site.failed())
    site.shell.run("rightsizer", "recover", "--job", str(job), "--apply")
    site.wait_for(lambda: site.have_come_back(job))
    first, second = site.runs(job)[str(job)]
    assert first.cpus == 4
    assert first.mem_mib < NEEDS_MIB
    assert second == Run("COMPLETED", 4, ASKED_MIB)


def killed_before_the_mark(site: Site) -> "subprocess.Popen[bytes]":
    """Start a watcher that is killed when it is about to mark the first job that it has requeued."""
    programs = site.folder / "killing"
    programs.mkdir()
    environment = {**os.environ, **site.sandbox.environment()}
    real = shutil.which("scontrol", path=environment["PATH"])
    scontrol = programs / "scontrol"
    scontrol.write_text(
        f"""#!/bin/sh\ncase "$*" in *recovery=*) kill -9 $PPID; exit 1;; esac\nexec {real} "$@"\n""",
        encoding="utf-8",
    )
    scontrol.chmod(0o755)
    return subprocess.Popen(
        ["rightsizer", "recover", "--watch", "--apply"],
        env={**environment, "PATH": f"{programs}:{environment['PATH']}"},
    )
