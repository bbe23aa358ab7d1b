"""A mixed queue on a real, saturated Slurm, alternately with the advisor and without it.

    python -m bench.advisor_live [--full 160] [--pairs 2] [--seed 1] [--fair-share 1000] [--bound-s 345600]
        [--slurm-prefix DIR]

advisor_mix.py defines the queue. How long such jobs run is learned from one more queue, which runs first. Both
rounds of a pair have the same jobs at the same moments, and start without usage; which of them has the advisor
first alternates from pair to pair. Waits are those of sacct. Intervals are of the mean over pairs, by Student's t
on logarithms.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy

from bench.advisor_mix import ACCOUNTS, NODES, Job, queue
from models.simulation.results import bounded_slowdowns
from slurm_plugin.cli.orderly_end import orderly_end
from slurm_plugin.config.file import load_config, render_config
from slurm_plugin.config.settings import Advisor, Config
from slurm_plugin.sandbox import cluster
from slurm_plugin.sandbox.cluster import Options, Sandbox
from slurm_plugin.sandbox.shape import Shape

DEFAULTS = Advisor()
PATIENCE_S = 1800.0
# Student's t at 0.975 by degrees of freedom, from 1; for more than are listed, the last one counts.
STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)
# The seed of the queue that is learned from; no pair has it.
PAST = 10_000


class Waited(NamedTuple):
    """The result of a round, job by job, in the order of submission (seconds)."""

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

    def add_accounts(self) -> None:
        """Create the accounts of a queue."""
        for account, shares in ACCOUNTS.items():
            self.run("sacctmgr", "-i", "add", "account", account, f"fairshare={shares}")
            self.run("sacctmgr", "-i", "add", "user", "root", f"account={account}")

    def forget_usage(self) -> None:
        """Reset the usage of fair share."""
        for account in ACCOUNTS:
            self.run("sacctmgr", "-i", "modify", "account", account, "set", "RawUsage=0")

    def learn(self) -> None:
        """Wait for running jobs to end, and train on them."""
        self.wait_empty()
        time.sleep(3)
        self.run("rightsizer", "ingest")
        self.run("rightsizer", "train", "--promote", "always")

    def submit(self, jobs: Sequence[Job], *more: str) -> list[int]:
        """Submit each job at its moment, with `more` options, and return their ids."""
        began_s = time.monotonic()
        found = []
        for job in jobs:
            time.sleep(max(0.0, began_s + job.at_s - time.monotonic()))
            said = self.run("sbatch", "--parsable", "--output=/dev/null", *more, *job.options)
            found.append(int(said.partition(";")[0]))
        return found

    def wait_empty(self) -> None:
        """Wait until no job is pending or running."""
        until_s = time.monotonic() + PATIENCE_S
        while self.run("squeue", "--noheader"):
            if time.monotonic() > until_s:
                raise SystemExit(
                    f"the queue is not empty after {PATIENCE_S:g} s; look into {self.sandbox.directory}"
                )
            time.sleep(1)

    def waited(self, ids: Sequence[int]) -> Waited:
        """Return sacct's record of jobs."""
        time.sleep(3)  # slurmdbd receives the last end a moment later
        rows: dict[int, tuple[int, int, int]] = {}
        listed = ",".join(map(str, ids))
        for line in self.run(
            "sacct", "-X", "-n", "-P", "-j", listed, "--format=JobIDRaw,State,Submit,Start,End"
        ).splitlines():
            job, state, *moments = line.split("|")
            if state != "COMPLETED":
                raise SystemExit(f"job {job} is {state}")
            submit, start, end = map(int, moments)
            rows[int(job)] = (submit, start, end)
        times = numpy.array([rows[job] for job in ids], dtype=float)
        return Waited(times[:, 1] - times[:, 0], times[:, 2] - times[:, 1])


@contextlib.contextmanager
def site_with_a_past(
    folder: Path, prefix: Path | None, full_s: float, fair_share: int, most_delay_s: int
) -> Iterator[Site]:
    """Start a sandbox, run a queue in it, and train on that."""
    lines = (f"PriorityWeightFairshare={fair_share}", "PriorityCalcPeriod=1") if fair_share else ()
    options = Options(
        directory=folder / "site", nodes=NODES, slurm_prefix=prefix, hook=False, serve=False, shape=Shape(lines=lines)
    )  # fmt: skip
    sandbox = cluster.start(options)
    try:
        config = advising(load_config(str(sandbox.layout.rightsizer_toml)), most_delay_s)
        file = folder / "advisor.toml"
        file.write_text(render_config(config), encoding="utf-8")
        site = Site(sandbox, file)
        site.add_accounts()
        site.submit(queue(full_s, PAST))
        site.learn()
        yield site
    finally:
        cluster.stop(folder / "site")


