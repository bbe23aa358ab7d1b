"""Pending jobs sized again on a real Slurm: a burst of a family without history, judged by what Slurm says.

RIGHTSIZER_BURST=200 makes it 200 tasks of an array and 200 single jobs.
"""

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from accounting.decisions.token import Token, find_token
from slurm_plugin.config.file import load_config, render_config
from slurm_plugin.config.settings import Config
from slurm_plugin.sandbox import cluster, daemons
from slurm_plugin.sandbox.cluster import Options, Sandbox
from slurm_plugin.sandbox.shape import Shape
from slurm_plugin.slurm.queue import Written
from tests.builders import T0, attempt
from tests.cluster import conftest
from tests.cluster.conftest import CPUS_STAY, Shell, ingesting, usable
from tests.cluster.late_cycles import sizing
from tests.cluster.matrix.prefixes import chosen_prefix
from tests.stores import store_attempts
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

BURST = int(os.environ.get("RIGHTSIZER_BURST", "40"))
PATIENCE_S = conftest.PATIENCE_S + BURST
ASKED_CPUS, ASKED_MIB = 8, 8000
# Limits hold for users only, not for operators; 26.05 no longer accepts `nobody` as a user.
USER = "games"
# Of the 64 CPUs, single jobs may have this many at a time, and the array the others.
SINGLES_CPUS = 32
# Long enough that most of a burst is still pending when its first jobs have been learned from.
WORK = """python3 -c 'import os, time; held = b"1" * (int(os.environ["HOLDS_MIB"]) << 20); time.sleep(3)'\n"""
# An srun inside takes what its job has: its environment must agree with what the job was given.
STEP = f"srun {WORK}"


# The past of a model that knows neither this user nor these jobs.
PAST = [attempt(job_id=900_000 + n, submit_s=T0 + 1000 * n) for n in range(60)]


class Row(NamedTuple):
    """What sacct says of one job."""

    name: str
    state: str
    cpus: int
    mem_mib: int
    start_s: int
    end_s: int
    token: Token | None


class Site:
    """A sandbox that enforces, with limits, and with a model that knows nothing of what will be submitted."""

    def __init__(self, sandbox: Sandbox, folder: Path) -> None:
        self.shell = Shell(sandbox)
        self.user = Shell(sandbox, user=USER)
        self.sandbox = sandbox
        self.folder = folder
        self.config: Config = load_config(str(sandbox.layout.rightsizer_toml))

    def submit(self, name: str, body: str, *options: str, holds_mib: int = 60) -> int:
        script = self.folder / f"{name}.sh"
        if not script.exists():
            script.write_text(f"#!/bin/bash\n{body}", encoding="utf-8")
        asked = (f"-c{ASKED_CPUS}", f"--mem={ASKED_MIB}", f"--job-name={name}", "--chdir=/", "--time=5")
        # In the environment, which sbatch passes on: --export=ALL,… would make 26.05 log in as the user.
        sbatch = ("env", f"HOLDS_MIB={holds_mib}", "sbatch", "--parsable", "--output=/dev/null")
        said = self.user.run(*sbatch, *asked, *options, str(script))
        return int(said.partition(";")[0])

    def waiting_records(self, job: int) -> list[str]:
        """Return slurmctld's records of the job's pending part; squeue would merge those of an array."""
        shown = self.shell.run("scontrol", "show", "job", str(job))
        return [block for block in re.split(r"\n\s*\n", shown) if "JobState=PENDING" in block]

    def rows(self, *jobs: int) -> list[Row]:
        """Return what sacct says of these jobs, with a row for each array task."""
        fields = "JobName,State,AllocTRES,Start,End,AdminComment"
        wanted = ",".join(map(str, jobs))
        argv = (
            "sacct",
            "--allocations",
            "--noheader",
            "--parsable2",
            "--noconvert",
            f"--jobs={wanted}",
        )
        said = self.shell.run("env", "SLURM_TIME_FORMAT=%s", *argv, f"--format={fields}")
        return [row_of(line) for line in said.splitlines()]

    def ended_rows(self, count: int, *jobs: int) -> list[Row]:
        """Wait until sacct has `count` rows of these jobs with their ends; 22.05 can show allocations even later."""
        self.wait_for(lambda: sum(bool(row.end_s and row.cpus) for row in self.rows(*jobs)) == count)
        return self.rows(*jobs)

    def wait_for(self, what: Callable[[], bool]) -> None:
        wait_until(what, lambda: self.shell.run("squeue", "--array"), patience_s=PATIENCE_S)


def row_of(line: str) -> Row:
    name, state, tres, start, end, comment = line.split("|", 5)
    allocated = dict(pair.split("=", 1) for pair in tres.split(",") if pair)
    return Row(
        name=name,
        state=state.partition(" ")[0],
        cpus=int(allocated.get("cpu", 0)),
        mem_mib=int(allocated.get("mem", "0M").removesuffix("M")),
        start_s=int(start) if start.isdigit() else 0,
        end_s=int(end) if end.isdigit() else 0,
        token=find_token(comment),
    )


