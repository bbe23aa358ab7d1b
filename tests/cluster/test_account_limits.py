"""Limits of accounts on a real Slurm: what is said of jobs that they hold, also of a job that came back from recovery.

A job that was cut may run where the original request could not; it comes back with that request, and then waits.
"""

import json
import time
from collections.abc import Callable

import pytest

from slurm_plugin.sandbox.shape import Shape
from tests.cluster.recovery_site import ASKED_CPUS, HOLD, NEEDS_MIB, USER, Site, past_of, start_site

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

# An account's limit, Slurm's reason for a job of ASKED_CPUS for five minutes, and what is said of the job.
LIMITS = {
    "grouped": (
        "GrpTRES=cpu=4",
        "AssocGrpCpuLimit",
        "if it started, its account would have more than it may have at a time",
    ),
    "spent": ("GrpTRESMins=cpu=20", "AssocGrpCPUMinutesLimit", "its account has used up its time"),
    "running": (
        "GrpTRESRunMins=cpu=20",
        "AssocGrpCPURunMinutesLimit",
        "if it started, the running jobs of its account could use more",
    ),
    "large": ("MaxTRES=cpu=4", "AssocMaxCpuPerJobLimit", "it asks for more than its account allows"),
}  # fmt: skip
LETS_ONE = "one"


@pytest.fixture(scope="module")
def site(make_folder: Callable[[], object]) -> Site:
    lines = ("AccountingStorageEnforce=associations,limits,safe",)
    site = start_site(make_folder(), 2, Shape(lines=lines))  # type: ignore[arg-type]
    limits = {name: limit for name, (limit, _, _) in LIMITS.items()} | {LETS_ONE: "MaxJobs=1"}
    for name, limit in limits.items():
        site.shell.run("sacctmgr", "--immediate", "add", "account", name, "set", limit)
        site.shell.run("sacctmgr", "--immediate", "add", "user", USER, f"account={name}")
    site.train({"hold": past_of("hold", HOLD, 900_000)})
    site.wait_for(lambda: LETS_ONE in site.shell.run("scontrol", "show", "assoc_mgr", f"users={USER}"))
    return site


def wait_reason(site: Site, job: int, reason: str) -> None:
    asked = ("squeue", "--noheader", "--states=PENDING", "--Format=Reason:64", f"--jobs={job}")
    site.wait_for(lambda: site.shell.run(*asked).strip() == reason)


def why(site: Site, job: int) -> str:
    return site.shell.run_both("rightsizer", "explain", str(job), "--format", "json")[1]


@pytest.mark.usefixtures("cpus_follow")
def test_a_job_that_comes_back_waits_for_the_limits_of_its_original_request(site: Site) -> None:
    jobs = {name: site.submit("hold", HOLD, f"--account={name}") for name in LIMITS}
    watcher = None
    try:
        site.wait_for(lambda: set(jobs.values()) <= set(site.failed()))
        # A node refuses a second run of a job within the same few seconds.
        time.sleep(3)
        watcher = site.watch()
        for name, job in jobs.items():
            wait_reason(site, job, LIMITS[name][1])
    finally:
        if watcher:
            watcher.terminate()
            watcher.wait()
    for name, job in jobs.items():
        asked = site.shell.run(
            "squeue", "--noheader", "--states=all", "--format=%C %T", f"--jobs={job}"
        ).split()
        assert asked == [str(ASKED_CPUS), "PENDING"]
        assert site.runs(job)[str(job)][0].mem_mib < NEEDS_MIB
        assert f"job {job} waits: {LIMITS[name][2]}" in why(site, job)
    plan = json.loads(site.shell.run("rightsizer", "advise", "--format", "json"))
    held = {row["job_id"]: (row["why"], row["base_start_s"]) for row in plan}
    assert held == dict.fromkeys(jobs.values(), ("a limit of its account holds it", None))
    site.shell.run("scancel", *map(str, jobs.values()))


def test_a_user_at_the_job_limit_of_an_account_is_not_told_to_ask_for_less(site: Site) -> None:
    first, second = (site.submit("wait", "sleep 600\n", f"--account={LETS_ONE}", asked=()) for _ in range(2))
    wait_reason(site, second, "AssocMaxJobsLimit")
    said = why(site, second)
    assert "its user runs as many jobs at a time as the account allows" in said
    assert f"account {LETS_ONE} {USER}: its user's jobs: 1 of 1 are in use" in said
    site.shell.run("scancel", str(first), str(second))
