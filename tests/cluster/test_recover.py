"""Jobs that we cut below their need, on a real Slurm with real memory limits: each comes back once, as it was asked.

RIGHTSIZER_RECOVERIES=50 makes it fifty jobs, RIGHTSIZER_RECOVERY_KILLS=20 kills the watcher twenty times.
"""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from accounting.records import Attempt
from accounting.store.database import open_store
from accounting.store.records import write_attempts
from accounting.token import find_token, format_token
from models.families import script_signature
from slurm_plugin.config import Config, load_config
from slurm_plugin.recovery.journal import Entry, Journal
from slurm_plugin.sandbox import cluster, daemons
from slurm_plugin.sandbox.cluster import Options, Sandbox
from slurm_plugin.sandbox.shape import Shape
from tests.builders import T0, attempt, decision, request
from tests.cluster.conftest import Shell
from tests.cluster.matrix.prefixes import chosen_prefix

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

JOBS = int(os.environ.get("RIGHTSIZER_RECOVERIES", "6"))
KILLS = int(os.environ.get("RIGHTSIZER_RECOVERY_KILLS", "3"))
PATIENCE_S = 90.0 + 4 * JOBS
# `nobody` is none to Slurm any more (26.05).
USER = "games"
ASKED_CPUS, ASKED_MIB = 8, 8000
USED_MIB, NEEDS_MIB = 60, 400
HOLD = f"python3 -c 'held = b\"1\" * ({NEEDS_MIB} << 20)'\n"
# Slow only as long as nobody has queued it again.
SLOW = 'test -n "$SLURM_RESTART_COUNT" || sleep 600\n'

STEP = f"srun {HOLD}"
FAMILIES = {"hold": HOLD, "step": STEP, "slow": SLOW, "grow": HOLD}


def past_of(name: str, body: str, first: int) -> list[Attempt]:
    """What the model knows: jobs like this one never used more. So it is our policy that cuts them below their need."""
    asked = request(
        user=USER,
        job_name=name,
        cpus_per_task=ASKED_CPUS,
        mem_per_node_mib=ASKED_MIB,
        script_signature=script_signature(script_of(body)),
    )
    token = format_token(decision(request=asked))
    told: dict[str, Any] = {
        "user": USER,
        "job_name": name,
        "token": False,
        "admin_comment": token,
        "mem_mib": USED_MIB,
    }
    return [attempt(job_id=first + n, submit_s=T0 + 1000 * n, **told) for n in range(30)]


def script_of(body: str) -> str:
    return f"#!/bin/bash\n{body}"


class Run(NamedTuple):
    """What sacct says of one run of a job."""

    state: str
    cpus: int
    mem_mib: int


AS_ASKED = Run("COMPLETED", ASKED_CPUS, ASKED_MIB)


class Site:
    """A sandbox that enforces, with a model that gives jobs too little."""

    def __init__(self, sandbox: Sandbox, folder: Path) -> None:
        self.sandbox, self.folder = sandbox, folder
        self.shell, self.user = Shell(sandbox), Shell(sandbox, user=USER)
        self.config: Config = load_config(str(sandbox.layout.rightsizer_toml))
        self.journal = Journal(Path(self.config.recovery.directory))
        self.on_end = folder / "epilog-on"

    def submit(self, name: str, body: str, *options: str) -> int:
        script = self.folder / f"{name}.sh"
        script.write_text(script_of(body), encoding="utf-8")
        asked = (f"-c{ASKED_CPUS}", f"--mem={ASKED_MIB}", f"--job-name={name}", "--chdir=/", "--time=5")
        argv = ("sbatch", "--parsable", "--output=/dev/null", *asked, *options, str(script))
        return int(self.user.run(*argv).partition(";")[0])

    def runs(self, *jobs: int) -> dict[str, list[Run]]:
        """Every run of these jobs, by the number that users know."""
        wanted = ",".join(map(str, jobs))
        argv = ("sacct", "--allocations", "--duplicates", "--noheader", "--parsable2", "--noconvert")
        found: dict[str, list[Run]] = {}
        said = self.shell.run(*argv, f"--jobs={wanted}", "--format=JobID,State,AllocTRES,Start")
        for line in sorted(said.splitlines(), key=lambda line: line.rpartition("|")[2]):
            job, state, tres, _ = line.split("|")
            held = dict(pair.split("=", 1) for pair in tres.split(",") if pair)
            run = Run(
                state.partition(" ")[0], int(held.get("cpu", 0)), int(held.get("mem", "0M").removesuffix("M"))
            )
            found.setdefault(job, []).append(run)
        return found

    def failed(self) -> list[int]:
        """Jobs that slurmctld has as failed."""
        states = "--states=OUT_OF_MEMORY,FAILED,TIMEOUT"
        return [int(job) for job in self.shell.run("squeue", "--noheader", "--format=%A", states).split()]

    def entries(self) -> list[Entry]:
        return list(self.journal.newest().values())

    def watch(self) -> "subprocess.Popen[bytes]":
        with (self.folder / "recover.log").open("ab") as log:
            return subprocess.Popen(
                ["rightsizer", "recover", "--watch", "--apply"],
                env={**os.environ, **self.sandbox.environment()},
                stderr=log,
            )

    def wait_for(self, what: Callable[[], bool]) -> None:
        until_s = time.monotonic() + PATIENCE_S
        while not what():
            assert time.monotonic() < until_s, self.shell.run("squeue", "--states=all", "--array")
            time.sleep(0.2)


