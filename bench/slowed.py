"""Jobs whose cores are busy by turns, or that read files again: how much longer they run once they are cut.

A family's jobs ask for 16 CPUs and 16,000 MiB. Each has serial work, and work that up to `threads` CPUs share; the
amount of either differs from job to job. They come one after the other, sized by the chains for cores and memory,
and what accounting records of them teaches the next. The floor is the same chains without what
models/demand/slowed.py does. Families that no cut slows show what that costs; families whose program came to use
fewer cores show how soon that is noticed.

    python -m bench.slowed [--families N] [--jobs N] [--seed N]
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pandas

from accounting.request import JobRequest
from models.demand.chain import Estimator, Sight, demand_stages, unless_untold
from models.past.history import History
from models.past.jobs import PastJob

ASKED_CPUS, ASKED_MIB, SEEN_MIB, RECENT_JOBS = 16, 16_000, 500.0, 100
ASKED = JobRequest(
    user="ann", job_name="fit", cpus_per_task=ASKED_CPUS, mem_per_node_mib=ASKED_MIB, wall_s=86_400
)


class Chains(NamedTuple):
    """The estimators of a job's CPUs, and of its memory."""

    cores: Estimator
    memory: Estimator


WITHOUT, WITH = "without", "with"
_CORES, _MEMORY = demand_stages("cores", None, 0.01, 0.01), demand_stages("memory", None, 0.01, 0.01)["whole"]
CHAINS = {
    WITHOUT: Chains(_CORES["whole"], _MEMORY),
    WITH: Chains(_CORES["slowed"], unless_untold(_MEMORY, 0.0)),
}
NOTED = 1.1


class Work(NamedTuple):
    """One job's work, in core-seconds: what one core does, what up to `threads` share; and seconds of waiting.

    With less memory than it asked for, it waits `again_s` more, to read its files again.
    """

    serial: float
    shared: float
    threads: int
    waits_s: float
    again_s: float = 0.0

    def runs_s(self, cpus: int, mem_mib: int) -> float:
        """Return the run time with these CPUs and this memory."""
        waits_s = self.waits_s + self.again_s * (mem_mib < ASKED_MIB)
        return waits_s + self.serial + self.shared / min(self.threads, cpus)


class Told(NamedTuple):
    """The result of a family's jobs: what was granted, and their run times relative to those with their requests."""

    cpus: list[int]
    mem_mib: list[int]
    times: list[float]


def by_turns(random_: random.Random, jobs: int) -> list[Work]:
    """Return jobs of a program with serial and parallel parts."""
    threads, share, spread = (
        random_.choice((2, 4, 8, 16)),
        random_.uniform(0.02, 0.6),
        random_.choice((0.05, 0.2, 0.5)),
    )
    return [
        Work(
            600 * (1 - share) * drawn(random_, spread),
            600 * threads * share * drawn(random_, spread),
            threads,
            0,
        )
        for _ in range(jobs)
    ]


def one_thread(random_: random.Random, jobs: int) -> list[Work]:
    """Return jobs of a single-threaded program that waits for files, for a time that varies widely."""
    most_s, spread = random_.uniform(0, 3000), random_.choice((0.05, 0.2, 0.5))
    return [Work(600 * drawn(random_, spread), 0, 1, most_s * random_.random()) for _ in range(jobs)]


def all_threads(random_: random.Random, jobs: int) -> list[Work]:
    """Return jobs of a program whose threads are busy all the time."""
    threads, spread = random_.choice((2, 3, 4, 8)), random_.choice((0.05, 0.2, 0.5))
    return [Work(0, 600 * threads * drawn(random_, spread), threads, 0) for _ in range(jobs)]


def reads_again(random_: random.Random, jobs: int) -> list[Work]:
    """Return jobs of a single-threaded program whose files fit only into all of its memory, else are read again."""
    again_s, spread = 600 * random_.uniform(0.5, 5), random_.choice((0.05, 0.2, 0.5))
    return [
        Work(600 * drawn(random_, spread), 0, 1, 60 * random_.random(), again_s * drawn(random_, spread))
        for _ in range(jobs)
    ]