def advising(config: Config, most_delay_s: int) -> Config:
    """Return a configuration for rounds of minutes."""
    advisor = msgspec.structs.replace(
        config.advisor, control_share=0.0, period_s=3, lease_s=60, horizon_s=3600, most_delay_s=most_delay_s
    )
    return msgspec.structs.replace(config, advisor=advisor)


@contextlib.contextmanager
def advisor(site: Site) -> Iterator[None]:
    """Run the advisor within the block."""
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
    """Run a queue, with or without the advisor."""
    site.forget_usage()
    with advisor(site) if advised else contextlib.nullcontext():
        ids = site.submit(jobs)
        site.wait_empty()
    return site.waited(ids)


def main() -> None:
    """Run pairs of rounds and print their results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--full", type=float, default=160.0, help="for how many seconds a queue fills the cluster"
    )
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--fair-share", type=int, default=1000, help="PriorityWeightFairshare; 0: it does not count"
    )
    parser.add_argument("--bound-s", type=int, default=DEFAULTS.most_delay_s, help="advisor.most_delay_s")
    parser.add_argument("--slurm-prefix", type=Path)
    arguments = parser.parse_args()
    rounds: dict[bool, list[Waited]] = {False: [], True: []}
    with orderly_end(), tempfile.TemporaryDirectory(prefix="rightsizer-") as name:
        Path(name).chmod(0o755)
        with site_with_a_past(
            Path(name), arguments.slurm_prefix, arguments.full, arguments.fair_share, arguments.bound_s
        ) as site:
            for pair in range(arguments.pairs):
                jobs = queue(arguments.full, arguments.seed + pair)
                # Alternating, so that other load on this machine affects both alike.
                for advised in (False, True) if pair % 2 == 0 else (True, False):
                    rounds[advised].append(one_round(site, jobs, advised=advised))
                    tell(
                        f"seed {arguments.seed + pair}, {'with' if advised else 'without'}",
                        rounds[advised][-1],
                    )
    compare(rounds[False], rounds[True], arguments.seed, arguments.bound_s)


def tell(what: str, found: Waited) -> None:
    """Print a round."""
    print(
        f"{what:20} mean wait {found.wait_s.mean():6.1f} s, longest {found.wait_s.max():6.1f} s, "
        f"mean bounded slowdown {found.slowdown:6.2f}",
        flush=True,
    )


def compare(plain: Sequence[Waited], advised: Sequence[Waited], seed: int, bound_s: int) -> None:
    """Print what the advisor gained in each pair, and over all of them."""
    pairs = list(zip(plain, advised, strict=True))
    waits = [float(other.wait_s.mean() / one.wait_s.mean()) for one, other in pairs]
    slowdowns = [other.slowdown / one.slowdown for one, other in pairs]
    longest = [float(other.wait_s.max() / one.wait_s.max()) for one, other in pairs]
    for pair, (one, other) in enumerate(pairs):
        later_s = other.wait_s - one.wait_s
        print(
            f"seed {seed + pair}: mean wait to {waits[pair]:.3f}, mean bounded slowdown to {slowdowns[pair]:.3f}, "
            f"longest wait to {longest[pair]:.3f}; the latest job {later_s.max():.0f} s later, "
            f"{(later_s > bound_s).sum()} of {len(later_s)} beyond the bound of {bound_s} s"
        )
    print(
        f"mean wait to {interval(waits)}, mean bounded slowdown to {interval(slowdowns)}, longest wait to "
        f"{interval(longest)} of what it is without"
    )


def interval(ratios: Sequence[float]) -> str:
    """Return the geometric mean of ratios, with its 95 % interval if there are several."""
    logs = numpy.log(ratios)
    mean = f"{math.exp(logs.mean()):.3f}"
    if len(logs) < 2:
        return mean
    student = STUDENT[min(len(logs) - 1, len(STUDENT)) - 1]
    off = float(student * logs.std(ddof=1) / math.sqrt(len(logs)))
    return f"{mean} ({math.exp(logs.mean() - off):.3f} to {math.exp(logs.mean() + off):.3f})"


if __name__ == "__main__":
    main()
