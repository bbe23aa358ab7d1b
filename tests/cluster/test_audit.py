"""Journal, store, tokens and a real Slurm agree; store and journal replace each other; forgeries are found."""

import getpass
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accounting.decisions.token import find_token
from slurm_plugin.config.file import load_config
from slurm_plugin.config.settings import Config
from slurm_plugin.sandbox import cluster, daemons
from slurm_plugin.sandbox.cluster import Options, Sandbox
from tests.cluster.conftest import CPUS_STAY, Shell
from tests.cluster.matrix.prefixes import chosen_prefix
from tests.cluster.recovery_site import past_of, script_of
from tests.cluster.test_recover_cpus import SLOW
from tests.stores import store_attempts
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

FAST = "true\n"
ASKED = ("-c8", "--mem=8000", "--chdir=/", "--time=5", "--output=/dev/null")
HOUR_S = 3600


class Site:
    """A sandbox that enforces, with a model that cuts both families of jobs."""

    def __init__(self, sandbox: Sandbox, folder: Path) -> None:
        self.folder = folder
        self.sandbox = sandbox
        self.shell = Shell(sandbox)
        self.config: Config = load_config(str(sandbox.layout.rightsizer_toml))
        self.journal = Path(self.config.service.journal)
        self.store = Path(self.config.store.url.removeprefix("sqlite:///"))

    def submit(self, name: str, body: str, *options: str) -> int:
        script = self.folder / f"{name}.sh"
        script.write_text(script_of(body), encoding="utf-8")
        said = self.shell.run("sbatch", "--parsable", *ASKED, f"--job-name={name}", *options, str(script))
        return int(said.partition(";")[0])

    def wait_for(self, what: Callable[[], bool]) -> None:
        wait_until(what, lambda: self.shell.run("squeue", "--states=all", "--array"))

    def ended(self, jobs: int) -> bool:
        argv = (
            "sacct",
            "--allusers",
            "--allocations",
            "--noheader",
            "--parsable2",
            "--format=State,Partition",
        )
        rows = self.shell.run(*argv).split()
        # 22.05 can show the end of a short job before its partition, and before who submitted it.
        return len(rows) == jobs and all(row == "COMPLETED|main" for row in rows)

    def audit(self, *options: str, code: int = 0) -> set[tuple[str, str]]:
        said = self.shell.run("rightsizer", "audit", "--last", "2h", "--format", "json", *options, code=code)
        return {(row["where"], row["what"]) for row in json.loads(said)}

    def explained(self, job: int) -> tuple[list[dict[str, Any]], list[str]]:
        """Return the table without each resource's reason, and the story without its source."""
        rows, story = self.shell.run_both("rightsizer", "explain", str(job), "--format", "json")
        told = [
            line.removesuffix("; this is known from the job's token alone") for line in story.splitlines()
        ]
        return [{name: row[name] for name in row if name != "why"} for row in json.loads(rows)], told

    def forget_store(self) -> None:
        for file in self.store.parent.glob(f"{self.store.name}*"):
            file.unlink()
        self.ingest()

    def ingest(self) -> None:
        """Read the last hours only: a whole day would be read window by window."""
        since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() - 2 * HOUR_S))
        self.shell.run("rightsizer", "ingest", "--since", since)


@pytest.fixture(scope="module")
def site(make_folder: Callable[[], Path]) -> Site:
    if os.geteuid() != 0:
        pytest.skip("only root, as which slurmctld runs then, can bring a job back and change a token")
    folder = make_folder()
    options = Options(directory=folder / "site", nodes=2, slurm_prefix=chosen_prefix(), mode="enforce")
    site = Site(cluster.start(options), folder)
    for number, (name, body) in enumerate({"fast": FAST, "slow": SLOW}.items(), 1):
        past = past_of(name, body, 900_000 + 1000 * number, getpass.getuser())
        store_attempts(site.config.store.url, past)
    site.shell.run("rightsizer", "train", "--promote", "always")
    log = site.sandbox.layout.log / f"{daemons.SERVE}.out"
    site.wait_for(lambda: "in use" in log.read_text(encoding="utf-8"))
    return site


