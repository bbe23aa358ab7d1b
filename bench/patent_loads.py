"""Days of demand to plan: of Philly's virtual clusters, or drawn from a seed if there is no trace.

A consumer's volume of a day is the sum of the GPUs that its jobs of that day ask for; its duration is the GPU
seconds that these jobs take. Jobs of one day are served in that day's plan; none is left over from the day before.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy
import pandas

from models.scheduling.checks import Floats

PHILLY = Path("queue") / "philly_first_half.csv.gz"
# The trace thins out before its first full week, and its last day is cut off: few consumers have any jobs then.
LEAST_CONSUMERS = 5
SEEDED_DAYS, SEEDED_CONSUMERS = 28, 40
DAY_S = 86_400


class Day(msgspec.Struct, frozen=True, kw_only=True):
    """The consumers of a day in the order of their first jobs; GPUs requested, and GPU seconds, of each."""

    name: str
    consumers: tuple[str, ...]
    volumes: Floats
    gpu_s: Floats


def philly_days(traces: Path) -> list[Day]:
    """Return the full days of Philly's trace with enough virtual clusters, in order."""
    jobs = pandas.read_csv(traces / PHILLY, parse_dates=["timestamp"])
    jobs["day"] = jobs["timestamp"].dt.strftime("%Y-%m-%d")
    jobs = jobs[jobs["day"] < jobs["day"].max()]
    days = []
    for name, of_day in jobs.sort_values("timestamp", kind="stable").groupby("day"):
        sums = of_day.groupby("cluster", sort=False)[["num_gpus", "gpu_time"]].sum()
        if len(sums) >= LEAST_CONSUMERS:
            days.append(
                Day(
                    name=str(name),
                    consumers=tuple(map(str, sums.index)),
                    volumes=sums["num_gpus"].to_numpy(dtype=numpy.float64),
                    gpu_s=sums["gpu_time"].to_numpy(dtype=numpy.float64),
                )
            )
    return days


def seeded_days(seed: int) -> list[Day]:
    """Return days of consumers of very different sizes, who come in random order, with about an hour per GPU."""
    generator = numpy.random.default_rng(seed)
    sizes = generator.lognormal(3, 1.5, SEEDED_CONSUMERS)
    days = []
    for number in range(SEEDED_DAYS):
        order = generator.permutation(SEEDED_CONSUMERS)
        volumes = numpy.ceil(sizes * generator.lognormal(0, 0.6, SEEDED_CONSUMERS))[order]
        days.append(
            Day(
                name=f"day {number + 1}",
                consumers=tuple(f"c{consumer}" for consumer in order),
                volumes=volumes,
                gpu_s=volumes * 3600 * generator.lognormal(0, 0.5, SEEDED_CONSUMERS),
            )
        )
    return days
