"""Submit each request twice to an idle private Slurm, cut and opted out, one after the other, and see how both end."""

from __future__ import annotations

import re
import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm_plugin.sandbox.cluster import Sandbox
from tests.cluster.matrix.family import USED_CORES
from tests.cluster.matrix.form import Form
from tests.cluster.matrix.release import (
    COMMAND_PATIENCE_S,
    TWIN,
    UNENDED,
    Allocation,
    allocation,
    environment,
    job_name,
    sandbox_run,
    trained_cluster,
)
from tests.cluster.twins.clusters import Cluster
from tests.cluster.twins.compare import Outcome, losses
from tests.cluster.twins.draw import STEP

# Nothing else runs: a job that has not started by then waits for what never comes.
START_PATIENCE_S = 12.0
POLL_S = 0.25
_TASK = re.compile(r"^task=(\d+) gpus=(\S*)$", re.MULTILINE)
_SHOWN = {"JobID": 20, "State": 20, "Reason": 80}


@dataclass(frozen=True)
class Pair:
    """One request, and what became of it when it was cut and when it was left alone."""

    form: Form
    ours: Outcome
    twin: Outcome

    @property
    def losses(self) -> list[str]:
        """What the cut one lost; empty if nothing."""
        return losses(self.ours, self.twin, self.form.used_mib, USED_CORES * self.form.tasks)


def run_pairs(prefix: Path | None, forms: Sequence[Form], cluster: Cluster) -> Iterator[Pair]:
    """Run all requests on the Slurm of `prefix` (None: this system's), and yield each pair as soon as it has ended."""
    with tempfile.TemporaryDirectory(prefix="rightsizer-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with trained_cluster(folder / "twins", prefix, forms, cluster.shape, cluster.commands) as sandbox:
            for form in forms:
                yield Pair(form, *(_run(sandbox, form, folder, twin=twin) for twin in (False, True)))


def _run(sandbox: Sandbox, form: Form, folder: Path, *, twin: bool) -> Outcome:
    name = job_name(form, twin=twin)
    output = folder / f"{name}.out"
    with output.open("wb") as stream:
        child = subprocess.Popen(
            _argv(form, name, folder, twin=twin),
            env=environment(sandbox),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            cwd="/",
        )
    try:
        row = _ended(sandbox, name, child)
        if row.get("State", "") not in UNENDED:
            # The client of a direct job still prints what its tasks said.
            child.wait(timeout=COMMAND_PATIENCE_S)
    finally:
        if child.poll() is None:
            child.terminate()
        child.wait(timeout=COMMAND_PATIENCE_S)
    said = output.read_text(encoding="utf-8", errors="replace")
    job_output = folder / f"{name}.job"
    if job_output.exists():
        said += job_output.read_text(encoding="utf-8", errors="replace")
    if not row:
        return Outcome("refused", said=said)
    if row["State"] in UNENDED:
        sandbox_run(sandbox, "scancel", row["JobID"])
        return Outcome("waits", said=f"{said}{row['Reason']}")
    if row["State"] != "COMPLETED":
        return Outcome(row["State"], said=f"{said}{row['Reason']}")
    return Outcome(
        end="COMPLETED",
        allocated=_allocated(sandbox, row["JobID"]),
        tasks=tuple(
            sorted(
                (int(node), len(list(filter(None, gpus.split(","))))) for node, gpus in _TASK.findall(said)
            )
        ),
        said=said,
    )


def _argv(form: Form, name: str, folder: Path, *, twin: bool) -> list[str]:
    always = [f"--job-name={name}", "--time=2", *([TWIN] if twin else [])]
    if form.is_direct:
        inner = shlex.split(STEP)
        return [
            form.command,
            *always,
            *form.parts[0],
            *(inner if form.command == "srun" else ["srun", *inner]),
        ]
    always.append(f"--output={folder}/{name}.job")
    if form.command == "sbatch --wrap":
        return ["sbatch", *always, *form.parts[0], f"--wrap={form.script}"]
    script = folder / f"{name}.sh"
    in_script = form.command == "#SBATCH"
    lines = f"#SBATCH {form.asks}\n" if in_script else ""
    script.write_text(f"#!/bin/sh\n{lines}{form.script}", encoding="utf-8")
    return ["sbatch", *always, *([] if in_script else form.parts[0]), str(script)]


def _ended(sandbox: Sandbox, name: str, child: subprocess.Popen[bytes]) -> dict[str, str]:
    """Wait until the job has ended and return what squeue shows of it; {} if there is none, as it shows if it waits."""
    began_s = time.monotonic()
    while True:
        returned = child.poll() is not None
        row = _row(sandbox, name)
        waits = row.get("State") == "PENDING"
        if (returned and not row) or (row and row["State"] not in UNENDED):
            return row
        patience_s = START_PATIENCE_S if waits else COMMAND_PATIENCE_S
        if time.monotonic() > began_s + patience_s:
            return row
        time.sleep(POLL_S)


def _row(sandbox: Sandbox, name: str) -> dict[str, str]:
    shown = ",".join(f"{column}:{width}" for column, width in _SHOWN.items())
    argv = ("squeue", "--states=all", "--noheader", f"--name={name}", f"--Format={shown}")
    line = sandbox_run(sandbox, *argv).partition("\n")[0]
    row: dict[str, str] = {}
    for column, width in _SHOWN.items():
        row[column], line = line[:width].strip(), line[width:]
    return row if row["JobID"] else {}


def _allocated(sandbox: Sandbox, job_id: str) -> Allocation:
    """Ask sacct, whose amounts are exact; slurmdbd hears of a job's end a moment after slurmctld."""
    argv = ("sacct", "--allocations", "--noheader", "--parsable2", "--noconvert", f"--jobs={job_id}")
    deadline = time.monotonic() + COMMAND_PATIENCE_S
    while True:
        state, _, text = sandbox_run(sandbox, *argv, "--format=State,AllocTRES").strip().partition("|")
        if text and state.partition(" ")[0] not in UNENDED:
            return allocation(text)
        assert time.monotonic() < deadline, f"slurmdbd does not hear of the end of job {job_id}"
        time.sleep(POLL_S)
