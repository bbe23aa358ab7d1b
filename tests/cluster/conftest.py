"""A private Slurm for tests that need a real one; without an installed Slurm they skip and say why."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest

from accounting.errors import SandboxError
from slurm_plugin.advisor.standing import cpus_must_stay
from slurm_plugin.sandbox import cluster
from slurm_plugin.sandbox.cluster import Options, Sandbox
from slurm_plugin.sandbox.release import find_programs, release_of
from slurm_plugin.sandbox.shape import PLAIN, Shape
from slurm_plugin.slurm.release import parse_release
from tests.cluster.matrix.prefixes import chosen_prefix
from tests.waiting import wait_until

UNPRIVILEGED = "nobody"
CPUS_STAY = "this release of Slurm cannot change the CPUs of a job that waits"
# A deadline costs nothing if it is not reached: a machine may be slow, and stand still for a while.
PATIENCE_S = 300.0
ALLOCATE_300_MIB = "python3 -c \"held = b'1' * 300 * 1024 * 1024\""
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL")


@dataclass(frozen=True)
class Shell:
    """A user's shell on a sandbox: plain commands, with what `rightsizer sandbox env` exports."""

    sandbox: Sandbox
    user: str | None = None

    def run(self, *argv: str, code: int = 0) -> str:
        """Run a command and return its stdout; fail unless it exits with `code`."""
        return self.run_both(*argv, code=code)[0]

    def run_both(self, *argv: str, code: int = 0) -> tuple[str, str]:
        """Run a command and return its stdout and stderr; fail unless it exits with `code`."""
        as_user = (
            ("setpriv", f"--reuid={self.user}", f"--regid={self._group()}", "--clear-groups")
            if self.user
            else ()
        )
        answer = subprocess.run(
            [*as_user, *argv],
            env={**os.environ, **self.sandbox.environment()},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            cwd="/",
        )
        assert answer.returncode == code, f"{argv}: {answer.stdout}{answer.stderr}"
        return answer.stdout, answer.stderr

    def submit(self, *options: str, script: str = "true") -> int:
        """Submit a batch job with these sbatch options and this shell command; return its id."""
        answer = self.run("sbatch", "--parsable", "--output=/dev/null", *options, f"--wrap={script}")
        return int(answer.partition(";")[0])

    def submit_and_wait(self, *options: str, script: str = "true") -> int:
        """Submit a job and wait for its end, however it ends; return its id."""
        job = self.submit(*options, script=script)
        self.wait_ended(job)
        return job

    def wait_ended(self, job: int, patience_s: float = PATIENCE_S) -> str:
        """Wait until slurmdbd has the job's end; return its state.

        In 22.05 the end of a short job can reach slurmdbd before its start. For about two seconds its row is then
        COMPLETED without a partition, and names root as the user who submitted it.
        """
        deadline = time.monotonic() + patience_s
        while True:
            partition, _, state = self.accounted(job, "Partition,State").partition("|")
            state = state.partition(" ")[0]
            if partition and state in ENDED:
                return state
            assert time.monotonic() < deadline, f"job {job} is {state or 'unknown'} after {patience_s:g} s"
            time.sleep(0.2)

    def wait_state(self, job: int, state: str, patience_s: float = PATIENCE_S) -> None:
        """Wait until slurmctld has the job in `state`."""
        deadline = time.monotonic() + patience_s
        while (found := self.run("squeue", "--noheader", "--format=%T", f"--jobs={job}").strip()) != state:
            assert time.monotonic() < deadline, f"job {job} is {found or 'gone'}, not {state}"
            time.sleep(0.1)

    def empty(self, whose: str = "--partition=main") -> None:
        """End all jobs of the partition, or those selected by another option of scancel; wait until none is left."""
        self.run("scancel", whose)
        wait_until(lambda: not self.run("squeue", "--noheader"))

    def accounted(self, job: int, field: str) -> str:
        """Return one field of the job's row (not its steps') in sacct; empty while there is none."""
        argv = ("sacct", "--allocations", "--noheader", "--parsable2", "--noconvert", f"--jobs={job}")
        return self.run(*argv, f"--format={field}").strip()

    def wait_step(self, job: int, step: str, fields: str, row: str) -> None:
        """Wait until sacct's row of a job's step is `row`; slurmdbd may receive it later than the job's end."""
        argv = ("sacct", "--noheader", "--parsable2", f"--jobs={job}.{step}", f"--format={fields}")
        deadline = time.monotonic() + PATIENCE_S
        while (found := self.run(*argv).strip()) != row:
            assert time.monotonic() < deadline, f"step {job}.{step} is {found or 'unknown'}, not {row}"
            time.sleep(0.2)

    def allocated(self, job: int) -> dict[str, str]:
        """Return the job's AllocTRES from sacct."""
        pairs = self.accounted(job, "AllocTRES").split(",")
        return dict(pair.split("=", 1) for pair in pairs if pair)

    def _group(self) -> str:
        return subprocess.run(
            ["id", "-g", self.user or ""], capture_output=True, text=True, check=True
        ).stdout.strip()