@pytest.fixture(scope="module")
def jobs(site: Site, cpus_stay: bool) -> list[int]:
    """Return jobs that have ended and are ingested; the first ran out of time because it was cut, and was recovered."""
    if cpus_stay:
        pytest.skip(CPUS_STAY)
    slow = site.submit("slow", SLOW)
    rest = [site.submit("fast", FAST) for _ in range(3)]
    rest.append(site.submit("fast", FAST, "--comment=rightsize=off"))
    site.submit("fast", FAST, "--array=1-2")
    running = ("squeue", "--noheader", "--format=%T", f"--jobs={slow}")
    site.wait_for(lambda: "RUNNING" in site.shell.run(*running))
    site.shell.run("scontrol", "update", f"JobId={slow}", "EndTime=now+1")
    site.wait_for(lambda: "Reason=TimeLimit" in site.shell.run("scontrol", "show", "job", str(slow)))
    site.wait_for(lambda: is_back(site, slow))
    site.wait_for(lambda: site.ended(7))
    site.ingest()
    return [slow, *rest]


def is_back(site: Site, job: int) -> bool:
    """Try to recover a failed job and return whether it was requeued: a job that is still ending is not yet."""
    site.shell.run("rightsizer", "recover", "--job", str(job), "--apply")
    return " Restarts=1 " in site.shell.run("scontrol", "show", "job", str(job))


def test_all_four_agree_and_each_job_is_explained_without_journal_or_store(
    site: Site, jobs: list[int]
) -> None:
    assert site.audit() == set()
    shown = jobs[:2]
    before = [site.explained(job) for job in shown]
    assert "was requeued with its original request" in before[0][1][-1]
    assert all("(resized) was applied" in told[0] for _, told in before)
    away = site.journal.with_name("journal-away")
    site.journal.rename(away)
    try:
        assert site.explained(shown[0]) == before[0]
        site.forget_store()
        assert [site.explained(job) for job in shown] == before
        assert site.audit() == set()
    finally:
        away.rename(site.journal)
    site.forget_store()
    assert site.explained(shown[0]) == before[0]
    assert site.audit() == set()


def test_jobs_whose_admin_comment_was_replaced_in_slurmdbd_are_known_by_the_journal(
    site: Site, jobs: list[int]
) -> None:
    cuts = ("rightsizer", "report", "cuts", "--format", "json")
    before = site.shell.run(*cuts)
    for job in jobs[2:4]:
        set_comment(site, job, "JS1:H4sIAAAA")
    site.forget_store()
    assert site.shell.run(*cuts) == before
    assert site.audit() == set()


def set_comment(site: Site, job: int, comment: str) -> None:
    """Replace a job's admin comment in slurmdbd, as Jobstats does when it has ended."""
    where = ("where", f"jobid={job}", f"cluster={cluster_of(site)}")
    site.shell.run("sacctmgr", "--immediate", "modify", "job", *where, "set", f"AdminComment={comment}")


def test_a_forged_line_a_removed_line_and_an_altered_token_are_found(site: Site, jobs: list[int]) -> None:
    [file] = [file for file in site.journal.glob("decisions-2*.jsonl") if file.stat().st_size]
    text = file.read_bytes()
    lines = text.splitlines(keepends=True)
    forged = lines[2].replace(b'"cpus_per_task":8', b'"cpus_per_task":9')
    assert forged != lines[2]
    file.write_bytes(b"".join([*lines[:2], forged, *lines[3:]]))
    assert (f"{file.name}:3", "changed") in site.audit(code=3)
    assert "journal-chain" in broken(site)
    file.write_bytes(b"".join(lines[:1] + lines[2:]))
    assert site.audit("--journal", code=3) == {(f"{file.name}:2", "removed")}
    file.write_bytes(text)
    job = jobs[1]
    comment = site.shell.accounted(job, "AdminComment%500")
    token = find_token(comment)
    assert token is not None
    altered = comment.replace(f"mem:{token.granted['mem']}", "mem:7000")
    set_comment(site, job, altered)
    # sacctmgr writes it in lower case.
    assert site.shell.accounted(job, "AdminComment%500").lower() == altered.lower()
    for _ in range(2):
        found = site.audit(code=3)
        assert {(f"job {job}", "granted"), (f"job {job}", "MiB")} <= found
        assert {where for where, _ in found} == {f"job {job}"}
        site.ingest()


def broken(site: Site) -> list[str]:
    """Return the doctor's audit checks that found a problem; other checks may have problems of their own."""
    argv = ("rightsizer", "doctor", "--format", "json")
    try:
        said = site.shell.run(*argv)
    except AssertionError:
        said = site.shell.run(*argv, code=3)
    return [
        row["check"]
        for row in json.loads(said)
        if row["state"] == "problem" and row["check"] in ("journal-chain", "recovery")
    ]


def cluster_of(site: Site) -> str:
    return site.shell.run(
        "sacctmgr", "--noheader", "--parsable2", "list", "cluster", "format=cluster"
    ).strip()
