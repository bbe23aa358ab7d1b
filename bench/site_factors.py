"""What the gate costs slurmctld: 10,000 SiteFactors written while backfill runs, on a real slurmctld.

    python -m bench.site_factors [--jobs 10000] [--slices 20] [--writes-per-s 50] [--slurm-prefix DIR]

All the jobs wait behind one that fills the cluster, and backfill looks at all of them in each of its continuous
cycles. At each rate, the gate writes, reads back and notes a new factor for each job, slice by slice, and after
each slice it writes nothing for as long, so that noise on the machine affects both. A cycle's time is slurmctld's
own mean (sdiag, reset before each spell), as are the RPCs'. Ratios count, not times; their interval is over slices.
Then the queue is read with each available backend.
"""

from __future__ import annotations

import math
import os
import re
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from bench.arguments import parser_of
from bench.replay import Load, capture, submit
from slurm_plugin.cli.orderly_end import orderly_end
from slurm_plugin.cli.output import note, print_rows
from slurm_plugin.sandbox import cluster
from slurm_plugin.sandbox.cluster import Options, Sandbox
from slurm_plugin.sandbox.environment import command_environment
from slurm_plugin.sandbox.shape import Shape
from slurm_plugin.slurm.backends import open_queue, why_no_pyslurm
from slurm_plugin.slurm.gateway import Gateway, WriteTerms
from slurm_plugin.slurm.queue import FactorChange
from slurm_plugin.slurm.scontrol_queue import ScontrolQueue
from slurm_plugin.slurm.snapshot import QueuedJob

NODES = 4
GOAL = 1.10
CYCLE = re.compile(r"Backfilling stats.*?Total cycles: (\d+).*?Mean cycle: (\d+)\b", re.DOTALL)
ANY_RPC = re.compile(r"^\s+(REQUEST_\w+)\s*\(\s*\d+\)\s*count:(\d+)\s+ave_time:(\d+)", re.MULTILINE)
DIFFERENT = 20

Row = dict[str, str | float]


class Spell(msgspec.Struct, frozen=True):
    """What sdiag said after a spell: backfill's cycles and their mean, and the mean time of each RPC, in µs."""

    cycles: int
    cycle_us: int
    rpcs_us: Mapping[str, tuple[int, int]]
    took_s: float = 0.0
    kept: int = 0


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--slices", type=int, default=20)
    parser.add_argument("--writes-per-s", type=float, nargs="+", default=[50.0])
    parser.add_argument("--slurm-prefix", type=Path)
    arguments = parser.parse_args()
    with orderly_end(), tempfile.TemporaryDirectory(prefix="rightsizer-bench-") as folder:
        Path(folder).chmod(0o755)
        sandbox = start(Path(folder) / "sandbox", arguments.jobs, arguments.slurm_prefix)
        try:
            wait_for_all(arguments.jobs)
            rows = []
            for rate in arguments.writes_per_s:
                state = Path(folder) / f"state-{rate:g}"
                rows += measure(sandbox, state, arguments.jobs, arguments.slices, rate)
            rows += [row(f"s to read the queue by {name}", round(took, 3)) for name, took in reads().items()]
        finally:
            cluster.stop(sandbox.directory)
    print_rows(rows, arguments.format)


def start(folder: Path, jobs: int, prefix: Path | None) -> Sandbox:
    """Return a sandbox with this many pending jobs, at which backfill looks all the time."""
    note(f"starting a private Slurm, and queueing {jobs:,} jobs")
    parameters = (
        "bf_continue,bf_interval=1,bf_resolution=60,bf_window=1440,sched_interval=60,default_queue_depth=10"
    )
    shape = Shape(
        lines=(
            f"MaxJobCount={2 * jobs + 1000}",
            f"SchedulerParameters={parameters},bf_max_job_test={jobs + 100},bf_max_time=120",
        )
    )
    options = Options(
        directory=folder, nodes=NODES, slurm_prefix=prefix, hook=False, serve=False, shape=shape
    )
    sandbox = cluster.start(options)
    os.environ.update(sandbox.environment())
    sandbox.command(
        "sbatch", f"--nodes={NODES}", "--exclusive", "--time=600", "--output=/dev/null", "--wrap=sleep 36000"
    )
    environment = command_environment(sandbox.layout, sandbox.cluster.path_first)
    port, munge_socket = sandbox.manifest.ports.slurmctld, str(sandbox.layout.munge_socket)
    commands = [
        (
            "sbatch",
            f"--ntasks={number % 16 + 1}",
            f"--time={10 + number}",
            "--output=/dev/null",
            "--wrap=true",
        )
        for number in range(DIFFERENT)
    ]
    messages = capture(commands, environment, port, munge_socket, sandbox.layout.run)
    submit(Load(port, munge_socket, messages, jobs - DIFFERENT, 0.0, time.time()))
    return sandbox


