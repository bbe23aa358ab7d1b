"""One release of Slurm with every form submitted to it twice: as it is, and opted out. Returns what Slurm allocated."""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm_plugin.config.file import load_config
from slurm_plugin.sandbox import cluster
from slurm_plugin.sandbox.cluster import Options, Sandbox
from slurm_plugin.sandbox.environment import FOREIGN_PREFIXES
from slurm_plugin.sandbox.release import parse_version
from slurm_plugin.sandbox.shape import Shape
from tests.cluster.matrix.family import past_of, script_of
from tests.cluster.matrix.form import Form
from tests.cluster.matrix.table import RESERVATION, SHAPE
from tests.stores import store_attempts

TWIN = "--comment=rightsize=off"
# A deadline costs nothing if it is not reached: a machine may be slow, and stand still for a while.
COMMAND_PATIENCE_S = 300.0
JOBS_PATIENCE_S = 600.0
# How long to wait for slurmdbd; after that slurmctld is asked for the jobs that it has lost.
ACCOUNTED_PATIENCE_S = 150.0

# Partition, state and AllocTRES.
JobRow = tuple[str, str, str]
COUNTED = ("cpu", "mem", "node", "gres/gpu")
UNENDED = ("PENDING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED", "CONFIGURING", "")

Allocation = dict[str, int]
# From 23.11 to 24.11.0 Slurm causes this itself when it raises a job's CPUs for its share of memory.
_ABORTS = "cpus_per_task set by two different environment variables"


@dataclass(frozen=True)
class Ran:
    """What became of one submission: its jobs' states and allocations, their output, and that of its command."""

    states: tuple[str, ...]
    allocations: tuple[Allocation, ...]
    output: str
    said: str

    @property
    def completed(self) -> bool:
        """Whether there was a job and all of it completed."""
        return bool(self.states) and set(self.states) == {"COMPLETED"}

    @property
    def gpus_seen(self) -> tuple[int, ...]:
        """Return how many GPUs each task of an inner srun saw; empty if none looked."""
        lines = [line.removeprefix("gpus=") for line in self.output.splitlines() if line.startswith("gpus=")]
        return tuple(len(line.split(",")) if line else 0 for line in lines)


@dataclass(frozen=True)
class Cell:
    """One form on one release."""

    form: Form
    ours: Ran
    twin: Ran

    @property
    def problem(self) -> str:
        """Return what differs from the table; '' if nothing does."""
        for who, ran in (("", self.ours), ("twin: ", self.twin)):
            if not (ran.completed or (ran is self.twin and _ABORTS in ran.output)):
                states = "+".join(ran.states) or "no job"
                return f"{who}{states}: {' '.join((ran.said + ran.output).split())}"[:300]
        if len(self.ours.allocations) != self.form.jobs:
            return f"{len(self.ours.allocations)} jobs, not {self.form.jobs}"
        if self.ours.allocations != self.planned:
            return f"allocated {self.ours.allocations}, not {self.planned}"
        return self._gpu_problem()

    @property
    def planned(self) -> tuple[Allocation, ...]:
        """Return the allocations that the table requires."""
        return tuple({**allocation, **self.form.cut} for allocation in self.twin.allocations)

    def _gpu_problem(self) -> str:
        # 22.05 shows no task its GPU with --gpus-per-task=TYPE:N, whatever we do.
        if not self.form.wants_gpus or not all(self.twin.gpus_seen):
            return ""
        given = max(allocation.get("gres/gpu", 0) for allocation in self.ours.allocations)
        if not all(1 <= seen <= given for seen in self.ours.gpus_seen):
            return f"its tasks saw {self.ours.gpus_seen} GPUs of {given}"
        return ""


@contextlib.contextmanager
def trained_cluster(
    folder: Path,
    prefix: Path | None,
    forms: Sequence[Form],
    shape: Shape = SHAPE,
    commands: Sequence[Sequence[str]] = (),
    *,
    clients: bool = False,
) -> Iterator[Sandbox]:
    """Start a sandbox in enforce mode, with a model trained from the past of all forms; end it afterwards.

    `commands` run in it before the service starts and reads what they set.
    """
    options = Options(
        directory=folder,
        nodes=len(shape.nodes),
        slurm_prefix=prefix,
        mode="enforce",
        serve=False,
        shape=shape,
        clients=clients,
    )
    sandbox = cluster.start(options)
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
        store_attempts(load_config(str(sandbox.layout.rightsizer_toml)).store.url, past_of(forms, user))
        sandbox_run(sandbox, "rightsizer", "train", "--promote", "always")
        for command in commands:
            sandbox_run(sandbox, *command)
        cluster.start_service(folder)
        if RESERVATION in " ".join(form.asks for form in forms):
            reserve(sandbox, user)
        yield sandbox
    finally:
        cluster.stop(folder)


