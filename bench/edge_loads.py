"""Jobs with deadlines, a cloud, and others' servers that are idle at times: from public traces. Semi-synthetic.

No trace has all of it. Arrivals, run times, GPUs and deadlines are those of Philly with the deadlines that Chronus
(S-Lab) assigned. How much slower a job runs on a K80 than on a V100 was measured on other training jobs (Gavel), and is
drawn for each user's model. When owners use their servers is derived from the GPUs that virtual clusters of SenseTime's
Earth (Helios) kept busy each minute: the n-th server of eight GPUs is its owner's while more than 8 n are in use.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy
import pandas

from models.scheduling.room import MILLI, Floats
from models.simulation.devices import Profile
from models.simulation.nodes import HOUR_S, Cluster, Hours, Node, cluster_of
from models.simulation.workload import Flags, Workload, workload

JOBS = Path("queue") / "chronus_philly_slo.csv.gz"
THROUGHPUTS = Path("gpu") / "gavel_oracle_throughputs.json.gz"
OWNERS = ("vc3sl", "vc6YE", "vc8Sj", "vcJLV", "vcJkd", "vcLJZ", "vcMod", "vcSoL")
CLOUD, EDGE = "v100", "k80"
GPUS_A_NODE = 8
CLOUD_NODES = 8
MINUTE_H = 1 / 60
# The month's first days show owners' habits; the simulated hours are in the rest.
TAUGHT_H, MONTH_H = 14 * 24.0, 31 * 24.0
LONGEST_H = 48.0
# The error of expected run times: the spread of their logarithm.
ERROR = 0.2


class EdgeLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs, the speed of their kinds on each device, their expected run times on the fastest, and the cluster."""

    jobs: Workload
    profiles: tuple[Profile, ...]
    expected_s: Floats
    cluster: Cluster


def owners_file(name: str) -> Path:
    """Return the file with a virtual cluster's minutes."""
    return Path("queue") / f"helios_earth_{name}.csv.gz"


def read_edge_load(traces: Path, load: float, seed: int, patience: float = 1.0) -> EdgeLoad:
    """Return a load that asks for this share of the cloud, if all ran there; a seed draws jobs, kinds and days.

    `patience` stretches the time that deadlines leave beyond the run.
    """
    draw = numpy.random.default_rng(seed)
    table = pandas.read_csv(traces / JOBS)
    table = table[(table.num_gpu > 0) & (table.num_gpu <= GPUS_A_NODE)]
    asked = float((table.num_gpu * table.duration).sum()) / float(table.submit_time.max())
    share = load * CLOUD_NODES * GPUS_A_NODE / asked
    table = table[draw.random(len(table)) < share].sort_values(["submit_time", "job_id"])
    profiles = read_profiles(traces)
    kind_of: dict[tuple[str, str], int] = {}
    for who in zip(table.user, table.model_name, strict=True):
        kind_of.setdefault(who, int(draw.integers(len(profiles))))
    kinds = [kind_of[who] for who in zip(table.user, table.model_name, strict=True)]
    submit_s = table.submit_time.to_numpy(dtype=numpy.float64)
    run_s = table.duration.to_numpy(dtype=numpy.float64)
    spare_s = table.expect_time_list.to_numpy(dtype=numpy.float64) - run_s
    jobs = workload(
        submit_s,
        run_s,
        [[gpus * MILLI, 0, gpus * MILLI] for gpus in table.num_gpu.tolist()],
        deadline_s=submit_s + run_s + patience * spare_s,
        kind=kinds,
    )
    expected_s = run_s * numpy.exp(draw.normal(0, ERROR, len(run_s)))
    start_h = float(draw.uniform(TAUGHT_H, MONTH_H - LONGEST_H))
    return EdgeLoad(jobs=jobs, profiles=profiles, expected_s=expected_s, cluster=_cluster(traces, start_h))


def read_profiles(traces: Path) -> tuple[Profile, ...]:
    """Return each of Gavel's jobs' speed on a K80, relative to a V100."""
    with gzip.open(traces / THROUGHPUTS) as file:
        measured = json.load(file)
    return tuple(
        {CLOUD: 1.0, EDGE: measured[EDGE][name]["null"] / measured[CLOUD][name]["null"]}
        for name in measured[CLOUD]
    )


def _cluster(traces: Path, start_h: float) -> Cluster:
    node = Node(cpus=GPUS_A_NODE, mem_mib=0, gpus=GPUS_A_NODE)
    nodes = [msgspec.structs.replace(node, device=CLOUD, count=CLOUD_NODES)]
    nodes += [
        msgspec.structs.replace(node, device=EDGE, owner=owner_spans(had, start_h))
        for had in had_by_owners(traces)
    ]
    return cluster_of(nodes)


def had_by_owners(traces: Path) -> Iterator[Flags]:
    """Yield for each server the minutes of the month in which its owner uses it."""
    for name in OWNERS:
        table = pandas.read_csv(traces / owners_file(name))
        for server in range(int(table.total_gpu_num.iloc[0]) // GPUS_A_NODE):
            yield (table.running_gpu_num > GPUS_A_NODE * server).to_numpy()


def owner_spans(had: Flags, start_h: float) -> tuple[Hours, ...]:
    """Return the times at which an owner uses a server, in hours after the start."""
    edges = numpy.flatnonzero(numpy.diff(numpy.concatenate([[False], had, [False]]).astype(numpy.int8)))
    hours = (edges * MINUTE_H - start_h).tolist()
    # A server whose owner never came is lent all the same; the owner may come after the month.
    return tuple(zip(hours[::2], hours[1::2], strict=True)) or ((MONTH_H, math.inf),)


def horizon_s(load: EdgeLoad) -> float:
    """Return when the last job comes."""
    return float(load.jobs.submit_s[-1]) if len(load.jobs) else HOUR_S
