"""What the benchmark of GPU sharing runs: true speeds of pairs by Gavel, arrivals and run times by Philly.

The speeds alone and side by side of 26 kinds of training jobs were measured by Gavel on two GPUs; when jobs of one GPU
came, and how long they ran, is Philly's. No public table has both, so which kind a job is of is drawn, each alike:
the load is semi-synthetic. Arrivals are stretched or squeezed to the wanted load.
"""

from __future__ import annotations

import csv
import gzip
from datetime import datetime
from pathlib import Path

import msgspec
import numpy

from models.gpus.interference import Pair
from models.scheduling.room import Floats, Mask
from models.simulation.shared_gpus import Load

GAVEL, PHILLY = "gpu/gavel_oracle_throughputs.json.gz", "queue/philly_first_half.csv.gz"
GPU_TYPES = ("v100", "k80")
# Philly's jobs that ended sooner failed or were tests.
LEAST_RUN_S = 60.0


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The kinds of jobs, and `speed[a, b]` of a beside b over its speed alone; 0 where both did not fit."""

    kinds: tuple[str, ...]
    speed: Floats

    def pairs(self, known: Mask) -> list[Pair]:
        """Return the pairs that are known; that two do not fit is known of all, from what each uses of memory."""
        return [
            Pair(kind=self.kinds[one], beside=self.kinds[other], speed=float(self.speed[one, other]))
            for one, other in numpy.argwhere(known | (self.speed == 0))
        ]

    def some(self, share: float, seed: int) -> Mask:
        """Return which pairs are known, a share of all that is drawn; of a pair both speeds are."""
        size = len(self.kinds)
        drawn = numpy.triu(numpy.random.default_rng((seed, 7)).random((size, size)) < share)
        return numpy.asarray(drawn | drawn.T)

    def use_of_twins(self) -> Floats:
        """Return how busy a kind keeps a GPU, as its twin beside it tells: two of u each run at 1 / 2u.

        The table has no utilisation. A kind whose twin does not fit is taken for one that keeps it busy.
        """
        twin = numpy.diag(self.speed)
        use: Floats = numpy.minimum(1 / (2 * numpy.where(twin > 0, twin, 0.5)), 1.0)
        return use


def measured(traces: Path, gpu: str) -> Measured:
    """Read Gavel's table of a GPU; each pair was measured twice, and the mean of both is taken."""
    table = msgspec.json.decode(gzip.decompress((traces / GAVEL).read_bytes()))[gpu]
    kinds = tuple(sorted(table))
    speed = [
        [(table[one][other][0] + table[other][one][1]) / 2 / table[one]["null"] for other in kinds]
        for one in kinds
    ]
    return Measured(kinds=kinds, speed=numpy.minimum(numpy.array(speed), 1.0))


def philly(traces: Path) -> tuple[Floats, Floats]:
    """Return arrivals and run times of Philly's jobs of one GPU, by arrival (seconds)."""
    with gzip.open(traces / PHILLY, "rt", newline="") as file:
        rows = sorted(
            (datetime.fromisoformat(row["timestamp"] + "+00:00").timestamp(), float(row["duration"]))
            for row in csv.DictReader(file)
            if row["num_gpus"] == "1" and float(row["duration"]) >= LEAST_RUN_S
        )
    submit_s, run_s = numpy.array(rows).T
    return submit_s, run_s


def drawn_load(jobs: tuple[Floats, Floats], number: int, kinds: int, busy_s: float, seed: int) -> Load:
    """Return so many jobs in a row from a place that is drawn, of kinds that are drawn.

    They come so densely that a GPU second of work alone arrives in each `busy_s` (1 / (GPUs · load)).
    """
    draw = numpy.random.default_rng(seed)
    first = int(draw.integers(0, len(jobs[0]) - number))
    submit_s, run_s = (column[first : first + number] for column in jobs)
    since_s = submit_s - submit_s[0]
    squeezed = float(run_s.sum()) * busy_s / float(since_s[-1])
    return Load(submit_s=since_s * squeezed, alone_s=run_s, kind=draw.integers(0, kinds, number))