def reserve(sandbox: Sandbox, user: str) -> None:
    """Make the reservation that a form asks for: of licences, so that it takes no node from the other forms."""
    sandbox_run(
        sandbox,
        "scontrol",
        "create",
        "reservation",
        f"ReservationName={RESERVATION}",
        "StartTime=now",
        "Duration=60",
        f"Users={user}",
        "Licenses=matlab:4",
        "Flags=ANY_NODES",
    )


def sandbox_run(sandbox: Sandbox, *argv: str) -> str:
    """Run a command in the sandbox and return its stdout; AssertionError with its output if it fails."""
    answer = subprocess.run(
        argv,
        env=environment(sandbox),
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        timeout=COMMAND_PATIENCE_S,
    )
    assert answer.returncode == 0, f"{shlex.join(argv)}: {answer.stdout}{answer.stderr}"
    return answer.stdout


def environment(sandbox: Sandbox, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return a user's environment in the sandbox, without variables that another Slurm left in ours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN_PREFIXES)}
    return {**kept, **sandbox.environment(), **(more or {})}


class Trial:
    """All the forms in one sandbox: `submit`, then `collect`."""

    def __init__(self, sandbox: Sandbox, forms: Sequence[Form], folder: Path) -> None:
        """`folder` takes the scripts and the output of the jobs; any user may read it."""
        self.sandbox = sandbox
        self.forms = forms
        self.folder = folder
        self._said: dict[str, str] = {}
        self._direct: dict[str, subprocess.Popen[str]] = {}

    def submit(self) -> None:
        """Submit every form and its twin; those that run alone have ended before the next one is submitted."""
        for form in sorted(self.forms, key=lambda form: not form.alone):
            for twin in (False, True):
                self._submit(form, twin=twin)
                if form.alone:
                    self._await_free_nodes()

    def _await_free_nodes(self) -> None:
        """Wait until no job holds a node: its command may return while slurmctld still clears the node."""
        argv = ("squeue", "--noheader", "--states=RUNNING,COMPLETING", "--format=%i")
        deadline = time.monotonic() + COMMAND_PATIENCE_S
        while sandbox_run(self.sandbox, *argv).strip() and time.monotonic() < deadline:
            time.sleep(0.1)

    def _submit(self, form: Form, *, twin: bool) -> None:
        name = job_name(form, twin=twin)
        argv = self.argv(form, name, twin=twin)
        child = subprocess.Popen(
            argv,
            env=environment(self.sandbox, form.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd="/",
        )
        if form.is_direct and not form.alone:
            self._direct[name] = child
            self._await_known(name)
        else:
            self._said[name] = child.communicate(timeout=COMMAND_PATIENCE_S)[0]

    def _await_known(self, name: str) -> None:
        """Wait until slurmctld has a direct job: the service leaves some of many clients of one user alone."""
        argv = ("squeue", "--states=all", "--noheader", f"--name={name}", "--format=%i")
        deadline = time.monotonic() + COMMAND_PATIENCE_S
        while self._direct[name].poll() is None and time.monotonic() < deadline:
            if sandbox_run(self.sandbox, *argv).strip():
                return

    def argv(self, form: Form, name: str, *, twin: bool) -> list[str]:
        """Write the form's script, if it has one, and return the command that submits it."""
        always = [f"--job-name={name}", "--time=2", *([TWIN] if twin else [])]
        wait = ["--wait"] if form.alone else []
        if form.is_direct:
            inner = ["hostname"] if form.command == "srun" else ["srun", "hostname"]
            return [form.command, *always, *form.parts[0], *inner]
        output = f"--output={self.folder}/{name}-%j.out"
        if form.command == "sbatch --wrap":
            return ["sbatch", *wait, output, *always, *form.parts[0], f"--wrap={script_of(form)}"]
        # Each part of a heterogeneous job has its own name and comment.
        parts = [[*always, *part] for part in form.parts]
        script = self.folder / f"{name}.sh"
        if form.command == "#SBATCH":
            lines = "#SBATCH hetjob\n".join(f"#SBATCH {shlex.join(part)}\n" for part in parts)
            options = []
        else:
            lines = ""
            options = [word for part in parts for word in (":", *part)][1:]
        script.write_text(f"#!/bin/sh\n{lines}{script_of(form)}", encoding="utf-8")
        return ["sbatch", *wait, output, *options, str(script)]

    def collect(self) -> list[Cell]:
        """Wait until all have ended; a job that has not within minutes is returned as it is."""
        began_s = time.monotonic()
        while not self._all_ended(rows := self._rows()) and time.monotonic() < began_s + JOBS_PATIENCE_S:
            if time.monotonic() > began_s + ACCOUNTED_PATIENCE_S and self._all_ended(self._completed(rows)):
                break
            time.sleep(1.0)
        rows = self._completed(rows)
        for name, child in self._direct.items():
            self._said[name] = self._words_of(child)
        return [
            Cell(form, self._ran(form, rows, twin=False), self._ran(form, rows, twin=True))
            for form in self.forms
        ]

    @staticmethod
    def _words_of(child: subprocess.Popen[str]) -> str:
        try:
            return child.communicate(timeout=60)[0]
        except subprocess.TimeoutExpired:
            child.kill()
            return child.communicate()[0] + " (does not end)"

    def _rows(self) -> dict[str, list[JobRow]]:
        """Ask sacct for all jobs: by name their partition, state and AllocTRES, in the order of their ids."""
        argv = ("sacct", "--allocations", "--noheader", "--parsable2", "--noconvert", "--starttime=now-1hour")
        rows: dict[str, list[JobRow]] = {}
        for line in sandbox_run(
            self.sandbox, *argv, "--format=JobName%40,Partition,State,AllocTRES"
        ).splitlines():
            name, partition, state, allocated = line.split("|")
            rows.setdefault(name, []).append((partition, state.partition(" ")[0], allocated))
        return rows

    def _completed(self, rows: dict[str, list[JobRow]]) -> dict[str, list[JobRow]]:
        """Ask slurmctld for jobs that slurmdbd has lost: that of 22.05 sometimes lacks a task of an array."""
        remembered = self._remembered()
        short = {
            name: remembered[name]
            for form in self.forms
            for name in (job_name(form, twin=False), job_name(form, twin=True))
            if len(rows.get(name, [])) < form.jobs == len(remembered.get(name, []))
        }
        return {**rows, **short}

    def _remembered(self) -> dict[str, list[JobRow]]:
        """Ask squeue for all jobs that slurmctld still knows, as `_rows` asks sacct."""
        widths = {"Name": 60, "Partition": 40, "State": 30, "tres-alloc": 200}
        shown = ",".join(f"{name}:{width}" for name, width in widths.items())
        argv = ("squeue", "--states=all", "--array", "--noheader", "--sort=i", f"--Format={shown}")
        rows: dict[str, list[JobRow]] = {}
        for line in sandbox_run(self.sandbox, *argv).splitlines():
            ends = list(itertools.accumulate(widths.values()))
            name, *row = (
                line[end - width : end].strip() for end, width in zip(ends, widths.values(), strict=True)
            )
            rows.setdefault(name, []).append((row[0], row[1], row[2]))
        return rows

    def _all_ended(self, rows: Mapping[str, list[JobRow]]) -> bool:
        for form in self.forms:
            for name in (job_name(form, twin=False), job_name(form, twin=True)):
                found = rows.get(name, [])
                # 22.05 can show the end of a short job before its partition and its allocation.
                ended = [row for row in found if row[0] and row[1] not in UNENDED]
                refused = not form.is_direct and "Submitted batch job" not in self._said[name]
                if not refused and (len(ended) < form.jobs or len(ended) < len(found)):
                    return False
        return True

    def _ran(self, form: Form, rows: Mapping[str, list[JobRow]], *, twin: bool) -> Ran:
        name = job_name(form, twin=twin)
        found = rows.get(name, [])
        outputs = sorted(self.folder.glob(f"{name}-[0-9]*.out"))
        return Ran(
            states=tuple(state for _, state, _ in found),
            allocations=tuple(allocation(text) for _, _, text in found),
            output="".join(file.read_text(encoding="utf-8", errors="replace") for file in outputs),
            said=self._said.get(name, ""),
        )


def job_name(form: Form, *, twin: bool) -> str:
    """Name the job; the family of our job is the form's."""
    return f"{form.name}.twin" if twin else form.name


def allocation(text: str) -> Allocation:
    """Read AllocTRES: counts, and memory in MiB; billing only repeats the CPUs."""
    pairs = dict(pair.split("=", 1) for pair in text.split(",") if "=" in pair)
    return {name: int(pairs[name].removesuffix("M")) for name in COUNTED if name in pairs}


@dataclass(frozen=True)
class Release:
    """The result of one release: its version, such as `24.11`, and a cell for each form."""

    version: str
    cells: tuple[Cell, ...]

    def cell(self, form: Form) -> Cell:
        """Return a form's cell."""
        return next(cell for cell in self.cells if cell.form is form)


def run_release(
    prefix: Path | None, forms: Sequence[Form], shape: Shape = SHAPE, *, clients: bool = False
) -> Release:
    """Submit all forms to the Slurm of `prefix` (None: this system's) and return what it allocated.

    With `clients`, direct srun and salloc ask before they submit.
    """
    with tempfile.TemporaryDirectory(prefix="rightsizer-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with trained_cluster(folder / "matrix", prefix, forms, shape, clients=clients) as sandbox:
            year, month = parse_version(sandbox.manifest.release)
            trial = Trial(sandbox, forms, folder)
            trial.submit()
            return Release(f"{year}.{month:02}", tuple(trial.collect()))
