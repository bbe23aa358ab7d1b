"""Direct srun and salloc on a real Slurm, on every installed release: a smaller allocation, or exactly the request."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from accounting.decisions.token import find_token
from accounting.records import Attempt
from accounting.store.database import open_store
from accounting.store.records import read_attempts
from slurm_plugin.config.file import load_config
from slurm_plugin.sandbox import cluster, daemons, teardown
from slurm_plugin.sandbox.cluster import Options
from slurm_plugin.sandbox.environment import FOREIGN_PREFIXES
from tests.cluster.conftest import PATIENCE_S
from tests.cluster.matrix.prefixes import releases, why_missing
from tests.cluster.test_main_job import impostor, nothing_but_a_hangup, rubbish, silence

if TYPE_CHECKING:
    from tests.cluster.conftest import Shell

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

RELEASES = releases()
HISTORY_JOBS = 7
HISTORY_ROUNDS = 5
# What a busy machine may take for a job of one second; a client waiting for a hung service would take longer.
PROMPT_S = 60.0
FAMILIES = {
    "single": ("srun", "-c", "8", "--mem=8000"),
    "percpu": ("srun", "-c", "8", "--mem-per-cpu=1000"),
    "tasks": ("srun", "-n", "2", "-c", "4", "--mem=8000"),
    "gres": ("srun", "-n", "1", "--mem=4000", "--gres=gpu:4"),
    "jobgpus": ("srun", "-n", "1", "--mem=4000", "--gpus=4"),
    "taskgpus": ("srun", "-n", "2", "-c", "2", "--mem=4000", "--gpus-per-task=2"),
    "alloc": ("salloc", "-c", "8", "--mem=8000"),
}


@dataclass(frozen=True)
class Ran:
    """A command that has ended: what it wrote to stdout and stderr, and how long it took."""

    out: str
    errors: str
    took_s: float

    @property
    def job(self) -> int:
        """Return its job id, which each of these commands prints."""
        found = re.search(r"job=(\d+)", self.out)
        assert found, (self.out, self.errors)
        return int(found[1])


class ClientSite:
    """A sandbox whose clients ask the service, with a history of direct jobs that requested too much."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.directory = shell.sandbox.directory
        self.mode = "observe"

    def start(self, *argv: str) -> subprocess.Popen[str]:
        """Start a client as its user would type it."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN_PREFIXES)}
        environment = {**kept, **self.shell.sandbox.environment()}
        environment["PATH"] = f"{self.shell.sandbox.layout.wrappers}:{environment['PATH']}"
        pipe = subprocess.PIPE
        return subprocess.Popen(
            argv, env=environment, cwd="/", stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
        )

    def talk(self, *argv: str) -> Ran:
        """Run a client to its end; fail unless it succeeds."""
        began_s = time.monotonic()
        with self.start(*argv) as child:
            out, errors = child.communicate(timeout=2 * PROMPT_S)
        assert child.returncode == 0, f"{argv}: {out}{errors}"
        return Ran(out, errors, time.monotonic() - began_s)

    def words(self, family: str, *options: str, name: str | None = None, wait_s: int = 1) -> tuple[str, ...]:
        """Return the command of a family's job, which waits a moment and prints its job id."""
        command, *asks = FAMILIES[family]
        work = "simulate-gpu-use 1; " if "gpu" in " ".join(asks) else ""
        work += f"sleep {wait_s}; echo job=$SLURM_JOB_ID cpus=$SLURM_CPUS_PER_TASK"
        inner = ("srun",) if command == "salloc" else ()
        return (command, "-J", name or family, *asks, *options, *inner, "sh", "-c", work)

    def run(self, family: str, *options: str, name: str | None = None) -> Ran:
        """Run a job of a family."""
        return self.talk(*self.words(family, *options, name=name))

    def allocated(self, job: int) -> dict[str, str]:
        """Wait until a job has completed, and return its AllocTRES."""
        assert self.shell.wait_ended(job) == "COMPLETED"
        return self.shell.allocated(job)

    def why(self, job: int) -> str:
        """Return what accounting and the decisions say of a job, to show if a test fails."""
        self.ingested(job)
        return self.shell.run("rightsizer", "explain", str(job))

    def comment(self, job: int) -> str:
        """Return the job's comment from slurmctld."""
        found = re.search(r"\n\s*Comment=(.*?)\s*\n", self.shell.run("scontrol", "show", "job", str(job)))
        return found[1] if found else ""

    def set_mode(self, mode: str) -> None:
        """Change the mode if it is another one, which takes a restart of both services."""
        if mode == self.mode:
            return
        self.mode = mode
        self.shell.run("rightsizer", "sandbox", "mode", "--dir", str(self.directory), mode)

    def ingested(self, job: int) -> Attempt:
        """Ingest, and return the job as accounting then knows it."""
        self.shell.run("rightsizer", "ingest")
        config = load_config(str(self.shell.sandbox.layout.rightsizer_toml))
        engine = open_store(config.store.url, create=False)
        [attempt] = read_attempts(engine, job)
        engine.dispose()
        return attempt

    def decisions(self) -> int:
        """Return how many decisions were journalled for clients."""
        return self.answered().total()

    def answered(self) -> Counter[str]:
        """Return how many decisions were journalled for clients, by job name."""
        journal = Path(load_config(str(self.shell.sandbox.layout.rightsizer_toml)).service.journal)
        lines = [
            line
            for file in journal.glob("decisions-clients-*.jsonl")
            for line in file.read_bytes().splitlines()
        ]
        return Counter(json.loads(line)["request"]["job_name"] for line in lines)


