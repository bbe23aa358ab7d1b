"""A mixed queue on a real, saturated Slurm, with the advisor and without it, in turns.

Run it by `python -m bench.advisor_live`. Users ask the same limit for everything; how long jobs like these run is
learned from a first round of each family. Waits are those of sacct.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy

from models.simulation.results import bounded_slowdowns
from slurm_plugin.config import Config, load_config, render_config
from slurm_plugin.sandbox import cluster
from slurm_plugin.sandbox.cluster import Options, Sandbox

LIMIT_MIN = 60
# Of each family its seconds, its share of the jobs, and how many CPUs they ask for.
FAMILIES = {"short": (2.0, 0.6, (1, 2, 4)), "middle": (8.0, 0.25, (4, 8)), "long": (25.0, 0.15, (8, 16))}
LEARNED = 8
PATIENCE_S = 900.0
MOST_DELAY_S = 120


class Job(NamedTuple):
    """A job of the mix."""

    name: str
    seconds: float
    cpus: int


class Waited(NamedTuple):
    """What a round came to, job by job, in the order of submission (seconds)."""

    wait_s: numpy.ndarray
    run_s: numpy.ndarray

    @property
    def slowdown(self) -> float:
        """The mean bounded slowdown."""
        return float(bounded_slowdowns(self.wait_s + self.run_s, self.run_s).mean())


class Site(NamedTuple):
    """A sandbox with a configuration for an advisor."""

    sandbox: Sandbox
    config: Path

    def run(self, *argv: str) -> str:
        """Run a command and return its stdout."""
        environment = {**os.environ, **self.sandbox.environment(), "SLURM_TIME_FORMAT": "%s"}
        environment["RIGHTSIZER_CONFIG"] = str(self.config)
        return subprocess.run(
            argv, env=environment, check=True, capture_output=True, text=True, cwd="/", timeout=120
        ).stdout

    def submit(self, jobs: Sequence[Job]) -> list[int]:
        """Submit jobs at once and return their ids."""
        return [
            int(
                self.run(
                    "sbatch", "--parsable", "--output=/dev/null", f"--job-name={job.name}", f"--time={LIMIT_MIN}",
                    f"--cpus-per-task={job.cpus}", "--mem=100", f"--wrap=sleep {job.seconds:.1f}",
                ).split(";")[0]
            )
            for job in jobs
        ]  # fmt: skip

    def wait_empty(self) -> None:
        """Wait until nothing waits or runs."""
        until_s = time.monotonic() + PATIENCE_S
        while self.run("squeue", "--noheader"):
            if time.monotonic() > until_s:
                raise SystemExit(
                    f"the queue is not empty after {PATIENCE_S:g} s; look into {self.sandbox.directory}"
                )
            time.sleep(1)

    def waited(self, ids: Sequence[int]) -> Waited:
        """Return what sacct says of jobs."""
        time.sleep(3)  # slurmdbd hears of the last end a moment later
        rows: dict[int, tuple[int, int, int]] = {}
        listed = ",".join(map(str, ids))
        for line in self.run(
            "sacct", "-X", "-n", "-P", "-j", listed, "--format=JobIDRaw,Submit,Start,End"
        ).splitlines():
            job, submit, start, end = line.split("|")
            rows[int(job)] = (int(submit), int(start), int(end))
        times = numpy.array([rows[job] for job in ids], dtype=float)
        return Waited(times[:, 1] - times[:, 0], times[:, 2] - times[:, 1])


def mix(jobs: int, seed: int) -> list[Job]:
    """Return a queue; the same for the same seed."""
    draw = random.Random(seed)
    names = list(FAMILIES)
    shares = [FAMILIES[name][1] for name in names]
    found = []
    for number in range(jobs):
        name = draw.choices(names, shares)[0]
        seconds, _, cpus = FAMILIES[name]
        found.append(Job(f"{name}-{number}", seconds * draw.uniform(0.8, 1.25), draw.choice(cpus)))
    return found


@contextlib.contextmanager
def site_with_a_past(folder: Path, prefix: Path | None) -> Iterator[Site]:
    """Start a sandbox, let each family run, and train on that."""
    options = Options(directory=folder / "site", nodes=2, slurm_prefix=prefix, hook=False, serve=False)
    sandbox = cluster.start(options)
    try:
        config = advising(load_config(str(sandbox.layout.rightsizer_toml)))
        file = folder / "advisor.toml"
        file.write_text(render_config(config), encoding="utf-8")
        site = Site(sandbox, file)
        past = [
            Job(f"{name}-{number}", seconds, cpus)
            for name, (seconds, _, sizes) in FAMILIES.items()
            for cpus in sizes
            for number in range(LEARNED)
        ]
        site.submit(past)
        site.wait_empty()
        time.sleep(3)
        site.run("rightsizer", "ingest")
        site.run("rightsizer", "train", "--promote", "always")
        yield site
    finally:
        cluster.stop(folder / "site")


def advising(config: Config) -> Config:
    """Return a configuration for rounds of minutes."""
    advisor = msgspec.structs.replace(
        config.advisor,
        queue="scontrol",
        control_share=0.0,
        period_s=3,
        lease_s=60,
        horizon_s=3600,
        most_delay_s=MOST_DELAY_S,
    )
    return msgspec.structs.replace(config, advisor=advisor)


@contextlib.contextmanager
def advisor(site: Site) -> Iterator[None]:
    """Let the advisor work."""
    environment = {**os.environ, **site.sandbox.environment()}
    command = ["rightsizer", "advise", "--config", str(site.config), "--watch", "--apply"]
    with (site.config.parent / "advise.log").open("ab") as log:
        process = subprocess.Popen(command, env=environment, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        if process.wait(60):
            raise SystemExit(f"the advisor failed; look into {log.name}")


def one_round(site: Site, jobs: Sequence[Job], *, advised: bool) -> Waited:
    """Let a queue run, with the advisor or without."""
    with advisor(site) if advised else contextlib.nullcontext():
        ids = site.submit(jobs)
        site.wait_empty()
    return site.waited(ids)


def main() -> None:
    """Run pairs of rounds and print what each came to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=120)
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--slurm-prefix", type=Path)
    arguments = parser.parse_args()
    rounds: dict[bool, list[Waited]] = {False: [], True: []}
    with (
        tempfile.TemporaryDirectory(prefix="rightsizer-") as name,
        site_with_a_past(Path(name), arguments.slurm_prefix) as site,
    ):
        Path(name).chmod(0o755)
        for pair in range(arguments.pairs):
            jobs = mix(arguments.jobs, arguments.seed + pair)
            # In turns: whatever else this machine does meets both alike.
            for advised in (False, True) if pair % 2 == 0 else (True, False):
                rounds[advised].append(one_round(site, jobs, advised=advised))
                tell(f"pair {pair + 1}, {'with' if advised else 'without'}", rounds[advised][-1])
    plain, better = rounds[False], rounds[True]
    for pair, (one, other) in enumerate(zip(plain, better, strict=True)):
        later_s = float((other.wait_s - one.wait_s).max())
        print(
            f"pair {pair + 1}: mean wait {share(one.wait_s.mean(), other.wait_s.mean())}, "
            f"mean bounded slowdown {share(one.slowdown, other.slowdown)}, "
            f"the latest job {later_s:.0f} s later (bound {MOST_DELAY_S} s)"
        )


def tell(what: str, found: Waited) -> None:
    """Print a round."""
    print(
        f"{what:20} mean wait {found.wait_s.mean():6.1f} s, longest {found.wait_s.max():6.1f} s, "
        f"mean bounded slowdown {found.slowdown:6.2f}",
        flush=True,
    )


def share(before: float, after: float) -> str:
    """Return by how much less something is."""
    return f"{100 * (1 - after / before):.0f} % less"


if __name__ == "__main__":
    main()