@pytest.fixture(scope="module")
def site(make_folder: Callable[[], Path]) -> Site:
    if os.geteuid() != 0:
        pytest.skip("only root can submit as another user, and limit memory")
    folder = make_folder()
    epilog = folder / "epilog.sh"
    shape = Shape(lines=(f"EpilogSlurmctld={epilog}",))
    options = Options(
        directory=folder / "site", nodes=4, slurm_prefix=chosen_prefix(), mode="enforce", shape=shape
    )
    epilog.write_text("#!/bin/sh\n", encoding="utf-8")
    epilog.chmod(0o755)
    site = Site(cluster.start(options), folder)
    if not site.sandbox.manifest.enforcement.memory:
        pytest.skip(f"memory is not limited here: {site.sandbox.manifest.enforcement.reason}")
    epilog.write_text(epilog_of(site), encoding="utf-8")
    engine = open_store(site.config.store.url, create=True)
    with engine.begin() as connection:
        for number, (name, body) in enumerate(FAMILIES.items(), 1):
            write_attempts(connection, past_of(name, body, 900_000 + 1000 * number))
    engine.dispose()
    site.shell.run("rightsizer", "train", "--promote", "always")
    site.wait_for(
        lambda: "in use" in (site.sandbox.layout.log / f"{daemons.SERVE}.out").read_text(encoding="utf-8")
    )
    return site


def epilog_of(site: Site) -> str:
    """The line of docs/admin.md, while a test switches it on; slurmctld gives it next to no environment."""
    exports = "".join(
        f"export {name}='{value}'\n" for name, value in {**os.environ, **site.sandbox.environment()}.items()
        if name in ("PATH", "SLURM_CONF", "RIGHTSIZER_CONFIG")
    )  # fmt: skip
    line = 'setsid --fork rightsizer recover --job "$SLURM_JOB_ID" --apply'
    streams = f"</dev/null >>{site.folder}/epilog.log 2>&1"
    return f"#!/bin/bash\n{exports}test ! -e {site.on_end} || {line} {streams}\n"


def test_each_comes_back_once_whenever_the_watcher_is_killed(site: Site) -> None:
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
    calls = [recover_job(site, job) for job in singles]
    try:
        site.wait_for(lambda: all(call.poll() is not None for call in calls))
        assert {call.returncode for call in calls} == {0}
        site.wait_for(lambda: has_come_back(site, ours))
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


def recover_job(site: Site, job: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        ["rightsizer", "recover", "--job", str(job), "--apply"],
        env={**os.environ, **site.sandbox.environment()},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def has_come_back(site: Site, jobs: tuple[int, ...]) -> bool:
    runs = site.runs(*jobs)
    return len(runs) >= len(jobs) and all(one[-1].state == "COMPLETED" for one in runs.values())


def test_who_may_not_be_requeued_is_told_and_credited(site: Site) -> None:
    job = site.submit("hold", HOLD, "--no-requeue")
    site.wait_for(lambda: job in site.failed())
    dry = site.shell.run("rightsizer", "recover", "--job", str(job))
    assert "its user does not let it be requeued" in dry
    assert job not in {entry.job_id for entry in site.entries()}
    for _ in range(2):
        site.shell.run("rightsizer", "recover", "--apply")
    [entry] = [entry for entry in site.entries() if entry.job_id == job]
    assert (entry.what, entry.cause, entry.user) == ("lost", "out_of_memory", USER)
    site.wait_for(lambda: str(job) in site.runs(job))
    site.shell.run("rightsizer", "ingest")
    _, story = site.shell.run_both("rightsizer", "explain", str(job))
    assert "it failed because we had cut it" in story
    assert "its user does not let it be requeued" in story
    assert [run.state for run in site.runs(job)[str(job)]] == ["OUT_OF_MEMORY"]


def test_who_waits_for_it_waits_on_and_its_family_is_not_cut_that_far_again(site: Site) -> None:
    job = site.submit("grow", HOLD)
    waits_for_it = site.submit("after", "true", f"--dependency=afterok:{job}")
    site.wait_for(lambda: job in site.failed())
    site.shell.run("rightsizer", "recover", "--job", str(job), "--apply")
    site.wait_for(lambda: has_come_back(site, (job, waits_for_it)))
    site.shell.run("rightsizer", "ingest")

    def learned() -> bool:
        """The service hears of what ended within a moment."""
        waits = site.submit("grow", HOLD, "--hold")
        shown = site.shell.run("scontrol", "show", "job", str(waits))
        site.shell.run("scancel", str(waits))
        return granted_mib(shown) >= NEEDS_MIB

    site.wait_for(learned)
    again = site.submit("grow", HOLD)
    assert site.shell.wait_ended(again) == "COMPLETED"


def granted_mib(shown: str) -> int:
    """What a job has by its token: as asked, where that grants nothing."""
    token = find_token(shown.partition("AdminComment=")[2].partition("\n")[0])
    assert token is not None
    return token.granted.get("mem", ASKED_MIB)


def test_out_of_time_with_fewer_cpus_comes_back_from_the_epilog(site: Site) -> None:
    job = site.submit("slow", SLOW)
    site.wait_for(lambda: "RUNNING" in site.shell.run("squeue", "--noheader", "--format=%T", f"--jobs={job}"))
    site.on_end.touch()
    try:
        site.shell.run("scontrol", "update", f"JobId={job}", "EndTime=now")
        if chosen_prefix():
            # A slurmctld that another release's loader has started calls that loader for the script (exit code 127).
            site.wait_for(lambda: "Reason=TimeLimit" in site.shell.run("scontrol", "show", "job", str(job)))
            assert recover_job(site, job).wait(PATIENCE_S) == 0
        site.wait_for(lambda: has_come_back(site, (job,)))
    finally:
        site.on_end.unlink()
    first, second = site.runs(job)[str(job)]
    assert first.state in ("TIMEOUT", "REQUEUED")
    assert first.cpus < ASKED_CPUS
    assert second == AS_ASKED