@pytest.fixture(scope="module")
def site(make_folder: Callable[[], Path]) -> Iterator[Site]:
    if os.geteuid() != 0:
        pytest.skip("only root can submit as another user, whose limits count")
    folder = make_folder()
    shape = Shape(lines=("AccountingStorageEnforce=associations,limits,qos",))
    options = Options(
        directory=folder / "site", nodes=4, slurm_prefix=chosen_prefix(), mode="enforce", shape=shape
    )
    site = Site(cluster.start(options), folder)
    usable(site.user)
    for words in (
        ("add", "qos", "small", f"MaxTRESPerUser=cpu={SINGLES_CPUS}"),
        ("add", "qos", "closed", "GrpTRES=cpu=0"),
        ("add", "user", USER, "account=demo", "qos=normal,small,closed", "defaultqos=normal"),
    ):
        site.shell.run("sacctmgr", "--immediate", *words)
    store_attempts(site.config.store.url, PAST)
    with ingesting(site.sandbox, site.folder):
        site.shell.run("rightsizer", "train", "--promote", "always")
        site.wait_for(
            lambda: "in use" in (site.sandbox.layout.log / f"{daemons.SERVE}.out").read_text(encoding="utf-8")
        )
        yield site


@contextlib.contextmanager
def advising(site: Site) -> Iterator[Path]:
    """Run the advisor as an admin would, sizing pending jobs; yield its log."""
    wanted = msgspec.structs.replace(site.config.advisor, late_sizing=True, control_share=0.0, period_s=1)
    file, log = site.folder / "advisor.toml", site.folder / "advise.log"
    file.write_text(render_config(msgspec.structs.replace(site.config, advisor=wanted)), encoding="utf-8")
    command = ["rightsizer", "advise", "--config", str(file), "--watch", "--apply"]
    with log.open("w", encoding="utf-8") as said:
        watch = subprocess.Popen(command, env={**os.environ, **site.sandbox.environment()}, stderr=said)
    try:
        yield log
    finally:
        watch.terminate()
        code = watch.wait(PATIENCE_S)
        print(log.read_text(encoding="utf-8"))  # shown if the test fails
    assert code == 0


@contextlib.contextmanager
def nothing_starting(site: Site) -> Iterator[None]:
    """Keep jobs from starting, so that they are submitted as if all at once."""
    site.shell.run("scontrol", "update", "PartitionName=main", "State=DOWN")
    try:
        yield
    finally:
        site.shell.run("scontrol", "update", "PartitionName=main", "State=UP")


def test_a_burst_of_a_new_family_starts_small_once_its_first_jobs_have_ended(
    site: Site, cpus_stay: bool
) -> None:
    records = 0
    with advising(site) as log:
        site.wait_for(lambda: " waiting job" in log.read_text(encoding="utf-8"))
        with nothing_starting(site):
            array = site.submit("fan", WORK, f"--array=1-{BURST}")
            singles = [site.submit("single", STEP, "--qos=small") for _ in range(BURST)]
            shut = site.submit("single", STEP, "--qos=closed")

        def all_ended() -> bool:
            nonlocal records
            records = max(records, len(site.waiting_records(array)))
            return site.shell.run("squeue", "--noheader", "--format=%A").split() == [str(shut)]

        site.wait_for(all_ended)
    assert records == 1
    resized = [line for line in log.read_text(encoding="utf-8").splitlines() if "event=resize-job " in line]
    became = {line.rpartition(": ")[2].rstrip('"') for line in resized}
    assert "done" in became
    # A job that starts between the look and the write keeps what it has.
    assert {one for one in became if "no longer pending" not in one} <= {"done", "started"}
    rows = site.ended_rows(2 * BURST, array, *singles)
    assert [row.state for row in rows] == ["COMPLETED"] * 2 * BURST
    if cpus_stay:
        pytest.skip(CPUS_STAY)
    assert_started_small(rows)
    assert_within_limits(site, rows, shut)
    assert_explained(site, next(job for job in reversed(singles) if site.rows(job)[0].cpus < ASKED_CPUS))


def assert_started_small(rows: list[Row]) -> None:
    """Check that the first have what they asked for, the rest a fraction of it, and that each token says which."""
    for name in ("fan", "single"):
        family = sorted((row for row in rows if row.name == name), key=lambda row: row.start_s)
        as_asked = [row for row in family if (row.cpus, row.mem_mib) == (ASKED_CPUS, ASKED_MIB)]
        small = [row for row in family if row.cpus < ASKED_CPUS and 60 < row.mem_mib < ASKED_MIB]
        assert len(as_asked) + len(small) == len(family)
        assert family[0] in as_asked
        # Not simply the last one: a job that starts between the look and the write has what it asked for.
        assert len(small) >= BURST / 4
        # They sleep: starting one keeps CPUs a little busy, how much varies on a busy machine, and the bound with it.
        assert small[-1].cpus <= ASKED_CPUS / 2
        assert small[-1].mem_mib <= ASKED_MIB / 8
        for row in family:
            assert row.token is not None
            assert row.token.asked == {"tasks": 1, "cpus": ASKED_CPUS, "mem": ASKED_MIB}
            assert row.token.granted == ({"cpus": row.cpus, "mem": row.mem_mib} if row in small else {})
            assert bool(row.token.was) == (row in small)


