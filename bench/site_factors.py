"""What the gate costs slurmctld: 10,000 SiteFactors written while backfill runs, on a real slurmctld.

    python -m bench.site_factors [--jobs 10000] [--rounds 3] [--writes-per-s 500] [--slurm-prefix DIR]

All the jobs wait behind one that fills the cluster, and backfill looks at all of them in each of its cycles, over and
over. Spells without writes and spells in which the gate writes, reads back and notes a new factor for each job take
turns, so that a noisy machine is noisy for both; a cycle is slurmctld's own mean (sdiag, reset before each spell), as
are the RPCs. Ratios count, not times. Then the queue is read by each backend that is there.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from bench.replay import Load, capture, submit
from slurm_plugin.cli.output import note, print_rows
from slurm_plugin.sandbox import cluster
from slurm_plugin.sandbox.cluster import Options, Sandbox
from slurm_plugin.sandbox.environment import command_environment
from slurm_plugin.sandbox.shape import Shape
from slurm_plugin.slurm.backends import open_queue, why_no_pyslurm
from slurm_plugin.slurm.gateway import Gateway, WriteTerms
from slurm_plugin.slurm.queue import FactorChange, Snapshot
from slurm_plugin.slurm.scontrol_queue import ScontrolQueue

NODES = 4
GOAL = 1.10
CYCLE = re.compile(r"Backfilling stats.*?Total cycles: (\d+).*?Mean cycle: (\d+)\b", re.DOTALL)
ANY_RPC = re.compile(r"^\s+(REQUEST_\w+)\s*\(\s*\d+\)\s*count:(\d+)\s+ave_time:(\d+)", re.MULTILINE)
DIFFERENT = 20


class Spell(msgspec.Struct, frozen=True):
    """What sdiag said after a spell: backfill's cycles and their mean, and the mean time of each RPC, in µs."""

    cycles: int
    cycle_us: int
    rpcs_us: Mapping[str, tuple[int, int]]
    took_s: float = 0.0
    kept: int = 0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--writes-per-s", type=float, default=500.0)
    parser.add_argument("--slurm-prefix", type=Path)
    parser.add_argument("--format", default="table", choices=["table", "json", "csv"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rightsizer-bench-") as folder:
        Path(folder).chmod(0o755)
        sandbox = start(Path(folder) / "sandbox", arguments.jobs, arguments.slurm_prefix)
        try:
            rows = measure(
                sandbox, Path(folder) / "state", arguments.jobs, arguments.rounds, arguments.writes_per_s
            )
        finally:
            cluster.stop(sandbox.directory)
    print_rows(rows, arguments.format)


def start(folder: Path, jobs: int, prefix: Path | None) -> Sandbox:
    """Return a sandbox with so many jobs that wait, which backfill looks at all the time."""
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


def measure(
    sandbox: Sandbox, folder: Path, jobs: int, rounds: int, writes_per_s: float
) -> list[dict[str, str | float | int]]:
    """Return what was seen, as rows."""
    terms = WriteTerms(most_changes=jobs, writes_per_s=writes_per_s)
    quiet: list[Spell] = []
    busy: list[Spell] = []
    gateway = Gateway(ScontrolQueue(), folder, terms, apply=True)
    with gateway:
        wait_for_all(jobs)
        for number in range(rounds):
            snapshot = gateway.read()
            note(f"round {number + 1}: {len(snapshot.jobs):,} jobs")
            busy.append(write_all(sandbox, gateway, snapshot, 17 * (number + 1)))
            quiet.append(watch(sandbox, busy[-1].took_s))
        began = time.monotonic()
        gateway.undo()
        undone_s = time.monotonic() - began
    return rows_of(quiet, busy, undone_s, reads())


def wait_for_all(jobs: int) -> None:
    """Wait until the scheduler has looked at each job: before, sprio does not show it."""
    queue = ScontrolQueue()
    deadline = time.monotonic() + 600
    while (seen := len(queue.site_factors())) < jobs:
        if time.monotonic() > deadline:
            note(f"only {seen:,} of {jobs:,} jobs wait after ten minutes")
            return
        time.sleep(2)


def write_all(sandbox: Sandbox, gateway: Gateway, snapshot: Snapshot, factor: int) -> Spell:
    """Write a new factor for each job that waits, and return what slurmctld did meanwhile."""
    changes = [
        FactorChange(
            job_id=job.job_id, before=job.site_factor, after=factor + job.job_id % 100, reason="bench"
        )
        for job in snapshot.jobs
        if job.waits
    ]
    sandbox.command("sdiag", "--reset")
    began = time.monotonic()
    written = gateway.reorder(changes)
    took_s = time.monotonic() - began
    seen = look(sandbox)
    return msgspec.structs.replace(seen, took_s=took_s, kept=sum(not one.problem for one in written))


def watch(sandbox: Sandbox, spell_s: float) -> Spell:
    """Let slurmctld be for as long, and return what it did."""
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
    """Return how long each backend takes to read the queue, in seconds; the better of three."""
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


def rows_of(
    quiet: list[Spell], busy: list[Spell], undone_s: float, read_s: Mapping[str, float]
) -> list[dict[str, str | float | int]]:
    """Return the figures with what they are to be."""
    ratio = mean_cycle(busy) / max(1.0, mean_cycle(quiet))
    update = [spell.rpcs_us.get("REQUEST_UPDATE_JOB", (0, 0)) for spell in busy]
    found: list[tuple[str, float | int, str]] = [
        ("writes kept in a spell", min(spell.kept for spell in busy), ""),
        (
            "s for all of them, read back and noted",
            round(statistics.median(spell.took_s for spell in busy), 2),
            "",
        ),
        ("s to undo them all", round(undone_s, 2), ""),
        (
            "ms per REQUEST_UPDATE_JOB in slurmctld",
            round(statistics.median(mean for _, mean in update) / 1000, 3),
            "",
        ),
        ("backfill cycles seen without writes", sum(spell.cycles for spell in quiet), ""),
        ("backfill cycles seen with writes", sum(spell.cycles for spell in busy), ""),
        ("ms per backfill cycle without writes", round(mean_cycle(quiet) / 1000, 1), ""),
        ("ms per backfill cycle with writes", round(mean_cycle(busy) / 1000, 1), ""),
        ("ratio of the two", round(ratio, 3), f"<= {GOAL}" + ("" if ratio <= GOAL else " MISSED")),
    ]
    found += [(f"s to read the queue by {name}", round(took, 3), "") for name, took in read_s.items()]
    return [{"figure": name, "value": value, "goal": goal} for name, value, goal in found]


def mean_cycle(spells: list[Spell]) -> float:
    """Return the mean time of a cycle over several spells, in µs."""
    cycles = sum(spell.cycles for spell in spells)
    return sum(spell.cycles * spell.cycle_us for spell in spells) / max(1, cycles)


if __name__ == "__main__":
    main()
