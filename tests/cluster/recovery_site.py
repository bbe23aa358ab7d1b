"""A site for tests of recovery: a sandbox that enforces, real memory limits, and a model that predicts too little."""

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from accounting.decisions.token import Token, find_token, format_token
from accounting.records import Attempt
from models.past.families import script_signature
from slurm_plugin.config.file import load_config, render_config
from slurm_plugin.config.settings import Config
from slurm_plugin.recovery.journal import Entry, Journal
from slurm_plugin.sandbox import cluster, daemons
from slurm_plugin.sandbox.cluster import Options, Sandbox
from slurm_plugin.sandbox.enforcement import memory_enforcement
from slurm_plugin.sandbox.shape import PLAIN, Shape
from tests.builders import T0, attempt, decision, request
from tests.cluster.conftest import PATIENCE_S, Shell, usable
from tests.cluster.matrix.prefixes import chosen_prefix
from tests.stores import store_attempts
from tests.waiting import wait_until

# 26.05 no longer accepts `nobody` as a user.
USER = "games"
ASKED_CPUS, ASKED_MIB = 8, 8000
ASKED = (f"-c{ASKED_CPUS}", f"--mem={ASKED_MIB}")
USED_MIB, NEEDS_MIB = 60, 400
HOLD = f"python3 -c 'held = b\"1\" * ({NEEDS_MIB} << 20)'\n"


def past_of(
    name: str,
    body: str,
    first: int,
    user: str = USER,
    *,
    asked: Mapping[str, int] = {},
    used_mib: float = USED_MIB,
    used_gpus: int | None = None,
) -> list[Attempt]:
    """Return what the model knows: jobs like this one never used more. So our policy cuts them below their need."""
    amounts = {"cpus_per_task": ASKED_CPUS, "mem_per_node_mib": ASKED_MIB, **asked}
    signature = script_signature(script_of(body))
    wanted = request(user=user, job_name=name, script_signature=signature, **amounts)
    token = format_token(decision(request=wanted))
    told: dict[str, Any] = {
        "user": user,
        "job_name": name,
        "token": False,
        "admin_comment": token,
        "mem_mib": used_mib,
        "gpus": used_gpus,
        "req_gpus": wanted.gpus,
        "alloc_gpus": wanted.gpus,
    }
    return [attempt(job_id=first + n, submit_s=T0 + 1000 * n, **told) for n in range(30)]


def pasts_of(families: Mapping[str, str], *, used_mib: float = USED_MIB) -> dict[str, list[Attempt]]:
    """Return the pasts of families, given by their scripts."""
    return {
        name: past_of(name, body, 900_000 + 1000 * number, used_mib=used_mib)
        for number, (name, body) in enumerate(families.items(), 1)
    }


def script_of(body: str) -> str:
    return f"#!/bin/bash\n{body}"


class Run(NamedTuple):
    """What sacct shows of one run of a job."""

    state: str
    cpus: int
    mem_mib: int
    gpus: int = 0


AS_ASKED = Run("COMPLETED", ASKED_CPUS, ASKED_MIB)


