"""Jobs let onto others' idle nodes by forecast, on a real Slurm; compared with all jobs listing both, and with none.

    python -m bench.lending_live [--full 160] [--seen 900] [--risk 0.5] [--rounds 2] [--seed 1] [--slurm-prefix DIR]

The queue is that of advisor_live.py, and the advisor reorders it in all three cases. In addition there are LENT
nodes of owners who come and go: a job that is there when its owner comes is preempted, and requeued after a while. How
long jobs run, and owners stay away, is learned by sacct from one more queue and from its owners. All three cases of
a round have the same jobs and owners at the same moments, in alternating order. A wait is from the first submission
to the last start.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy

from bench.advisor_live import PAST, Site, advising, advisor, interval
from bench.advisor_mix import NODE_CPUS, NODES, Job, queue
from models.simulation.results import bounded_slowdowns
from slurm_plugin.cli.orderly_end import orderly_end
from slurm_plugin.config.file import load_config, render_config
from slurm_plugin.config.settings import Advisor, LentPartition
from slurm_plugin.sandbox import cluster
from slurm_plugin.sandbox.cluster import Options
from slurm_plugin.sandbox.layout import Layout
from slurm_plugin.sandbox.shape import Shape

LENT = 3
# Owners stay away for a while, or for long (seconds), at random, and work for WORK_S.
AWAY_S, LONG_SHARE, WORK_S = ((15.0, 30.0), (100.0, 180.0)), 0.4, 20
# Slurm's own delay is two minutes, which is long for jobs that run for seconds.
AGAIN_S = 15
NOT, ALL, OURS = "own nodes only", "everybody lists both", "let in by forecast"
LISTS = {NOT: "main", ALL: "main,lent", OURS: "main"}


class Came(NamedTuple):
    """An owner's job: when it comes, from the start (s), and to which lent node."""

    at_s: float
    node: int


class Round(NamedTuple):
    """The result of a queue: by job, in the order of submission (seconds); and of the owners."""

    wait_s: numpy.ndarray
    run_s: numpy.ndarray
    lent: int
    interrupted: int
    lost_cpu_s: float
    owners_wait_s: float

    @property
    def slowdown(self) -> float:
        """The mean bounded slowdown."""
        return float(bounded_slowdowns(self.wait_s + self.run_s, self.run_s).mean())


def owners(for_s: float, seed: int) -> list[Came]:
    """Return when owners come, in the order of time; each node is free at first."""
    draw, found = random.Random(seed), []
    for node in range(LENT):
        at_s = 0.0
        while True:
            at_s += draw.uniform(*AWAY_S[draw.random() < LONG_SHARE])
            if at_s >= for_s:
                break
            found.append(Came(at_s, node))
            at_s += WORK_S
    return sorted(found)


class Lender(NamedTuple):
    """A site with lent nodes, which have these names."""

    site: Site
    lent: Sequence[str]

    def owners_come(self, came: Sequence[Came], stop: threading.Event) -> list[int]:
        """Submit owners' jobs at their moments, until stopped; return their ids."""
        began_s, found = time.monotonic(), []
        for one in came:
            if stop.wait(max(0.0, began_s + one.at_s - time.monotonic())):
                break
            options = (
                "--partition=owner",
                f"--nodelist={self.lent[one.node]}",
                f"--cpus-per-task={NODE_CPUS}",
            )
            said = self.site.run(
                "sbatch",
                "--parsable",
                "--output=/dev/null",
                "--mem=100",
                "--time=5",
                *options,
                f"--wrap=sleep {WORK_S}",
            )
            found.append(int(said.partition(";")[0]))
        return found

    def round(self, jobs: Sequence[Job], came: Sequence[Came], how: str) -> Round:
        """Run a queue and owners' jobs at the same time."""
        stop, theirs = threading.Event(), list[int]()
        coming = threading.Thread(target=lambda: theirs.extend(self.owners_come(came, stop)))
        self.site.forget_usage()
        config = self.site.config if how == OURS else self.site.config.with_name("plain.toml")
        with advisor(self.site._replace(config=config)):
            coming.start()
            ids = self.site.submit(jobs, f"--partition={LISTS[how]}")
            self.wait_done(ids)
            stop.set()
            coming.join()
            self.site.wait_empty()
        return self.became(ids, theirs)

    def wait_done(self, ids: Sequence[int]) -> None:
        """Wait until none of these jobs is pending or running."""
        ours = set(map(str, ids))
        while ours & set(self.site.run("squeue", "--noheader", "--format=%A").split()):
            time.sleep(1)

    def became(self, ids: Sequence[int], theirs: Sequence[int]) -> Round:
        """Return sacct's record of jobs and owners."""
        time.sleep(3)  # slurmdbd receives the last end a moment later
        rows = self.runs(ids)
        last = {job: (start, end) for job, state, _, _, start, end, _ in rows if state == "COMPLETED"}
        if missing := set(ids) - last.keys():
            raise SystemExit(
                f"jobs {sorted(missing)} have not completed; look into {self.site.sandbox.directory}"
            )
        ended = [row for row in rows if row[1] == "PREEMPTED"]
        waited = [start - submit for _, _, _, submit, start, _, _ in self.runs(theirs) if start]
        # Each run of a requeued job has its own submit time.
        first = {job: submit for job, _, _, submit, *_ in sorted(rows, key=lambda row: -row[3])}
        submitted_s = numpy.array([first[job] for job in ids], dtype=float)
        start_s, end_s = (numpy.array([last[job][at] for job in ids], dtype=float) for at in (0, 1))
        return Round(
            wait_s=start_s - submitted_s,
            run_s=end_s - start_s,
            lent=sum(partition == "lent" for _, state, partition, *_ in rows if state == "COMPLETED"),
            interrupted=len(ended),
            lost_cpu_s=float(sum((end - start) * cpus for *_, start, end, cpus in ended)),
            owners_wait_s=float(numpy.mean(waited)) if waited else 0.0,
        )

    def runs(self, ids: Sequence[int]) -> list[tuple[int, str, str, int, int, int, int]]:
        """Return the runs of jobs: job, state, partition, submit, start and end time (unix; 0 means none), CPUs."""
        asked = "--format=JobIDRaw,State,Partition,Submit,Start,End,AllocCPUS"
        said = self.site.run("sacct", "-X", "-D", "-n", "-P", "-j", ",".join(map(str, ids)), asked)
        found = []
        for line in said.splitlines():
            job, state, partition, *numbers = line.split("|")
            submit, start, end, cpus = (int(one) if one.isdecimal() else 0 for one in numbers)
            found.append((int(job), state.split()[0], partition, submit, start, end, cpus))
        return found


