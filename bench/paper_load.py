"""The load of the resource-demand paper's experiments, made up from what it publishes. Seeded; it contains no trace.

Yang, Hong, Tang: AI computing power cluster scheduling based on task resource demand prediction. Published, and
used as is: the mean use of each of four types of job (its table 1), the mixes, Poisson arrivals up to 70 jobs an
hour over 12 h, and a cluster of 384 cores, 2 TB and 32 GPUs. Inferred: mean run times, as MAE / WMAPE of its table
3, read as hours. ASSUMED, since nothing is published: four equal servers; graph learning's run time; by how much
users request more than they use (CPU most for CTR, then ResNet, as the paper says; such that idle resources are a
third of the requests, of which the paper's −28.5 % is most); what run time depends on; that users repeat their
jobs. Forty users are drawn, so that their means are within a fifth of the published ones.
"""

from __future__ import annotations

import msgspec
import numpy

from models.run_time.regression import Jobs
from models.run_time.resources import CORES, GPU_PCT, MEM_MIB
from models.scheduling.room import Floats
from models.simulation.nodes import Cluster, Node, cluster_of
from models.simulation.workload import Workload, workload

HOUR_S = 3600.0
HOURS = 12.0
MIB_A_GB = 1000**3 / 1024**2
RESOURCES = (CORES, GPU_PCT, MEM_MIB)
USERS = 40
# How much users' jobs differ from other users', and a user's own from each other; sigmas of logarithms.
USER_SIGMA, JOB_SIGMA, RUN_SIGMA = 0.3, 0.1, 0.12


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """A type of job: mean use and run time, the ratio of requests to use, and the law of run time.

    `law` has the exponents with which use above a user's mean lengthens the run, in the order of RESOURCES.
    """

    name: str
    cores: float
    gpu_pct: float
    mem_gb: float
    run_h: float
    over_asked: tuple[float, float, float]
    law: tuple[float, float, float]


KINDS = (
    Kind(
        name="ResNet",
        cores=2.1,
        gpu_pct=30.2,
        mem_gb=19.9,
        run_h=1.45 / 0.15,
        over_asked=(1.6, 1.2, 1.4),
        law=(0, 0.5, 0.5),
    ),
    Kind(
        name="NMT",
        cores=10.6,
        gpu_pct=34.1,
        mem_gb=10.0,
        run_h=0.75 / 0.11,
        over_asked=(1.15, 1.2, 1.4),
        law=(0.4, 0.5, 0),
    ),
    Kind(
        name="GraphLearn",
        cores=11.9,
        gpu_pct=0.8,
        mem_gb=9.5,
        run_h=2.0,
        over_asked=(1.15, 1.2, 1.4),
        law=(0.6, 0, 0.3),
    ),
    Kind(
        name="CTR",
        cores=3.9,
        gpu_pct=6.8,
        mem_gb=2.8,
        run_h=0.16 / 0.13,
        over_asked=(2.0, 1.2, 1.4),
        law=(0, 0.4, 0.5),
    ),
)
# All users request the same multiple of what they use, or each a different one with the same mean (exponential
# above 1).
ALIKE, DIFFERENT = HABITS = ("alike", "each otherwise")
# ResNet : NMT : GraphLearn : CTR.
MIXES = {"5:15:15:65": (5, 15, 15, 65), "40:30:20:10": (40, 30, 20, 10)}


def paper_cluster() -> Cluster:
    """Return 384 cores, 2 TB and 32 GPUs, on four servers."""
    return cluster_of([Node(cpus=96, mem_mib=round(500 * MIB_A_GB), gpus=8, count=4)])


def paper_load(
    arrivals_s: Floats, mix: tuple[int, ...], draw: numpy.random.Generator, habits: str = ALIKE
) -> Workload:
    """Return one job for each arrival; a user's number identifies the user, a kind's number is its place in KINDS."""
    jobs = len(arrivals_s)
    # The users are the same in every load, whatever else is drawn.
    people = numpy.random.default_rng(USERS)
    levels = people.normal(0, USER_SIGMA, (USERS, len(KINDS), 3))
    shyness = (
        people.exponential(1.0, (USERS, len(KINDS), 1)) if habits == DIFFERENT else numpy.ones((1, 1, 1))
    )
    over_asked = 1 + shyness * (numpy.array([each.over_asked for each in KINDS]) - 1)
    kind = draw.choice(len(KINDS), jobs, p=numpy.array(mix) / sum(mix))
    user = draw.integers(0, USERS, jobs)
    # A mean of one, whatever the spread.
    level = levels[user, kind] - USER_SIGMA**2 / 2
    own = draw.normal(-(JOB_SIGMA**2) / 2, JOB_SIGMA, (jobs, 3))
    means = numpy.array([(each.cores, each.gpu_pct, each.mem_gb * MIB_A_GB) for each in KINDS])
    factors = numpy.exp(level + own)
    used = means[kind] * factors
    laws = numpy.array([each.law for each in KINDS])[kind]
    noise = numpy.exp(draw.normal(-(RUN_SIGMA**2) / 2, RUN_SIGMA, jobs))
    run_s = numpy.array([each.run_h for each in KINDS])[kind] * HOUR_S * (factors**laws).prod(axis=1) * noise
    # Requests are a habit: the same for all of a user's jobs of a kind, above nearly all that they use.
    over = numpy.broadcast_to(over_asked, (USERS, len(KINDS), 3))[user, kind]
    asked = numpy.ceil(numpy.maximum(means[kind] * numpy.exp(level) * over, used))
    units = numpy.array([1000, 10, 1])
    in_units = [(numpy.ceil(rows * units)).astype(numpy.int64)[:, [0, 2, 1]] for rows in (asked, used)]
    return workload(arrivals_s, run_s, in_units[0], used=in_units[1], user=user, kind=kind)


def past_jobs(load: Workload, kind: int) -> Jobs:
    """Return the use and run times of a kind's jobs, in the form of a run-time regression."""
    rows = load.used[load.kind == kind].astype(numpy.float64)
    amounts = numpy.stack([rows[:, 0] / 1000, rows[:, 2] / 10, rows[:, 1]], axis=1)
    return Jobs(resources=RESOURCES, amounts=amounts, run_s=load.run_s[load.kind == kind])