def assert_within_limits(site: Site, rows: list[Row], shut: int) -> None:
    """Check that a QOS's CPU limit for a user always held, and that without free CPUs even the smallest job waits."""
    singles = [row for row in rows if row.name == "single"]
    assert most_cpus_at_once(singles) <= SINGLES_CPUS
    # A change clears the reason until Slurm looks at the job again.
    site.wait_for(lambda: "Reason=QOSGrpCpuLimit" in site.waiting_records(shut)[0])
    [record] = site.waiting_records(shut)
    assert f"MinMemoryNode={ASKED_MIB}M" not in record
    site.shell.run(
        "sacctmgr", "--immediate", "modify", "qos", "closed", "set", f"GrpTRES=cpu={ASKED_CPUS - 1}"
    )
    assert site.shell.wait_ended(shut) == "COMPLETED"
    assert int(site.shell.allocated(shut)["cpu"]) < ASKED_CPUS


def most_cpus_at_once(rows: list[Row]) -> int:
    return max(
        sum(other.cpus for other in rows if other.start_s <= row.start_s < other.end_s) for row in rows
    )


def assert_explained(site: Site, job: int) -> None:
    """Check that a job is explained by the decision made while it was pending, with the original request."""
    site.shell.run("rightsizer", "ingest")
    said, story = site.shell.run_both("rightsizer", "explain", str(job), "--format", "json")
    memory = next(row for row in json.loads(said) if row["resource"] == "memory (MiB)")
    assert memory["asked"] == ASKED_MIB
    assert f"{memory['allocated']}M" == site.shell.allocated(job)["mem"]
    [row] = site.rows(job)
    assert row.token is not None
    assert f"decision {row.token.decision_id} (resized) was applied" in story
    assert f"and replaced {row.token.was}" in story


def test_our_own_cut_is_raised_once_a_similar_job_has_failed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the burst: its family is cut at submission, and one of its jobs suddenly needs five times as much."""
    if not site.sandbox.manifest.enforcement.memory:
        pytest.skip(f"memory is not limited here: {site.sandbox.manifest.enforcement.reason}")
    waits = site.submit("fan", WORK, "--hold")
    [record] = site.waiting_records(waits)
    cut_mib = int(re.findall(r"MinMemoryNode=(\d+)M", record)[0])
    assert cut_mib < ASKED_MIB / 8
    fails = site.submit("fan", WORK, holds_mib=2 * cut_mib)
    assert site.shell.wait_ended(fails) == "OUT_OF_MEMORY"
    with sizing(site.sandbox, site.config, monkeypatch) as cycle:
        site.wait_for(lambda: Written(job_id=waits) in cycle())
    site.user.run("scontrol", "release", str(waits))
    assert site.shell.wait_ended(waits) == "COMPLETED"
    [row] = site.rows(waits)
    assert 1.2 * cut_mib <= row.mem_mib <= ASKED_MIB
    assert row.token is not None
    assert row.token.asked == {"tasks": 1, "cpus": ASKED_CPUS, "mem": ASKED_MIB}
    assert row.token.granted.get("mem", ASKED_MIB) == row.mem_mib
    assert row.token.was


def test_a_brake_gives_pending_jobs_back_what_was_cut(
    site: Site, monkeypatch: pytest.MonkeyPatch, cpus_stay: bool
) -> None:
    """After the burst: jobs of its family are cut at submission."""
    waits = site.submit("fan", WORK, "--hold")
    array = site.submit("fan", WORK, "--hold", "--array=1-3")
    asked = f"MinMemoryNode={ASKED_MIB}M"
    assert not any(asked in site.waiting_records(job)[0] for job in (waits, array))
    site.shell.run("rightsizer", "disable", "--family", f"{USER}:fan")
    try:
        with sizing(site.sandbox, site.config, monkeypatch) as cycle:
            assert [one.problem for one in cycle()] == ["", ""]
            assert cycle() == []
    finally:
        site.shell.run("rightsizer", "enable", "--family", f"{USER}:fan")
    assert all(asked in record for job in (waits, array) for record in site.waiting_records(job))
    _, said = site.shell.run_both("rightsizer", "explain", str(waits))
    if cpus_stay:
        pytest.skip(CPUS_STAY)
    assert "it has what it asked for, because cutting jobs like it is stopped" in said
    site.user.run("scontrol", "release", str(waits), str(array))
    rows = site.ended_rows(4, waits, array)
    assert [(row.state, row.cpus, row.mem_mib) for row in rows] == [("COMPLETED", ASKED_CPUS, ASKED_MIB)] * 4
    site.shell.run("rightsizer", "ingest")
    said, story = site.shell.run_both("rightsizer", "explain", str(waits), "--format", "json")
    assert {row["why"] for row in json.loads(said)} == {f"cutting jobs of {USER} named fan is stopped"}
    [row] = site.rows(waits)
    assert row.token is not None
    assert f"decision {row.token.decision_id} (braked) was not applied" in story
    assert f"and replaced {row.token.was}" in story
