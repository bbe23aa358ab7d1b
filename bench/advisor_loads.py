"""Three public loads under pressure, for the advisor in simulation: MIT SuperCloud, Philly and Kabré. None is a site's.

All are semi-synthetic, because no public table has requests, limits, users and accounts of one cluster together:

- MIT (slurmdbd rows of February and March 2021): arrivals, run times, CPUs, memory, GPUs, users and limits are real.
  It names no account: users are distributed over `MIT_ACCOUNTS` of them. A job without a limit has Slurm's year.
- Philly (2017): arrivals, run times, GPUs and virtual clusters, which are the accounts, are real. It names no user
  and no limit: a user is a virtual cluster with a number of GPUs, limits are drawn as users set them
  (`drawn_limits_s`).
- Kabré (sacct of 2024): arrivals, CPUs, memory and limits are real; run times are CPU time over the CPUs that the
  partition allocates. It names no user and no account: jobs with the same request count as one user's, the hardware
  (the partition's first word) is the account. Its five kinds of nodes are one here.

A window of each is taken. Jobs that run longer than the window, or need more than a quarter of the cluster, are
left out. The cluster has so many nodes that the jobs ask for `pressure` times its capacity of the scarcest resource
in the window: at the real size, of which the traces hold only a part of the jobs, no job would wait.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy
import pandas

from accounting.errors import ModelError
from models.scheduling.room import MILLI, Floats, Ints
from models.simulation.nodes import Cluster, Node, cluster_of
from models.simulation.workload import Workload, workload

HOUR_S, DAY_S, YEAR_S = 3600.0, 86_400.0, 365 * 86_400.0
MIT_ACCOUNTS = 12
LARGEST_SHARE = 0.25
# Slurm's numbers for "no value" and "infinite"; its backfill takes INFINITE as a year.
NO_LIMIT = 4_294_967_294
# What users write as limits, and the share that writes the longest one (Tsafrir, Etsion, Feitelson: Modeling user
# runtime estimates, JSSPP 2005: twenty values cover nine tenths of all jobs, a large share of them the maximum).
COMMON_LIMITS_S: tuple[float, ...] = (
    *(minutes * 60.0 for minutes in (5, 10, 15, 20, 30)),
    *(hours * HOUR_S for hours in (1, 2, 3, 4, 5, 6, 8, 10, 12, 18, 24, 36, 48, 72, 96, 120, 168)),
)
LONGEST_SHARE = 0.15
# On nodes with these names a job gets all threads; elsewhere what it asked for, in whole cores of two.
WHOLE_NODES = {"nu": 256, "nukwa": 48}
SHARED = ("nukwa-debug", "nukwa-v100")

Table = pandas.DataFrame
Column = pandas.Series


class Load(msgspec.Struct, frozen=True):
    """A load and its cluster, which is under pressure; a job's kind is its account."""

    jobs: Workload
    cluster: Cluster


class Source(msgspec.Struct, frozen=True):
    """Where a load comes from: its file, its window, its kind of node, and how to read it (file, seed)."""

    file: str
    since: str
    days: float
    node: Node
    read: Callable[[Path, int], Table]


def read_load(
    name: str,
    traces: Path,
    *,
    pressure: float,
    seed: int,
    days: float,
    since: str,
    shake_s: float = 0.0,
) -> Load:
    """Return a load of SOURCES; `days` 0 and `since` '' mean the load's own window.

    Each job of the window comes up to `shake_s` seconds later, drawn by the seed. ModelError if the trace is missing.
    """
    source = SOURCES[name]
    file = traces / source.file
    if not file.is_file():
        raise ModelError(
            f"there is no trace {file}; set RIGHTSIZER_TRACES to the folder of the public traces"
        )
    table = source.read(file, seed)
    since_s = pandas.Timestamp(since or source.since).timestamp()
    window_s = (days or source.days) * DAY_S
    table = table[(table.submit_s >= since_s) & (table.submit_s < since_s + window_s)]
    later_s = numpy.random.default_rng(seed).uniform(0.0, shake_s, len(table))
    table = table.assign(submit_s=table.submit_s + later_s)
    table = table[(table.run_s > 0) & (table.run_s <= window_s)].sort_values("submit_s", kind="stable")
    table, nodes = _fitted(table, source.node, window_s, pressure)
    jobs = workload(
        (table.submit_s - since_s).to_numpy(),
        table.run_s.to_numpy(dtype=numpy.float64),
        _asked(table),
        limit_s=numpy.maximum(table.limit_s.to_numpy(), table.run_s.to_numpy()),
        user=pandas.factorize(table.user)[0],
        kind=pandas.factorize(table.account)[0],
    )
    cluster = cluster_of([msgspec.structs.replace(source.node, count=nodes)])
    return Load(jobs, cluster)


