"""Compares what a job's token says that it runs with to Slurm's own figures. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from accounting.decisions.token import Token, asked_request, granted_by
from accounting.records import JobRow
from accounting.request import JobRequest, granted


class Unlike(NamedTuple):
    """A total of a job, in `unit`, that Slurm neither saw requested nor allocated as a token says."""

    unit: str
    said: int
    requested: int
    allocated: int


def unlike_slurm(row: JobRow, token: Token, *, cpus_stay: bool = False) -> Iterator[Unlike]:
    """Yield what differs between a token and Slurm's figures; either the requested or the allocated may match.

    `cpus_stay`: the job was queued again with its original request, but for its CPUs.
    """
    asked = asked_request(token, row.user)
    if asked is None:
        return
    runs_with = cut = granted(asked, granted_by(token))
    if token.recovered_at is not None:
        cpus = cut.cpus_per_task if cpus_stay else asked.cpus_per_task
        runs_with = msgspec.structs.replace(asked, cpus_per_task=cpus)
    slurm = (
        ("CPUs", row.req_cpus, row.alloc_cpus),
        ("MiB", row.req_mem_mib, row.alloc_mem_mib),
        ("GPUs", row.req_gpus, row.alloc_gpus),
    )
    for (unit, requested, allocated), said in zip(slurm, _totals(runs_with, row), strict=True):
        if said is not None and said not in (requested, allocated):
            yield Unlike(unit, said, requested or 0, allocated or 0)


def _totals(request: JobRequest, row: JobRow) -> tuple[int | None, int | None, int | None]:
    """Return CPUs, memory (MiB) and GPUs of the whole job on the nodes it ran on; None for what was not requested."""
    on_nodes = msgspec.structs.replace(request, nodes=request.nodes or row.nodes)
    mem_mib = on_nodes.mem_mib
    if request.mem_per_gpu_mib is not None:
        mem_mib = request.mem_per_gpu_mib * (row.alloc_gpus or on_nodes.gpus or 1)
    if request.mem_per_cpu_mib is not None:
        mem_mib = request.mem_per_cpu_mib * (row.req_cpus or on_nodes.cpus)
    # `--mem=0` requests all the memory of a node.
    return (on_nodes.cpus if request.cpus_per_task else None, mem_mib or None, on_nodes.gpus)