def usable(shell: Shell) -> Shell:
    """Return a user's shell; skip the test if that user cannot run this Slurm's programs, as in a folder of root's."""
    try:
        shell.run("squeue", "--version")
    except AssertionError:
        pytest.skip(f"{shell.user} cannot run the programs of {chosen_prefix()}")
    return shell


@contextmanager
def ingesting(sandbox: Sandbox, folder: Path) -> Iterator[None]:
    """Make jobs that end count within seconds, as on a site: only through `rightsizer ingest --watch`."""
    with (folder / "ingest.log").open("ab") as log:
        watching = subprocess.Popen(
            ["rightsizer", "ingest", "--watch", "1"],
            env={**os.environ, **sandbox.environment()},
            stderr=log,
        )
    try:
        yield
    finally:
        watching.terminate()
        watching.wait(PATIENCE_S)


@contextmanager
def commands_on(sandbox: Sandbox) -> Iterator[None]:
    """Make the Slurm commands of this process work on a sandbox."""
    with patch.dict(os.environ, sandbox.environment()):
        yield


@contextmanager
def unhooked_site(folder: Path, shape: Shape = PLAIN, nodes: int = 1) -> Iterator[Sandbox]:
    """Start a sandbox without our hook and service; in the block, the commands of this process work on it."""
    options = Options(
        directory=folder, nodes=nodes, slurm_prefix=chosen_prefix(), hook=False, serve=False, shape=shape
    )
    sandbox = cluster.start(options)
    with commands_on(sandbox):
        yield sandbox


@pytest.fixture(scope="session", autouse=True)
def _slurm_installed() -> None:
    """Skip all tests of this folder if a program is missing."""
    try:
        find_programs(chosen_prefix())
    except SandboxError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def cpus_stay() -> bool:
    """Whether this release of Slurm cannot change the CPUs of a pending job (23.11 to 24.11.0)."""
    return cpus_must_stay(parse_release(release_of(find_programs(chosen_prefix()))))


@pytest.fixture(scope="session")
def cpus_follow(cpus_stay: bool) -> None:
    """Skip the test on such a release."""
    if cpus_stay:
        pytest.skip(CPUS_STAY)


@pytest.fixture(scope="session")
def make_folder() -> Iterator[Callable[[], Path]]:
    """Make folders that every user may enter (pytest's own may be closed); end the sandboxes left in them."""
    made: list[Path] = []

    def make() -> Path:
        made.append(Path(tempfile.mkdtemp(prefix="rightsizer-")))
        made[-1].chmod(0o755)
        return made[-1]

    yield make
    for folder in made:
        for manifest in folder.glob("*/sandbox.json"):
            cluster.stop(manifest.parent)
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def sandbox(make_folder: Callable[[], Path]) -> Sandbox:
    """Return a sandbox for the whole session, in observe mode."""
    directory = make_folder() / "sandbox"
    return cluster.start(Options(directory=directory, nodes=2, slurm_prefix=chosen_prefix(), mode="observe"))


@pytest.fixture(scope="session")
def shell(sandbox: Sandbox) -> Shell:
    """Return the shell of the user who runs the tests."""
    return Shell(sandbox)


@pytest.fixture(scope="session")
def other_shell(sandbox: Sandbox) -> Shell:
    """Return the shell of an unprivileged user; only root can switch to it."""
    if os.geteuid() != 0:
        pytest.skip("only root can submit as another user")
    return Shell(sandbox, user=UNPRIVILEGED)
