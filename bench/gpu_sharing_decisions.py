"""What one decision of the pairing costs on a large cluster, and what its pairs gain, compared with plain greedy."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
import numpy

from models.gpus.interference import Interference, Pair
from models.gpus.pairing import Job, Round, Terms, gains, pair

HOSTS, WAITING, DECISIONS = 1000, 3000, 50
HOUR_S = 3600.0
Pairs = list[tuple[Job, Job]]


class Cluster(msgspec.Struct, frozen=True):
    """The jobs on each GPU, and the waiting jobs."""

    gpus: list[list[Job]]
    waiting: list[Job]


def decision_rows(known: Interference) -> list[dict[str, object]]:
    """Return decisions' costs, in CPU time, each the first after something was learned, and gains, in GPUs' work.

    All jobs wait for GPUs that have one job each; in the slot, GPUs have two.
    """
    alone = [made_up(known, 1, seed) for seed in range(DECISIONS)]
    shared = [made_up(known, 2, seed) for seed in range(DECISIONS)]
    return [
        _row("greedy, each the best host left", lambda cluster: greedy(cluster, known), alone, known),
        _row("pairing", lambda cluster: paired(pair(cluster.gpus, cluster.waiting, known)), alone, known),
        _row(
            "pairing in a slot",
            lambda cluster: paired(pair(cluster.gpus, cluster.waiting, known, moving=True)),
            shared,
            known,
        ),
    ]


def _row(
    name: str, decide: Callable[[Cluster], Pairs], clusters: list[Cluster], known: Interference
) -> dict[str, object]:
    gain, took_ms, gained = gains(known), [], []
    one, other = known.kinds[:2]
    for cluster in clusters:
        # A moment of something known already, so that it is computed again.
        known.learn(Pair(kind=one, beside=other, speed=known.estimate(one, other).speed, seconds=1e-3))
        since = time.process_time()
        pairs = decide(cluster)
        took_ms.append(1000 * (time.process_time() - since))
        gained.append(sum(gain[known.number(guest.kind), known.number(host.kind)] for guest, host in pairs))
    p50, p99 = numpy.quantile(took_ms, (0.5, 0.99))
    return {
        "way": name,
        "p50 (CPU ms)": round(float(p50), 1),
        "p99 (CPU ms)": round(float(p99), 1),
        "new pairs gain": round(float(numpy.mean(gained)), 1),
    }


def made_up(known: Interference, on_each: int, seed: int) -> Cluster:
    """Return GPUs with this number of jobs on each, two only if they fit together, and waiting jobs."""
    draw = numpy.random.default_rng(seed)
    size = len(known.kinds)
    hosts = draw.integers(0, size, HOSTS)
    ran_s = draw.exponential(HOUR_S, HOSTS)
    gpus = [[_job(known, number, int(kind), ran_s=float(ran_s[number]))] for number, kind in enumerate(hosts)]
    if on_each > 1:
        for number, kind in enumerate(hosts):
            fitting = numpy.flatnonzero(known.fits[kind])
            if not fitting.size:
                continue
            second = int(draw.choice(fitting))
            gpus[number].append(_job(known, HOSTS + number, second, ran_s=float(ran_s[number]) / 2))
    kinds, waited_s = draw.integers(0, size, WAITING), draw.exponential(HOUR_S, WAITING)
    waiting = [
        _job(known, 2 * HOSTS + number, int(kind), waited_s=float(waited_s[number]))
        for number, kind in enumerate(kinds)
    ]
    return Cluster(gpus, waiting)


def _job(known: Interference, number: int, kind: int, waited_s: float = 0.0, ran_s: float = 0.0) -> Job:
    return Job(job_id=number, kind=known.kinds[kind], waited_s=waited_s, ran_s=ran_s)


def paired(found: Round) -> Pairs:
    """Return the new pairs."""
    return [(choice.job, choice.beside) for choice in found.choices if choice.beside is not None]


def greedy(cluster: Cluster, known: Interference) -> Pairs:
    """Return pairs made one after the other: the longest-waiting job gets the best host, the next one the best left."""
    gain = gains(known)
    hosts = [jobs[0] for jobs in cluster.gpus]
    of_hosts = numpy.array([known.number(host.kind) for host in hosts])
    left = numpy.ones(len(hosts), dtype=numpy.bool_)
    pairs: Pairs = []
    for job in sorted(cluster.waiting, key=lambda one: (-one.waited_s, one.job_id)):
        if not left.any():
            break
        values = numpy.where(left, gain[known.number(job.kind), of_hosts], -1.0)
        best = int(values.argmax())
        if values[best] >= Terms().least_gain:
            left[best] = False
            pairs.append((job, hosts[best]))
    return pairs
