"""The load for the benchmark of GPU sharing: true speeds of pairs by Gavel, arrivals and run times by Philly.

Gavel measured the speeds of 26 kinds of training jobs, alone and side by side, on two GPUs. When one-GPU jobs came,
and how long they ran, is Philly's. No public table has both, so each job's kind is drawn uniformly: the load is
semi-synthetic. Arrivals are stretched or compressed to the wanted load.
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
# Philly's shorter jobs failed or were tests.
LEAST_RUN_S = 60.0


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The kinds of jobs, and `speed[a, b]`: a's speed next to b over its speed alone; 0 if both do not fit."""

    kinds: tuple[str, ...]
    speed: Floats

    def pairs(self, known: Mask) -> list[Pair]:
        """Return the known pairs; that two do not fit is always known, from their memory use."""
        return [
            Pair(kind=self.kinds[one], beside=self.kinds[other], speed=float(self.speed[one, other]))
            for one, other in numpy.argwhere(known | (self.speed == 0))
        ]

    def some(self, share: float, seed: int) -> Mask:
        """Return a random share of pairs to be known; both speeds of such a pair are."""
        size = len(self.kinds)
        drawn = numpy.triu(numpy.random.default_rng((seed, 7)).random((size, size)) < share)
        return numpy.asarray(drawn | drawn.T)

    def use_of_twins(self) -> Floats:
        """Return how busy a kind keeps a GPU, derived from running next to its twin: two of use u each run at 1 / 2u.

        The table has no utilisation. A kind whose twin does not fit is assumed to keep the GPU busy.
        """
        twin = numpy.diag(self.speed)
        use: Floats = numpy.minimum(1 / (2 * numpy.where(twin > 0, twin, 0.5)), 1.0)
        return use


def measured(traces: Path, gpu: str) -> Measured:
    """Read Gavel's table for a GPU; each pair was measured twice, and the mean of both is used."""
    table = msgspec.json.decode(gzip.decompress((traces / GAVEL).read_bytes()))[gpu]
    kinds = tuple(sorted(table))
    speed = [
        [(table[one][other][0] + table[other][one][1]) / 2 / table[one]["null"] for other in kinds]
        for one in kinds
    ]
    return Measured(kinds=kinds, speed=numpy.minimum(numpy.array(speed), 1.0))


def philly(traces: Path) -> tuple[Floats, Floats]:
    """Return arrivals and run times of Philly's one-GPU jobs, by arrival (seconds)."""
    with gzip.open(traces / PHILLY, "rt", newline="") as file:
        rows = sorted(
            (datetime.fromisoformat(row["timestamp"] + "+00:00").timestamp(), float(row["duration"]))
            for row in csv.DictReader(file)
            if row["num_gpus"] == "1" and float(row["duration"]) >= LEAST_RUN_S
        )
    submit_s, run_s = numpy.array(rows).T
    return submit_s, run_s


def drawn_load(jobs: tuple[Floats, Floats], number: int, kinds: int, busy_s: float, seed: int) -> Load:
    """Return `number` consecutive jobs from a random place, with random kinds.

    They are so dense that one GPU second of work alone arrives in each `busy_s` (1 / (GPUs · load)).
    """
    draw = numpy.random.default_rng(seed)
    first = int(draw.integers(0, len(jobs[0]) - number))
    submit_s, run_s = (column[first : first + number] for column in jobs)
    since_s = submit_s - submit_s[0]
    squeezed = float(run_s.sum()) * busy_s / float(since_s[-1])
    return Load(submit_s=since_s * squeezed, alone_s=run_s, kind=draw.integers(0, kinds, number))