def changed(random_: random.Random, jobs: int) -> list[Work]:
    """Return jobs of a program that uses four threads, and from its thirty-first job on one."""
    return [
        Work(0, 2400 * drawn(random_, 0.2), 4, 0) if number < 30 else Work(600 * drawn(random_, 0.2), 0, 1, 0)
        for number in range(jobs)
    ]


def drawn(random_: random.Random, spread: float) -> float:
    """Return one job's work as a multiple of the usual amount."""
    return random_.lognormvariate(0, spread)


def run(family: Sequence[Work], chains: Chains, array: int = 1) -> Told:
    """Run a family's jobs, `array` at a time, all of them sized by what the earlier ones showed."""
    history, told = History(RECENT_JOBS), Told([], [], [])
    end_s, cpus, mem_mib = 0, ASKED_CPUS, ASKED_MIB

    def granted(chain: Estimator, asked: int) -> int:
        evidence = history.evidence(ASKED, 1)
        estimate = None if evidence is None else chain(Sight(ASKED, evidence, history.user_habit(ASKED)))
        return asked if estimate is None else min(asked, max(1, math.ceil(estimate.upper)))

    for number, work in enumerate(family):
        if number % array == 0:
            cpus, mem_mib = granted(chains.cores, ASKED_CPUS), granted(chains.memory, ASKED_MIB)
        runs_s = work.runs_s(cpus, mem_mib)
        end_s += round(runs_s) + 60
        told.cpus.append(cpus)
        told.mem_mib.append(mem_mib)
        told.times.append(runs_s / work.runs_s(ASKED_CPUS, ASKED_MIB))
        history.join(ASKED, ended(number, end_s, cpus, mem_mib, work, round(runs_s)))
    return told


def ended(number: int, end_s: int, cpus: int, mem_mib: int, work: Work, wall_s: int) -> PastJob:
    """Return a job as accounting records it."""
    return PastJob(
        end_s=end_s, num_tasks=1, asked_cpus=ASKED_CPUS, asked_mem_mib=ASKED_MIB, asked_gpus=None, complete=True,
        mem_mib=SEEN_MIB, mem_at_least=False, cores_per_task=(work.serial + work.shared) / max(wall_s, 1),
        wall_s=wall_s, gpus=None, gpu_source="", script="", job_id=number + 1, given_cpus=cpus, given_mem_mib=mem_mib,
    )  # fmt: skip


# The function that draws a kind's jobs, and how many are submitted at a time.
KINDS: dict[str, tuple[Callable[[random.Random, int], list[Work]], int]] = {
    "busy by turns": (by_turns, 1),
    "reads again": (reads_again, 1),
    "one thread": (one_thread, 1),
    "all threads busy": (all_threads, 1),
    "fewer threads": (changed, 1),
    "busy by turns, arrays": (by_turns, 150),
    "reads again, arrays": (reads_again, 150),
    "one thread, arrays": (one_thread, 150),
}


def row(kind: str, chains: str, families: Sequence[Told]) -> dict[str, object]:
    """Return the result of all jobs of a kind: shares of jobs, of run time and of requests, in per cent."""
    times = [each for told in families for each in told.times]
    cpus = [each for told in families for each in told.cpus]
    mem_mib = [each for told in families for each in told.mem_mib]
    return {
        "families": kind,
        "slowed.py": chains,
        "run longer by (mean) %": round(100 * (statistics.fmean(times) - 1), 1),
        "by a tenth and more, % of jobs": round(100 * sum(each > NOTED for each in times) / len(times), 1),
        "in families, %": round(
            100 * sum(statistics.fmean(told.times[-100:]) > NOTED for told in families) / len(families), 1
        ),
        "CPUs granted, %": round(100 * statistics.fmean(cpus) / ASKED_CPUS, 1),
        "memory granted, %": round(100 * statistics.fmean(mem_mib) / ASKED_MIB, 1),
    }


def main() -> None:
    """Print a row for each kind of family and chain."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--families", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=300, help="of those in arrays twenty times as many")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rows = []
    for kind, (draw, array) in KINDS.items():
        random_ = random.Random(args.seed)
        families = [draw(random_, args.jobs * (1 if array == 1 else 20)) for _ in range(args.families)]
        rows += [
            row(kind, name, [run(family, chains, array) for family in families])
            for name, chains in CHAINS.items()
        ]
    print(pandas.DataFrame(rows).to_string(index=False))


if __name__ == "__main__":
    main()
