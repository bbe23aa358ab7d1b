"""A queue of mixed jobs for a real Slurm, minutes instead of days: what is submitted when. Pure.

The population is the same for all queues: families (an account's script), each with its own median run time,
spread, width and memory, the popular ones far more frequent than the rest. A queue draws jobs from it. Limits are
drawn as users set them (Mu'alem, Feitelson, TPDS 2001: run time over limit uniform on 0..1, rounded up to common
values, some the longest there is), except that Slurm's shortest limit is a minute.
"""

from __future__ import annotations

import random
from typing import NamedTuple

ACCOUNTS = {"ann": 40, "ben": 30, "cho": 20, "dee": 8, "eve": 2}
NODES, NODE_CPUS = 4, 16
FAMILIES = 24
# Of several draws, the one in which accounts and widths are spread best.
POPULATION = "three"
COMMON_LIMITS_MIN = (1, 2, 3, 5, 10, 15, 20, 30, 45, 60)
LONGEST_SHARE = 0.15
LEAST_OF_LIMIT = 0.02
# Seconds: the median of the families' medians, the spread of their logarithms, and the longest job.
MEDIAN_S, SPREAD, LONGEST_S = 12.0, 1.0, 120.0
# How far run times within a family spread: most families repeat themselves, some vary widely.
STEADY, ERRATIC, ERRATIC_SHARE = 0.3, 1.0, 0.25
# CPUs with their shares; jobs larger than one node are spread over whole nodes.
WIDTHS = {1: 0.25, 2: 0.2, 4: 0.25, 8: 0.16, 16: 0.1, 32: 0.04}
MEMORY_MIB = {200: 0.5, 2000: 0.25, 8000: 0.15, 24_000: 0.1}
# The share of jobs that come only once, about which nothing can be known.
UNKNOWN_SHARE = 0.1
# The share that is pending from the start; the rest comes one after another.
AT_ONCE = 0.5
# Seconds within which those others come.
SPELL_S = 90.0


class Family(NamedTuple):
    """Similar jobs: seconds are those of the median, `spread` is that of their logarithm."""

    name: str
    account: str
    seconds: float
    spread: float
    cpus: int
    mem_mib: int


class Job(NamedTuple):
    """A job of a queue: when it is submitted after the start (s), how long it runs, and what it asks for."""

    name: str
    account: str
    at_s: float
    seconds: float
    limit_min: int
    cpus: int
    mem_mib: int

    @property
    def nodes(self) -> int:
        """The number of nodes over which it is spread."""
        return -(-self.cpus // NODE_CPUS)

    @property
    def options(self) -> tuple[str, ...]:
        """The options for sbatch."""
        return (
            f"--job-name={self.name}", f"--account={self.account}", f"--time={self.limit_min}", f"--mem={self.mem_mib}",
            f"--nodes={self.nodes}", f"--ntasks={self.nodes}", f"--cpus-per-task={self.cpus // self.nodes}",
            f"--wrap=sleep {self.seconds:.1f}",
        )  # fmt: skip


def population() -> list[Family]:
    """Return the families, always the same, the most popular one first."""
    draw = random.Random(POPULATION)
    return [family(f"family-{letters(number)}", draw) for number in range(FAMILIES)]


def family(name: str, draw: random.Random) -> Family:
    """Return a new family."""
    return Family(
        name,
        draw.choices(list(ACCOUNTS), list(ACCOUNTS.values()))[0],
        min(LONGEST_S, MEDIAN_S * draw.lognormvariate(0.0, SPREAD)),
        ERRATIC if draw.random() < ERRATIC_SHARE else STEADY,
        draw.choices(list(WIDTHS), list(WIDTHS.values()))[0],
        draw.choices(list(MEMORY_MIB), list(MEMORY_MIB.values()))[0],
    )


def queue(full_s: float, seed: int) -> list[Job]:
    """Return a queue that fills the cluster for `full_s` seconds, in the order of submission.

    Jobs that are not there from the start come within SPELL_S.
    """
    draw = random.Random(seed)
    known = population()
    popularity = [1 / (place + 3) for place in range(len(known))]
    found: list[Job] = []
    while sum(job.cpus * job.seconds for job in found) < full_s * NODES * NODE_CPUS:
        fresh = draw.random() < UNKNOWN_SHARE
        name = f"new-{letters(seed)}-{letters(len(found))}"
        found.append(job_of(family(name, draw) if fresh else draw.choices(known, popularity)[0], draw))
    at_once = int(AT_ONCE * len(found))
    later = sorted(draw.uniform(0.0, SPELL_S) for _ in found[at_once:])
    return [job._replace(at_s=at_s) for job, at_s in zip(found, [0.0] * at_once + later, strict=True)]


def job_of(one: Family, draw: random.Random) -> Job:
    """Return a job of a family."""
    seconds = min(LONGEST_S, max(1.0, one.seconds * draw.lognormvariate(0.0, one.spread)))
    return Job(
        one.name, one.account, 0.0, seconds, limit_min(seconds, draw), one.cpus, one.mem_mib
    )  # fmt: skip


def limit_min(seconds: float, draw: random.Random) -> int:
    """Return the limit that a user sets for a job with this run time; Slurm never cuts the job short."""
    estimate_min = seconds / draw.uniform(LEAST_OF_LIMIT, 0.9) / 60
    if draw.random() < LONGEST_SHARE:
        return COMMON_LIMITS_MIN[-1]
    return next((limit for limit in COMMON_LIMITS_MIN if limit >= estimate_min), COMMON_LIMITS_MIN[-1])


def letters(number: int) -> str:
    """Return a number in letters: families are distinguished by names without digits."""
    return "".join(chr(ord("a") + int(digit)) for digit in str(number))
