"""Jobs that we left too few CPUs, on a real Slurm: recognised by their time or their output, they come back."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from accounting.records import Attempt
from accounting.store.database import open_store
from accounting.store.records import read_attempts
from models.past.trials import Trial, trial_of
from slurm_plugin.sandbox.shape import Shape
from slurm_plugin.slurm.accounted_runs import LEAST_MEASURED_S
from tests.cluster.conftest import PATIENCE_S
from tests.cluster.matrix.prefixes import chosen_prefix
from tests.cluster.recovery_site import AS_ASKED, ASKED_CPUS, USER, Site, pasts_of, start_site

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

# Slow and busy, but only until it was requeued: an idle job would be left alone. Others use these processors too.
SLOW = (
    'test "${SLURM_RESTART_COUNT:-0}" -gt 0 || { for n in 1 2 3 4; do while :; do :; done & done; wait; }\n'
)

# Hidden from whatever reads the script.
HALF = """python3 -c 'import multiprocessing, os
multiprocessing.Pool(int(os.environ["SLURM_CPUS" "_PER_TASK"]) // 2)' && sleep 2
"""
ONE = "sr''un -n1 -c1 --exact --mem=9"
WAITS = f"{ONE} sleep 600 & sleep 2\n{ONE} true && kill $!\nwait; true\n"

FAMILIES = {"slow": SLOW, "idle": "sleep 600\n", "half": HALF, "waits": WAITS}


@pytest.fixture(scope="module")
def site(make_folder: Callable[[], Path]) -> Site:
    folder = make_folder()
    epilog = folder / "epilog.sh"
    epilog.write_text("#!/bin/sh\n", encoding="utf-8")
    epilog.chmod(0o755)
    site = start_site(folder, 4, Shape(lines=(f"EpilogSlurmctld={epilog}",)), 2 * PATIENCE_S)
    epilog.write_text(epilog_of(site), encoding="utf-8")
    site.train(pasts_of(FAMILIES))
    return site


def epilog_of(site: Site) -> str:
    """Return the line of docs/recovery.md, which a test switches on; slurmctld gives it almost no environment."""
    exports = "".join(
        f"export {name}='{value}'\n" for name, value in {**os.environ, **site.sandbox.environment()}.items()
        if name in ("PATH", "SLURM_CONF", "RIGHTSIZER_CONFIG")
    )  # fmt: skip
    streams = f"</dev/null >>{site.folder}/epilog.log 2>&1"
    line = f"""setsid --wait sh -c 'rightsizer recover --job "$SLURM_JOB_ID" --apply {streams} &'"""
    return f"#!/bin/bash\n{exports}test ! -e {site.on_end} || {line}\n"


def first_attempt(site: Site, job: int) -> Attempt:
    """Return what the store has of the first run of a job."""
    engine = open_store(site.config.store.url)
    try:
        return min(read_attempts(engine, job), key=lambda one: one.row.start_s)
    finally:
        engine.dispose()


@pytest.mark.usefixtures("cpus_follow")
def test_a_job_that_says_it_had_too_few_cpus_comes_back_and_its_family_keeps_its_cpus(site: Site) -> None:
    """One starts half as many processes as it has CPUs; in the other a step waits for the CPU of another step."""
    home = site.folder / "few"
    home.mkdir()
    shutil.chown(home, USER)
    ours = [site.submit(name, FAMILIES[name], f"--output={home}/%x-%j.out") for name in ("half", "waits")]
    site.shell.wait_state(ours[1], "RUNNING")
    time.sleep(LEAST_MEASURED_S + 2)
    site.shell.run("scontrol", "update", f"JobId={ours[1]}", "EndTime=now")
    site.wait_for(lambda: set(ours) <= set(site.failed()))
    site.recover_by_output()
    site.wait_for(lambda: site.have_come_back(*ours))
    for first, second in site.runs(*ours).values():
        assert first.cpus < ASKED_CPUS
        assert second == AS_ASKED
    causes = {entry.job_id: entry.cause for entry in site.entries()}
    assert [causes[job] for job in ours] == ["said_no_cpus", "timeout"]
    site.shell.run("rightsizer", "ingest")
    # Whatever Slurm calls this run now, it had failed for a reason that the brakes do not know.
    assert trial_of(first_attempt(site, ours[0])) == Trial(shrunk=True, failed=True)
    for name in ("half", "waits"):
        site.wait_for(lambda name=name: "cpus" not in site.token_of(name, FAMILIES[name]).granted)  # type: ignore[misc]


@pytest.mark.usefixtures("cpus_follow")
def test_a_job_out_of_time_with_fewer_cpus_comes_back_from_the_epilog(site: Site) -> None:
    job = site.submit("slow", SLOW)
    site.wait_for(lambda: "RUNNING" in site.shell.run("squeue", "--noheader", "--format=%T", f"--jobs={job}"))
    site.on_end.touch()
    try:
        site.shell.run("scontrol", "update", f"JobId={job}", "EndTime=now+1")
        if chosen_prefix():
            # A slurmctld started by another release's loader calls that loader for the script (exit code 127).
            site.wait_for(lambda: "Reason=TimeLimit" in site.shell.run("scontrol", "show", "job", str(job)))
            assert site.recover(job).wait(PATIENCE_S) == 0
        site.wait_for(lambda: site.have_come_back(job))
    finally:
        site.on_end.unlink()
    first, second = site.runs(job)[str(job)]
    assert first.state in ("TIMEOUT", "REQUEUED")
    assert first.cpus < ASKED_CPUS
    assert second == AS_ASKED
    # Whatever Slurm calls this run now, we know how it ended.
    site.shell.run("rightsizer", "ingest")
    cut = first_attempt(site, job)
    assert trial_of(cut) == Trial(shrunk=True, failed=True, wanted="timeout"), cut.row


def test_a_server_that_was_idle_until_its_time_was_over_does_not_run_again(site: Site) -> None:
    job = site.submit("idle", FAMILIES["idle"])
    site.shell.wait_state(job, "RUNNING")
    time.sleep(LEAST_MEASURED_S + 2)
    site.shell.run("scontrol", "update", f"JobId={job}", "EndTime=now")
    site.wait_for(lambda: job in site.failed())
    assert site.recover(job).wait(PATIENCE_S) == 0
    assert job not in {entry.job_id for entry in site.entries()}
    assert [(run.state, run.cpus) for run in site.runs(job)[str(job)]] == [("TIMEOUT", 1)]
