"""How much of the idle GPUs is of use to the jobs that usually come, and why the rest is not. Pure.

A GPU is idle for nothing if its node has no CPUs or memory left for the jobs that come, if too few GPUs are free
there together, or if the share of it that is left is smaller than what is asked for. How much of a node's idle GPUs
is lost in this way, over the usual jobs weighted by their frequency, is its fragmentation (Weng et al.: Beware of
Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent, USENIX ATC 2023, §3). Unlike
there, memory counts, too: on most Slurm sites a job may use up that of a node.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy

from models.scheduling.room import MILLI, PLAIN, Floats, Ints, Mask

CPU, MEM, GPU = range(PLAIN)
# This many kinds of jobs, the most frequent ones, are usual: more would take time and say no more.
MOST_KINDS = 200


class Wanted(NamedTuple):
    """The GPUs that a job wants of a node: how many, and how much of each in thousandths."""

    gpus: int
    share_milli: int


def wanted_of(gpu_milli: int) -> Wanted:
    """Return which GPUs a request wants: less than one is a share of one GPU, more are whole GPUs."""
    if gpu_milli < MILLI:
        return Wanted(min(1, gpu_milli), gpu_milli)
    return Wanted(-(-gpu_milli // MILLI), MILLI)


class Usual(NamedTuple):
    """Kinds of jobs that want GPUs, and how often each comes among them (1 in all; empty: no such job comes).

    `share_of` has the place of each kind's share in `shares`, which ascend.
    """

    cpu_milli: Ints
    mem_mib: Ints
    gpus: Ints
    share_of: Ints
    shares: Ints
    often: Floats


def usual_of(asked: Ints, times: Ints | None = None) -> Usual:
    """Return the most frequent kinds among jobs that asked for these amounts on a node (jobs × resources).

    Each job counts once, or as many `times` as given. Jobs without GPUs are left out, as they use none of the idle
    GPUs.
    """
    wants = asked[:, GPU] > 0
    kinds, kind_of = numpy.unique(asked[wants], axis=0, return_inverse=True)
    counted = numpy.ones(len(asked)) if times is None else times
    times_of = numpy.bincount(kind_of.ravel(), counted[wants], len(kinds))
    most = numpy.sort(numpy.argsort(-times_of, kind="stable")[:MOST_KINDS])
    kinds, times_of = kinds[most], times_of[most]
    wanted = [wanted_of(gpu_milli) for gpu_milli in kinds[:, GPU].tolist()]
    shares, share_of = numpy.unique([each.share_milli for each in wanted], return_inverse=True)
    return Usual(
        cpu_milli=kinds[:, CPU],
        mem_mib=kinds[:, MEM],
        gpus=numpy.array([each.gpus for each in wanted], dtype=numpy.int64),
        share_of=share_of.ravel(),
        shares=shares.astype(numpy.int64),
        often=times_of / max(1, times_of.sum()),
    )


def usable_milli(free: Ints, usual: Usual) -> Floats:
    """Return how much of each node's idle GPUs a usual job could use, on average (thousandths of a GPU).

    `free` is as in a Room whose GPUs are told apart (rows × nodes).
    """
    enough, idle = _free_gpus(free, usual)
    found: Floats = usual.often @ (_fits(free, usual, enough) * idle[usual.share_of])
    return found


def fitting(free: Ints, usual: Usual) -> Floats:
    """Return the share of usual jobs that would fit on each node (0..1); `free` is as in `usable_milli`."""
    found: Floats = usual.often @ _fits(free, usual, _free_gpus(free, usual)[0])
    return found


def _free_gpus(free: Ints, usual: Usual) -> tuple[Ints, Ints]:
    """Return how many GPUs of each node have each of the shares free, and how much these have in all."""
    shares = usual.shares[:, None]
    enough, idle = numpy.zeros((2, len(shares), free.shape[1]), dtype=numpy.int64)
    # One after the other: all at once are more than a processor's cache holds.
    for device in free[PLAIN:]:
        has = device >= shares
        enough += has
        idle += has * device
    return enough, idle


def _fits(free: Ints, usual: Usual, enough: Ints) -> Mask:
    """Return which kinds of jobs fit on which nodes; `enough`: how many of their GPUs have which share free."""
    fits: Mask = enough[usual.share_of] >= usual.gpus[:, None]
    fits &= free[CPU] >= usual.cpu_milli[:, None]
    fits &= free[MEM] >= usual.mem_mib[:, None]
    return fits


class Lost(NamedTuple):
    """Of what use each node's idle GPUs are to a usual job, on average (thousandths of a GPU).

    They are `usable`, or lost for want of `cpus`, of `memory`, or of GPUs, if too few of them, or too little of each,
    are free together (`gpus`). What lacks several counts for the first of these.
    """

    usable: Floats
    cpus: Floats
    memory: Floats
    gpus: Floats


def lost(free: Ints, usual: Usual) -> Lost:
    """Return of what use each node's idle GPUs are; `free` is as in `usable_milli`. Without usual jobs, of none."""
    idle = free[PLAIN:].sum(axis=0)
    no_cpus = free[CPU] < usual.cpu_milli[:, None]
    no_memory = ~no_cpus & (free[MEM] < usual.mem_mib[:, None])
    cpus, memory = (usual.often @ short * idle for short in (no_cpus, no_memory))
    usable = usable_milli(free, usual)
    return Lost(usable=usable, cpus=cpus, memory=memory, gpus=idle - usable - cpus - memory)