@contextlib.contextmanager
def lender(folder: Path, prefix: Path | None, full_s: float, seen_s: float, risk: float) -> Iterator[Lender]:
    """Start a sandbox with lent nodes, run a queue and owners there, and train on that."""
    lent = ",".join(f"{{node[{NODES + number}]}}" for number in range(LENT))
    lines = (
        "PriorityWeightFairshare=0",
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
        f"PartitionName=lent Nodes={lent} PreemptMode=REQUEUE",
        f"PartitionName=owner Nodes={lent} PriorityTier=10 PreemptMode=OFF",
        f"AuthInfo=socket={Layout(folder / 'site').munge_socket},cred_expire={AGAIN_S}",
    )
    options = Options(
        directory=folder / "site", nodes=NODES + LENT, slurm_prefix=prefix, hook=False, serve=False,
        shape=Shape(lines=lines, outside_main=LENT),
    )  # fmt: skip
    sandbox = cluster.start(options)
    try:
        config = advising(load_config(str(sandbox.layout.rightsizer_toml)), Advisor().most_delay_s)
        (folder / "plain.toml").write_text(render_config(config), encoding="utf-8")
        lends = msgspec.structs.replace(
            config, lent_partitions=(LentPartition(name="lent", jobs_of=("main",), risk=risk),)
        )
        file = folder / "lending.toml"
        file.write_text(render_config(lends), encoding="utf-8")
        site = Site(sandbox, file)
        names = site.run("sinfo", "-h", "-N", "-p", "lent", "-o", "%N").split()
        site.add_accounts()
        found, stop = Lender(site, names), threading.Event()
        site.submit(queue(full_s, PAST))
        found.owners_come(owners(seen_s, PAST), stop)
        site.learn()
        yield found
    finally:
        cluster.stop(folder / "site")


def main() -> None:
    """Run rounds of all three cases, and print their results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--full", type=float, default=160.0, help="for how many seconds a queue fills the nodes of its own"
    )
    parser.add_argument(
        "--seen",
        type=float,
        default=900.0,
        help="for how many seconds owners were seen before the first round",
    )
    parser.add_argument("--risk", type=float, default=0.5, help="how likely an owner may be back too soon")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--slurm-prefix", type=Path)
    arguments = parser.parse_args()
    rounds: dict[str, list[Round]] = {how: [] for how in LISTS}
    with orderly_end(), tempfile.TemporaryDirectory(prefix="rightsizer-") as name:
        Path(name).chmod(0o755)
        with lender(
            Path(name), arguments.slurm_prefix, arguments.full, arguments.seen, arguments.risk
        ) as site:
            for number in range(arguments.rounds):
                seed = arguments.seed + number
                jobs = queue(arguments.full, seed)
                came = owners(10 * arguments.full, seed)
                turns = list(LISTS)
                for how in (*turns[number % 3 :], *turns[: number % 3]):
                    rounds[how].append(site.round(jobs, came, how))
                    tell(f"seed {seed}, {how}", rounds[how][-1])
    compare(rounds)


def tell(what: str, found: Round) -> None:
    """Print a round."""
    print(
        f"{what:30} mean wait {found.wait_s.mean():6.1f} s, longest {found.wait_s.max():5.0f} s, "
        f"mean bounded slowdown {found.slowdown:5.2f}; of {len(found.wait_s)} jobs {found.lent} done on lent nodes, "
        f"{found.interrupted} interrupted, "
        f"{found.lost_cpu_s:.0f} CPU s lost; owners waited {found.owners_wait_s:.1f} s",
        flush=True,
    )


def compare(rounds: dict[str, list[Round]]) -> None:
    """Print the result of letting jobs in by forecast, compared with both others."""
    for other in (NOT, ALL):
        pairs = list(zip(rounds[OURS], rounds[other], strict=True))
        waits = interval([float(ours.wait_s.mean() / one.wait_s.mean()) for ours, one in pairs])
        slowdowns = interval([ours.slowdown / one.slowdown for ours, one in pairs])
        print(f"{OURS} against {other}: mean wait to {waits}, mean bounded slowdown to {slowdowns}")
    lost = {how: sum(one.lost_cpu_s for one in found) for how, found in rounds.items()}
    stopped = {how: sum(one.interrupted for one in found) for how, found in rounds.items()}
    print(
        f"interrupted: {stopped[OURS]} instead of {stopped[ALL]}; "
        f"CPU s lost: {lost[OURS]:.0f} instead of {lost[ALL]:.0f}"
    )


if __name__ == "__main__":
    main()
