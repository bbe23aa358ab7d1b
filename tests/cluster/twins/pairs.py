"""Submit each request twice to an idle private Slurm, cut and opted out, one after the other, and see how both end."""

from __future__ import annotations

import itertools
import re
import subprocess
import tempfile
import time
from collections import Counter
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
from tests.cluster.twins.draw import words_of

# Nothing else runs: a job that has not started by then waits for what never comes.
START_PATIENCE_S = 12.0
POLL_S = 0.25
_TASK = re.compile(r"^(?:\d+: )?task=(\d+) gpus=(\S*)$", re.MULTILINE)
_SAYS_CPUS = re.compile(r"-c \d|CPUS_PER_TASK")
_LISTS_PARTITIONS = re.compile(r"-p \w+,")
_SAYS_NODES = re.compile(r"-N|NNODES")
_SHOWN = {"JobID": 20, "State": 20, "Reason": 80}
_NOT_TRIED = Outcome("not tried")


@dataclass(frozen=True)
class Pair:
    """One request, and what became of it when it was cut and when it was left alone.

    Unless the nodes are `alike`, how many CPUs a task has that asks for none depends on the node that it is on.
    """

    form: Form
    ours: Outcome
    twin: Outcome
    alike: bool = True

    @property
    def losses(self) -> list[str]:
        """What the cut one lost; empty if nothing."""
        asked = self.form.asked
        return losses(
            self.ours,
            self.twin,
            self.form.used_mib,
            USED_CORES * self.form.tasks * self.form.jobs if self.alike or _SAYS_CPUS.search(asked) else 0,
            says_nodes=bool(_SAYS_NODES.search(asked)),
            says_tasks="--ntasks-per-node" in asked,
            lists_partitions=bool(_LISTS_PARTITIONS.search(asked)),
        )


def run_pairs(
    prefix: Path | None, forms: Sequence[Form], cluster: Cluster, *, asking: bool = False
) -> Iterator[Pair]:
    """Run all requests on the Slurm of `prefix` (None: this system's), and yield each pair as soon as it has ended.

    The twin goes first: what does not run as it was typed is not tried. If they are `asking`, srun and salloc ask the
    service before they submit.
    """
    with tempfile.TemporaryDirectory(prefix="rightsizer-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        alike = len({(node.cores, node.threads_per_core) for node in cluster.shape.nodes}) == 1
        with trained_cluster(
            folder / "twins", prefix, forms, cluster.shape, cluster.commands, clients=asking
        ) as sandbox:
            for form in forms:
                twin = _run(sandbox, form, folder, twin=True)
                runs = twin.end == "COMPLETED"
                ours = _run(sandbox, form, folder, twin=False) if runs else _NOT_TRIED
                yield Pair(form, ours, twin, alike)


def _run(sandbox: Sandbox, form: Form, folder: Path, *, twin: bool) -> Outcome:
    name = job_name(form, twin=twin)
    output = folder / f"{name}.out"
    with output.open("wb") as stream:
        child = subprocess.Popen(
            _argv(form, name, folder, twin=twin),
            env=environment(sandbox, form.environment),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            cwd="/",
        )
    try:
        rows = _ended(sandbox, form, name, child)
        state = next((row["State"] for row in rows if row["State"] != "COMPLETED"), "COMPLETED")
        if rows and state not in UNENDED:
            # The client of a direct job still prints what its tasks said.
            child.wait(timeout=COMMAND_PATIENCE_S)
    finally:
        if child.poll() is None:
            child.terminate()
        child.wait(timeout=COMMAND_PATIENCE_S)
    said = output.read_text(encoding="utf-8", errors="replace")
    for job_output in sorted(folder.glob(f"{name}-[0-9]*.job")):
        said += job_output.read_text(encoding="utf-8", errors="replace")
    if not rows:
        return Outcome("refused", said=said)
    if state in UNENDED:
        sandbox_run(sandbox, "scancel", f"--name={name}")
    if state != "COMPLETED":
        return Outcome("waits" if state in UNENDED else state, said=f"{said}{rows[-1]['Reason']}")
    return Outcome(
        end="COMPLETED",
        allocated=_allocated(sandbox, [row["JobID"] for row in rows]),
        jobs=len(rows),
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
        return [form.command, *always, *form.parts[0], *words_of(form)]
    always.append(f"--output={folder}/{name}-%j.job")
    if form.command == "sbatch --wrap":
        return ["sbatch", *always, *form.parts[0], f"--wrap={form.script}"]
    script = folder / f"{name}.sh"
    in_script = form.command == "#SBATCH"
    lines = f"#SBATCH {form.asks}\n" if in_script else ""
    script.write_text(f"#!/bin/sh\n{lines}{form.script}", encoding="utf-8")
    return ["sbatch", *always, *([] if in_script else form.parts[0]), str(script)]


def _ended(sandbox: Sandbox, form: Form, name: str, child: subprocess.Popen[bytes]) -> list[dict[str, str]]:
    """Wait until all jobs have ended and return what squeue shows of each; as they are then if they wait for ever."""
    began_s = time.monotonic()
    while True:
        returned = child.poll() is not None
        rows = _rows(sandbox, name)
        waits = bool(rows) and all(row["State"] == "PENDING" for row in rows)
        ended = all(row["State"] not in UNENDED for row in rows)
        if ended and (returned if not rows else len(rows) == form.jobs):
            return rows
        patience_s = START_PATIENCE_S if waits else COMMAND_PATIENCE_S
        if time.monotonic() > began_s + patience_s:
            return rows
        time.sleep(POLL_S)


def _rows(sandbox: Sandbox, name: str) -> list[dict[str, str]]:
    """Ask squeue for all jobs of a name."""
    shown = ",".join(f"{column}:{width}" for column, width in _SHOWN.items())
    argv = ("squeue", "--states=all", "--array", "--noheader", f"--name={name}", f"--Format={shown}")
    rows = []
    for line in sandbox_run(sandbox, *argv).splitlines():
        ends = itertools.accumulate(_SHOWN.values())
        cells = (line[end - width : end].strip() for end, width in zip(ends, _SHOWN.values(), strict=True))
        rows.append(dict(zip(_SHOWN, cells, strict=True)))
    return rows


def _allocated(sandbox: Sandbox, job_ids: Sequence[str]) -> Allocation:
    """Ask sacct, whose amounts are exact; slurmdbd hears of a job's end a moment after slurmctld."""
    argv = (
        "sacct",
        "--allocations",
        "--noheader",
        "--parsable2",
        "--noconvert",
        f"--jobs={','.join(job_ids)}",
    )
    deadline = time.monotonic() + COMMAND_PATIENCE_S
    while True:
        lines = sandbox_run(sandbox, *argv, "--format=State,AllocTRES").split("\n")
        rows = [line.partition("|") for line in lines if line]
        ended = [text for state, _, text in rows if text and state.partition(" ")[0] not in UNENDED]
        if len(ended) >= len(job_ids):
            return dict(sum((Counter(allocation(text)) for text in ended), Counter()))
        assert time.monotonic() < deadline, f"slurmdbd does not hear of the end of jobs {job_ids}"
        time.sleep(POLL_S)
