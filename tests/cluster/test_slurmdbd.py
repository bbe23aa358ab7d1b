"""slurmdbd's own database says of every attempt what sacct says, on every release that is here."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from accounting.dumps.jobs import DumpSettings
from accounting.dumps.read import read_dump
from accounting.errors import SlurmError
from accounting.frames import Records
from accounting.slurmdbd import read_database
from slurm_plugin.sandbox import cluster, daemons, teardown
from slurm_plugin.sandbox.cluster import Options, Sandbox
from slurm_plugin.sandbox.slurm_conf import DATABASE_NAME, DATABASE_USER
from tests.cluster.job_mix import Submitted, run_mix
from tests.cluster.matrix.prefixes import releases, why_missing
from tests.cluster.matrix.release import environment

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

RELEASES = releases()
COLUMNS = (
    "JobIDRaw,JobID,Cluster,User,Account,Partition,QOS,State,Submit,Start,End,ElapsedRaw,TimelimitRaw,NNodes,NTasks,ReqTRES,"
    "AllocTRES,MaxRSS,TotalCPU,TRESUsageInMax,TRESUsageInTot,TRESUsageOutTot,ConsumedEnergyRaw,JobName,Comment,AdminComment"
)
READER = "rightsizer_reader"


@dataclass(frozen=True)
class Site:
    """A private Slurm on which jobs of every kind have ended, and what sacct printed of them."""

    sandbox: Sandbox
    submitted: list[Submitted]
    printed: bytes

    @property
    def cluster(self) -> str:
        return f"sandbox-{self.sandbox.layout.tag}"

    def url(self, account: str) -> str:
        return f"mysql+pymysql://{account}@127.0.0.1:{self.sandbox.manifest.ports.mariadb}/{DATABASE_NAME}"

    def read(self) -> Records:
        now_s = int(time.time())
        return together(list(read_database(self.url(READER), self.cluster, now_s - 3600, now_s + 60, now_s)))


@pytest.fixture(scope="module")
def sites() -> Iterator[Mapping[str, Future[Site]]]:
    """All releases that can run here, side by side: most of the time their jobs wait."""
    runs = os.geteuid() == 0
    names = [name for name, prefix in RELEASES.items() if runs and not why_missing(prefix)]
    with ExitStack() as undo, ThreadPoolExecutor(len(names) or 1) as pool:
        yield {name: pool.submit(undo.enter_context, played(RELEASES[name])) for name in names}


@pytest.fixture(scope="module", params=RELEASES)
def site(request: pytest.FixtureRequest, sites: Mapping[str, Future[Site]]) -> Site:
    """A release after its jobs have ended, with an account that may only read its database."""
    reason = why_missing(RELEASES[request.param])
    if reason:
        pytest.skip(reason)
    if os.geteuid() != 0:
        pytest.skip("the jobs are root's")
    return sites[request.param].result()


@contextmanager
def played(prefix: Path | None) -> Iterator[Site]:
    """Run all jobs on a release, and hand it out."""
    with tempfile.TemporaryDirectory(prefix="rightsizer-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        options = Options(directory=folder / "sandbox", nodes=2, slurm_prefix=prefix, hook=False, serve=False)
        sandbox = cluster.start(options)
        try:
            submitted = run_mix(sandbox, enforced=sandbox.manifest.enforcement.memory)
            printed = ask_sacct(sandbox)
            add_reader(sandbox)
            yield Site(sandbox, submitted, printed)
        finally:
            cluster.stop(folder / "sandbox")


def add_reader(sandbox: Sandbox) -> None:
    """Start the database again with one more account, which may only read."""
    setup = sandbox.layout.database_setup
    statements = (
        f"CREATE USER IF NOT EXISTS '{READER}'@'127.0.0.1';",
        f"GRANT SELECT ON {DATABASE_NAME}.* TO '{READER}'@'127.0.0.1';",
    )
    setup.write_text(setup.read_text(encoding="utf-8") + "\n".join(statements) + "\n", encoding="utf-8")
    teardown.end_daemon(sandbox.layout, daemons.MARIADBD)
    cluster.bring_up([daemons.mariadbd(sandbox.cluster)], sandbox.cluster, lambda _: None)


def ask_sacct(sandbox: Sandbox) -> bytes:
    """Return what sacct prints about all attempts."""
    argv = ("sacct", "--allusers", "--duplicates", "--parsable2", "--noconvert", "--delimiter=\x1f")
    told = {**environment(sandbox), "SLURM_TIME_FORMAT": "%s", "TZ": "UTC"}
    asked = [*argv, "--starttime=now-1hour", f"--format={COLUMNS}"]
    return subprocess.run(asked, env=told, capture_output=True, check=True, cwd="/").stdout


def together(parts: list[Records]) -> Records:
    """Return chunks as one; each of these fits in one chunk."""
    assert [len(part.jobs) for part in parts if len(part.jobs)] == [sum(len(part.jobs) for part in parts)]
    return Records(
        jobs=pa.concat_tables([part.jobs for part in parts]),
        steps=pa.concat_tables([part.steps for part in parts]),
        quarantined=tuple(line for part in parts for line in part.quarantined),
        unfinished=sum(part.unfinished for part in parts),
    )


def printed(site: Site, folder: Path) -> Records:
    """Return what sacct said of the same jobs."""
    file = folder / "sacct.txt"
    file.write_bytes(site.printed)
    settings = DumpSettings(now_s=int(time.time()), zone=ZoneInfo("UTC"))
    return together(list(read_dump(file, settings)))


Key = tuple[int, int, int]


def by_key(records: Records) -> dict[Key, dict[str, object]]:
    """Return jobs with their steps by attempt."""
    jobs = records.jobs.to_pylist()
    steps = records.steps.to_pylist()
    return {
        (job["job_id"], job["submit_s"], job["start_s"]): {
            **job,
            # sacct prints 0 where the database has none, for jobs with several steps only.
            "energy_j": job["energy_j"] or None,
            "steps": {
                step["step_id"]: {name: value for name, value in step.items() if name != "job"}
                for step in steps
                if step["job"] == number
            },
        }
        for number, job in enumerate(jobs)
    }


def test_the_database_says_what_sacct_says(site: Site, tmp_path: Path) -> None:
    direct, by_sacct = by_key(site.read()), by_key(printed(site, tmp_path))
    hostile = {one.job_id for one in site.submitted if "\n" in one.made.name or "\x1f" in one.made.name}
    assert hostile == {key[0] for key in direct} - {key[0] for key in by_sacct}
    for key, job in by_sacct.items():
        assert direct[key] == job


def test_every_job_is_there_with_its_own_name_and_state(site: Site) -> None:
    records = site.read()
    assert records.quarantined == ()
    jobs = records.jobs.to_pylist()
    for one in site.submitted:
        states = [job["state"].partition(" ")[0] for job in jobs if job["job_id"] == one.job_id]
        assert states == list(one.made.states), one.made.kind
        names = {job["job_name"] for job in jobs if job["job_id"] == one.job_id}
        # slurmdbd keeps no double quotes in names, and 255 bytes of them.
        assert names == {(one.made.name or one.made.kind).replace('"', "`")[:255]}
    assert len(jobs) == sum(one.made.jobs + len(one.made.states) - 1 for one in site.submitted)


def test_jobs_outside_the_window_are_left_out(site: Site) -> None:
    now_s = int(time.time())
    parts = list(read_database(site.url(READER), site.cluster, now_s - 10**6, now_s - 10**5, now_s))
    assert sum(len(part.jobs) for part in parts) == 0


def test_an_account_that_may_write_is_refused_with_the_grant_to_use(site: Site) -> None:
    conf = (site.sandbox.layout.etc / "slurmdbd.conf").read_text(encoding="utf-8")
    (password,) = re.findall(r"^StoragePass=(.*)$", conf, re.MULTILINE)
    with pytest.raises(SlurmError, match="GRANT SELECT ON"):
        list(read_database(site.url(f"{DATABASE_USER}:{password}"), site.cluster, 0, 1, 1))


def test_a_cluster_that_is_not_there(site: Site) -> None:
    with pytest.raises(SlurmError, match="sacctmgr list cluster"):
        list(read_database(site.url(READER), "elsewhere", 0, 1, 1))
    with pytest.raises(SlurmError, match="no cluster's name"):
        list(read_database(site.url(READER), "x`; --", 0, 1, 1))