def give_history(site: ClientSite) -> None:
    """Run jobs of each family until the service has answered for HISTORY_JOBS of them.

    On a busy machine, some of so many clients at once may miss their deadline. Such a job runs as requested, and its
    use is booked to another family, because accounting has no script to recognise it by.
    """
    for _ in range(HISTORY_ROUNDS):
        missing = {family: HISTORY_JOBS - site.answered()[family] for family in FAMILIES}
        # Long enough to be sampled.
        history = [site.words(family, wait_s=3) for family, jobs in missing.items() for _job in range(jobs)]
        started = [site.start(*words) for words in history]
        for child in started:
            out, errors = child.communicate(timeout=PATIENCE_S)
            assert child.returncode == 0, out + errors
            site.shell.wait_ended(int(re.findall(r"job=(\d+)", out)[-1]))
    assert all(site.answered()[family] >= HISTORY_JOBS for family in FAMILIES), site.answered()


@pytest.fixture(scope="module", params=RELEASES)
def site(
    request: pytest.FixtureRequest, make_folder: Callable[[], Path], shell: Shell
) -> Iterator[ClientSite]:
    prefix = RELEASES[request.param]
    reason = why_missing(prefix)
    if reason:
        pytest.skip(reason)
    options = Options(
        directory=make_folder() / "site", nodes=4, slurm_prefix=prefix, mode="observe", clients=True
    )
    site = ClientSite(type(shell)(cluster.start(options)))
    give_history(site)
    site.shell.run("rightsizer", "ingest")
    site.shell.run("rightsizer", "train", "--promote", "always")
    yield site
    cluster.stop(site.directory)


@pytest.fixture
def enforcing(site: ClientSite) -> ClientSite:
    site.set_mode("enforce")
    return site


@pytest.fixture
def observing(site: ClientSite) -> ClientSite:
    site.set_mode("observe")
    return site


def assert_left_alone(site: ClientSite, *options: str) -> Ran:
    ran = site.run("single", *options)
    allocated = site.allocated(ran.job)
    assert (allocated["cpu"], allocated["mem"]) == ("8", "8000M")
    return ran