class Site:
    """The sandbox, as an admin and as a user see it."""

    def __init__(self, sandbox: Sandbox, folder: Path, patience_s: float) -> None:
        self.sandbox, self.folder, self.patience_s = sandbox, folder, patience_s
        self.shell, self.user = Shell(sandbox), Shell(sandbox, user=USER)
        self.config: Config = load_config(str(sandbox.layout.rightsizer_toml))
        self.journal = Journal(Path(self.config.recovery.directory))
        self.on_end = folder / "epilog-on"

    def train(self, past: Mapping[str, list[Attempt]]) -> None:
        """Put a model of this past into use."""
        for attempts in past.values():
            store_attempts(self.config.store.url, attempts)
        self.shell.run("rightsizer", "train", "--promote", "always")
        served = self.sandbox.layout.log / f"{daemons.SERVE}.out"
        self.wait_for(lambda: "in use" in served.read_text(encoding="utf-8"))

    def submit(
        self,
        name: str,
        body: str,
        *options: str,
        asked: tuple[str, ...] = ASKED,
    ) -> int:
        script = self.folder / f"{name}.sh"
        script.write_text(script_of(body), encoding="utf-8")
        always = (f"--job-name={name}", "--chdir=/", "--time=5")
        argv = ("sbatch", "--parsable", "--output=/dev/null", *asked, *always, *options, str(script))
        return int(self.user.run(*argv).partition(";")[0])

    def runs(self, *jobs: int) -> dict[str, list[Run]]:
        """Return every run of these jobs, by the job id that users see."""
        wanted = ",".join(map(str, jobs))
        argv = ("sacct", "--allocations", "--duplicates", "--noheader", "--parsable2", "--noconvert")
        found: dict[str, list[Run]] = {}
        said = self.shell.run(*argv, f"--jobs={wanted}", "--format=JobID,State,AllocTRES,Start")
        for line in sorted(said.splitlines(), key=lambda line: line.rpartition("|")[2]):
            job, state, tres, _ = line.split("|")
            held = dict(pair.split("=", 1) for pair in tres.split(",") if pair)
            mem_mib = int(held.get("mem", "0M").removesuffix("M"))
            gpus = int(held.get("gres/gpu", 0))
            run = Run(state.partition(" ")[0], int(held.get("cpu", 0)), mem_mib, gpus)
            found.setdefault(job, []).append(run)
        return found

    def have_come_back(self, *jobs: int) -> bool:
        """Whether all have ended well; 22.05 can show the end of a short job before what it was allocated."""
        runs = self.runs(*jobs)
        return len(runs) >= len(jobs) and all(
            one[-1].state == "COMPLETED" and one[-1].cpus for one in runs.values()
        )

    def failed(self) -> list[int]:
        """Return the jobs that slurmctld has as failed and that are no longer completing."""
        states = ("OUT_OF_MEMORY", "FAILED", "TIMEOUT")
        said = self.shell.run("squeue", "--noheader", "--format=%A %T", f"--states={','.join(states)}")
        return [int(job) for job, state in map(str.split, said.splitlines()) if state in states]

    def entries(self) -> list[Entry]:
        return list(self.journal.newest().values())

    def watch(self) -> "subprocess.Popen[bytes]":
        with (self.folder / "recover.log").open("ab") as log:
            return subprocess.Popen(
                ["rightsizer", "recover", "--watch", "--apply"],
                env={**os.environ, **self.sandbox.environment()},
                stderr=log,
            )

    def token_of(self, name: str, body: str, asked: tuple[str, ...] = ASKED) -> Token:
        """Return the token that a submission of a family gets now."""
        waits = self.submit(name, body, "--hold", asked=asked)
        shown = self.shell.run("scontrol", "show", "job", str(waits))
        self.shell.run("scancel", str(waits))
        token = find_token(shown.partition("AdminComment=")[2].partition("\n")[0])
        assert token is not None
        return token

    def recover(self, job: int) -> "subprocess.Popen[bytes]":
        """Recover one job, as EpilogSlurmctld would."""
        return subprocess.Popen(
            ["rightsizer", "recover", "--job", str(job), "--apply"],
            env={**os.environ, **self.sandbox.environment()},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def recover_by_output(self) -> None:
        """Run recovery once, as on a site that lets it read outputs."""
        recovery = msgspec.structs.replace(self.config.recovery, read_output=True)
        reads = self.folder / "reads.toml"
        reads.write_text(
            render_config(msgspec.structs.replace(self.config, recovery=recovery)), encoding="utf-8"
        )
        self.shell.run("rightsizer", "recover", "--config", str(reads), "--apply")

    def wait_for(self, what: Callable[[], bool]) -> None:
        wait_until(
            what,
            lambda: self.shell.run("squeue", "--states=all", "--array"),
            patience_s=self.patience_s,
        )


def start_site(folder: Path, nodes: int, shape: Shape = PLAIN, patience_s: float = PATIENCE_S) -> Site:
    """Start a site; skip the test if jobs of other users, or real memory limits, are not possible here."""
    if os.geteuid() != 0:
        pytest.skip("only root can submit as another user, and limit memory")
    # Checked before the start: a sandbox that is skipped later would run until the last test of all has ended.
    limits = memory_enforcement(os.geteuid())
    if not limits.memory:
        pytest.skip(f"memory is not limited here: {limits.reason}")
    options = Options(
        directory=folder / "site", nodes=nodes, slurm_prefix=chosen_prefix(), mode="enforce", shape=shape
    )
    site = Site(cluster.start(options), folder, patience_s)
    usable(site.user)
    return site