def measure(sandbox: Sandbox, folder: Path, jobs: int, slices: int, writes_per_s: float) -> list[Row]:
    """Return the measurements at a rate, as rows."""
    terms = WriteTerms(most_changes=jobs, writes_per_s=writes_per_s)
    quiet: list[Spell] = []
    busy: list[Spell] = []
    with Gateway(ScontrolQueue(), folder, terms, apply=True) as gateway:
        waiting = [job for job in gateway.read().jobs if job.waits]
        for number in range(slices):
            note(f"{writes_per_s:g} writes a second, slice {number + 1} of {slices}")
            busy.append(write(sandbox, gateway, waiting[number::slices]))
            quiet.append(watch(sandbox, busy[-1].took_s))
        began = time.monotonic()
        gateway.undo()
        undone_s = time.monotonic() - began
    return rows_of(writes_per_s, quiet, busy, undone_s)


def wait_for_all(jobs: int) -> None:
    """Wait until the scheduler has looked at each job: before that, sprio does not show it."""
    queue = ScontrolQueue()
    deadline = time.monotonic() + 600
    while (seen := len(queue.site_factors())) < jobs:
        if time.monotonic() > deadline:
            note(f"only {seen:,} of {jobs:,} jobs wait after ten minutes")
            return
        time.sleep(2)


def write(sandbox: Sandbox, gateway: Gateway, jobs: Sequence[QueuedJob]) -> Spell:
    """Write a new factor for each of these jobs, and return what slurmctld did meanwhile."""
    changes = [
        FactorChange(job_id=job.job_id, before=job.site_factor, after=17 + job.job_id % 100, reason="bench")
        for job in jobs
    ]
    sandbox.command("sdiag", "--reset")
    began = time.monotonic()
    written = gateway.reorder(changes)
    took_s = time.monotonic() - began
    seen = look(sandbox)
    return msgspec.structs.replace(seen, took_s=took_s, kept=sum(not one.problem for one in written))


def watch(sandbox: Sandbox, spell_s: float) -> Spell:
    """Leave slurmctld alone for as long, and return what it did."""
    sandbox.command("sdiag", "--reset")
    time.sleep(spell_s)
    return look(sandbox)


def look(sandbox: Sandbox) -> Spell:
    """Ask sdiag; wait until a cycle has ended since the reset."""
    deadline = time.monotonic() + 120
    while True:
        said = sandbox.command("sdiag")
        found = CYCLE.search(said)
        if (found and int(found[1]) > 0) or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    rpcs = {name: (int(count), int(mean)) for name, count, mean in ANY_RPC.findall(said)}
    return Spell(int(found[1]) if found else 0, int(found[2]) if found else 0, rpcs)


def reads() -> dict[str, float]:
    """Return how long each backend takes to read the queue, in seconds; the best of three."""
    names = ["scontrol", *([] if why_no_pyslurm() else ["pyslurm"])]
    times: dict[str, float] = {}
    for name in names:
        queue = open_queue("pyslurm" if name == "pyslurm" else "scontrol")
        spells = []
        for _ in range(3):
            began = time.monotonic()
            queue.read()
            spells.append(time.monotonic() - began)
        times[name] = min(spells)
    return times


def rows_of(rate: float, quiet: Sequence[Spell], busy: Sequence[Spell], undone_s: float) -> list[Row]:
    """Return the figures of a rate with their goals."""
    ratio, error = ratio_of(quiet, busy)
    verdict = "" if ratio + error <= GOAL else " MISSED" if ratio - error > GOAL else " not told"
    update = [spell.rpcs_us.get("REQUEST_UPDATE_JOB", (0, 0)) for spell in busy]
    return [
        row(f"at {rate:g} writes a second: {name}", value, goal)
        for name, value, goal in (
            ("writes kept", sum(spell.kept for spell in busy), ""),
            ("s for all of them, read back and noted", round(sum(spell.took_s for spell in busy), 1), ""),
            ("s to undo them all", round(undone_s, 1), ""),
            ("ms per REQUEST_UPDATE_JOB", round(statistics.median(us for _, us in update) / 1000, 3), ""),
            ("backfill cycles without writes", sum(spell.cycles for spell in quiet), ""),
            ("backfill cycles with writes", sum(spell.cycles for spell in busy), ""),
            ("ms per cycle without writes", round(mean_cycle(quiet) / 1000, 1), ""),
            ("ms per cycle with writes", round(mean_cycle(busy) / 1000, 1), ""),
            ("ratio of the two", f"{ratio:.3f} ±{error:.3f}", f"<= {GOAL}{verdict}"),
        )
    ]


def row(figure: str, value: str | float, goal: str = "") -> Row:
    """Return a row of the table."""
    return {"figure": figure, "value": value, "goal": goal}


def ratio_of(quiet: Sequence[Spell], busy: Sequence[Spell]) -> tuple[float, float]:
    """Return the mean over slices of the ratio of cycle times with and without writes, and its 95 % interval.

    The interval is normal; for a single slice it is infinite.
    """
    ratios = [one.cycle_us / max(1, other.cycle_us) for one, other in zip(busy, quiet, strict=True)]
    if len(ratios) < 2:
        return ratios[0], math.inf
    return statistics.fmean(ratios), 1.96 * statistics.stdev(ratios) / math.sqrt(len(ratios))


def mean_cycle(spells: Sequence[Spell]) -> float:
    """Return the mean time of a cycle over several spells, in µs."""
    cycles = sum(spell.cycles for spell in spells)
    return sum(spell.cycles * spell.cycle_us for spell in spells) / max(1, cycles)


if __name__ == "__main__":
    main()