def test_a_known_srun_gets_fewer_cpus_and_less_memory_and_completes(enforcing: ClientSite) -> None:
    ran = enforcing.run("single", "--comment=night run")
    assert enforcing.comment(ran.job) == "night run"
    allocated = enforcing.allocated(ran.job)
    cpus = int(allocated["cpu"])
    assert cpus < 8
    assert int(allocated["mem"].removesuffix("M")) < 8000
    assert f"cpus={cpus}" in ran.out, "the step sees other CPUs than the job has"
    assert "you asked for 8" in ran.errors
    assert "--comment=rightsize=off" in ran.errors


def test_accounting_knows_the_original_request(enforcing: ClientSite) -> None:
    ran = enforcing.run("single")
    assert int(enforcing.allocated(ran.job)["cpu"]) < 8
    token = find_token(enforcing.shell.accounted(ran.job, "AdminComment"))
    assert token is not None
    assert token.asked["cpus"] < 8, "slurmctld has seen the lowered request alone"
    attempt = enforcing.ingested(ran.job)
    assert (attempt.asked_cpus, attempt.asked_mem_mib) == (8, 8000)
    assert attempt.decision_id == token.via
    assert attempt.script_signature
    assert "8" in enforcing.shell.run("rightsizer", "explain", str(ran.job))


@pytest.mark.parametrize("family", ["percpu", "tasks"])
def test_other_forms_of_cpus_and_memory_are_lowered_in_their_own_form(
    enforcing: ClientSite, family: str
) -> None:
    allocated = enforcing.allocated(enforcing.run(family).job)
    assert int(allocated["cpu"]) < 8
    assert int(allocated["mem"].removesuffix("M")) < 4000


@pytest.mark.parametrize(("family", "gpus"), [("gres", "1"), ("jobgpus", "1"), ("taskgpus", "2")])
def test_unused_gpus_are_given_back(enforcing: ClientSite, family: str, gpus: str) -> None:
    ran = enforcing.run(family)
    assert enforcing.allocated(ran.job)["gres/gpu"] == gpus, enforcing.why(ran.job)


def test_a_named_salloc_gets_less_and_an_srun_in_it_works(enforcing: ClientSite) -> None:
    ran = enforcing.run("alloc")
    allocated = enforcing.allocated(ran.job)
    assert int(allocated["cpu"]) < 8
    assert int(allocated["mem"].removesuffix("M")) < 8000
    assert enforcing.ingested(ran.job).asked_cpus == 8


def test_an_salloc_without_a_name_gets_what_it_asked_for(enforcing: ClientSite) -> None:
    ran = enforcing.talk(
        "salloc", "-c", "8", "--mem=8000", "srun", "sh", "-c", "sleep 1; echo job=$SLURM_JOB_ID"
    )
    assert enforcing.allocated(ran.job)["cpu"] == "8"


def test_an_srun_in_a_terminal_gets_what_it_asked_for(enforcing: ClientSite) -> None:
    words = enforcing.words("single", "--pty")
    with enforcing.start(
        "script", "-qec", subprocess.list2cmdline(words).replace("$", "\\$"), "/dev/null"
    ) as child:
        out, errors = child.communicate(timeout=PATIENCE_S)
    assert enforcing.allocated(Ran(out, errors, 0.0).job)["cpu"] == "8"


def test_an_opted_out_srun_gets_exactly_what_it_asked_for(enforcing: ClientSite) -> None:
    ran = assert_left_alone(enforcing, "--comment=rightsize=off")
    assert enforcing.comment(ran.job) == "rightsize=off"


def test_a_new_family_gets_exactly_what_it_asked_for(enforcing: ClientSite) -> None:
    ran = enforcing.talk("srun", "-J", "novel", "-c", "4", "--mem=3000", "sh", "-c", "echo job=$SLURM_JOB_ID")
    allocated = enforcing.allocated(ran.job)
    assert (allocated["cpu"], allocated["mem"]) == ("4", "3000M")


def test_observe_mode_changes_nothing(observing: ClientSite) -> None:
    ran = assert_left_alone(observing, "--comment=mine")
    assert observing.comment(ran.job) == "mine"
    assert "rightsizer" not in ran.errors
    assert observing.ingested(ran.job).asked_cpus == 8