def _fitted(table: Table, node: Node, window_s: float, pressure: float) -> tuple[Table, int]:
    """Return the jobs that fit into a quarter of the cluster, and how many nodes give them this pressure."""
    nodes = 0
    while True:
        work = _asked(table) * table.run_s.to_numpy()[:, None]
        have = numpy.array([max(amount, 1) for amount in node.amounts])
        found = max(1, math.ceil(float((work.sum(axis=0) / have).max()) / window_s / pressure))
        if found == nodes:
            return table, nodes
        nodes = found
        fits = (_asked(table) <= numpy.maximum(have * nodes * LARGEST_SHARE, have)).all(axis=1)
        table = table[fits]


def _asked(table: Table) -> Ints:
    columns = (table.cpus * MILLI, table.mem_mib, table.gpus * MILLI)
    return numpy.stack([column.to_numpy(dtype=numpy.int64) for column in columns], axis=1)


def _mit(file: Path, seed: int) -> Table:
    rows = pandas.read_csv(file)
    # Ids have lost digits in the published file; the rest still distinguishes users.
    user = rows.id_user.map(lambda value: f"{value:.0f}")

    def tres(number: int) -> Column:
        return pandas.to_numeric(rows.tres_alloc.str.extract(rf"(?:^|,){number}=(\d+)")[0]).fillna(0)

    unlimited = rows.timelimit >= NO_LIMIT
    return Table(
        {
            "submit_s": rows.time_submit.astype(float),
            "run_s": (rows.time_end - rows.time_start).astype(float),
            "cpus": tres(1),
            "mem_mib": tres(2),
            "gpus": tres(1002),
            "limit_s": (rows.timelimit * 60.0).where(~unlimited, YEAR_S),
            "user": user,
            "account": user.map(lambda name: zlib.crc32(f"{seed} {name}".encode()) % MIT_ACCOUNTS),
        }
    )


def _philly(file: Path, seed: int) -> Table:
    rows = pandas.read_csv(file)
    run_s = rows.duration.astype(float)
    return Table(
        {
            "submit_s": _seconds(rows.timestamp),
            "run_s": run_s,
            # Philly allocates only GPUs; CPUs and memory come with them.
            "cpus": rows.num_gpus,
            "mem_mib": rows.num_gpus,
            "gpus": rows.num_gpus,
            "limit_s": drawn_limits_s(
                numpy.asarray(run_s, dtype=numpy.float64), numpy.random.default_rng(seed)
            ),
            "user": rows.cluster + " " + rows.num_gpus.astype(str),
            "account": rows.cluster,
        }
    )


def _kabre(file: Path, seed: int) -> Table:  # noqa: ARG001 - nothing is drawn
    rows = pandas.read_csv(file, sep="|")
    limit_s = pandas.to_numeric(rows.TimelimitRaw, errors="coerce") * 60.0
    rows, limit_s = rows[limit_s.notna()], limit_s[limit_s.notna()]
    hardware = rows.Partition.str.split("-").str[0]
    node_cpus = hardware.map(WHOLE_NODES).where(~rows.Partition.isin(SHARED))
    shared_cpus = ((rows.ReqCPUS + 1) // 2) * 2
    cpus = (node_cpus * rows.ReqNodes).fillna(shared_cpus).astype("int64")
    return Table(
        {
            "submit_s": _seconds(rows.Submit),
            # Slurm ends jobs within minutes of their limit; a job that seems to run on had more CPUs than the rule
            # says.
            "run_s": numpy.minimum(rows.CPUTimeRAW / cpus, limit_s + 60.0),
            "cpus": cpus,
            "mem_mib": cpus,
            "gpus": 0,
            "limit_s": limit_s,
            "user": rows.Partition
            + " "
            + rows[["ReqCPUS", "ReqMem", "TimelimitRaw"]].astype(str).agg(" ".join, axis=1),
            "account": hardware,
        }
    )


def _seconds(times: Column) -> Column:
    return pandas.to_datetime(times).astype("datetime64[s]").astype("int64").astype(float)


def drawn_limits_s(run_s: Floats, draw: numpy.random.Generator) -> Floats:
    """Return limits as users set them: some the longest there is, others a common value above a poor estimate.

    Run time over estimate is uniform on 0..1, as in the archive's logs (Mu'alem, Feitelson, TPDS 2001).
    """
    common = numpy.array([*COMMON_LIMITS_S, YEAR_S])
    estimate_s = run_s / draw.uniform(0.02, 1.0, len(run_s))
    rounded_s = common[numpy.searchsorted(common, numpy.minimum(estimate_s, common[-2]))]
    longest = draw.random(len(run_s)) < LONGEST_SHARE
    limits: Floats = numpy.maximum(numpy.where(longest, common[-2], rounded_s), run_s)
    return limits


SOURCES: dict[str, Source] = {
    "mit": Source(
        "slurm/mit_supercloud_slurmdbd.csv.gz", "2021-02-22", 21, Node(cpus=40, mem_mib=384_000, gpus=2), _mit
    ),
    "philly": Source(
        "queue/philly_first_half.csv.gz", "2017-10-02", 7, Node(cpus=8, mem_mib=8, gpus=8), _philly
    ),
    "kabre": Source("slurm/kabre_sacct.psv.gz", "2024-09-16", 35, Node(cpus=256, mem_mib=256), _kabre),
}