def test_requests_that_cannot_be_lowered_safely_are_left_alone(enforcing: ClientSite) -> None:
    before = enforcing.decisions()
    enforcing.talk("srun", "-c", "2", "--mem=300", "true", ":", "-c", "2", "--mem=300", "true")
    assert enforcing.decisions() == before, "a heterogeneous job was asked about"
    ran = enforcing.run("single", "--cpu-bind=none")
    assert enforcing.allocated(ran.job)["cpu"] == "8"


def test_the_service_is_not_asked_about_an_srun_inside_a_job(enforcing: ClientSite) -> None:
    before = enforcing.decisions()
    script = "srun -c 4 sh -c 'echo cpus=$SLURM_CPUS_PER_TASK'"
    job = enforcing.shell.submit_and_wait("-J", "batch", "-c", "4", "--mem=500", script=script)
    assert enforcing.shell.wait_ended(job) == "COMPLETED"
    enforcing.shell.wait_step(job, "0", "AllocCPUS,State", "4|COMPLETED")
    assert enforcing.decisions() == before


def test_the_kill_switch_stops_clients_at_once(enforcing: ClientSite) -> None:
    enforcing.shell.run("rightsizer", "disable")
    try:
        before = enforcing.decisions()
        assert_left_alone(enforcing)
        assert enforcing.decisions() == before
    finally:
        enforcing.shell.run("rightsizer", "enable")


@contextlib.contextmanager
def signalled(site: ClientSite, names: Sequence[str], number: int) -> Iterator[None]:
    """Send a signal to our services at the start of the block, and let them run again at its end."""
    layout = site.shell.sandbox.layout
    for name in names:
        record = teardown.running_record(layout, name)
        assert record is not None
        os.kill(record.identity.pid, number)
    try:
        yield
    finally:
        for name in names:
            record = teardown.running_record(layout, name)
            if record is not None:
                os.kill(record.identity.pid, signal.SIGCONT)
        cluster.start_service(site.directory)


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_srun_succeeds_unchanged_and_promptly_without_our_services(
    enforcing: ClientSite, number: int
) -> None:
    with signalled(enforcing, (daemons.SERVE, daemons.SERVE_CLIENTS), number):
        assert assert_left_alone(enforcing).took_s < PROMPT_S


@pytest.mark.parametrize("behave", [rubbish, silence, nothing_but_a_hangup])
def test_srun_succeeds_unchanged_and_promptly_with_a_lying_service(
    enforcing: ClientSite, behave: Callable[[socket.socket], None]
) -> None:
    cluster.stop_service(enforcing.directory)
    try:
        with impostor(enforcing.shell.sandbox.layout.client_socket, behave):
            assert assert_left_alone(enforcing).took_s < PROMPT_S
    finally:
        cluster.start_service(enforcing.directory)


def test_the_original_request_is_known_even_if_only_the_hook_gets_no_answer(enforcing: ClientSite) -> None:
    with signalled(enforcing, (daemons.SERVE,), signal.SIGSTOP):
        ran = enforcing.run("single", "--comment=mine")
        assert re.fullmatch(r"mine rightsizer-cli=[0-9a-f]{12}", enforcing.comment(ran.job))
        assert int(enforcing.allocated(ran.job)["cpu"]) < 8, enforcing.why(ran.job)
    assert enforcing.ingested(ran.job).asked_cpus == 8


def test_users_can_reach_the_socket_of_the_clients_but_not_the_socket_of_the_hook(
    enforcing: ClientSite,
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can act as another user")
    layout = enforcing.shell.sandbox.layout
    connect = "import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    as_nobody = type(enforcing.shell)(enforcing.shell.sandbox, user="nobody")
    as_nobody.run("python3", "-c", connect, str(layout.client_socket))
    as_nobody.run("python3", "-c", connect, str(layout.service_socket), code=1)
