"""Nodes as options, and the nodes on which a past is replayed: given, a scenario's, or the live cluster's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from accounting.errors import RightsizerError, SlurmError
from accounting.units import counted
from slurm_plugin.cli.output import note

if TYPE_CHECKING:
    from models.simulation.nodes import Cluster, Node

HOW = "give the nodes on which these jobs ran, with --nodes COUNTxCPUS:MEM_MIB[:GPUS] or --scenario FILE"
_NODES = re.compile(r"([1-9]\d{0,6})x(\d{1,6}):(\d{1,10})(?::(\d{1,4}))?")


def nodes_option(says: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return an option whose values are groups of equal nodes; `says` is its help."""
    return click.option(
        "--nodes", multiple=True, callback=_read_nodes, metavar="COUNTxCPUS:MEM_MIB[:GPUS]", help=says
    )


def _read_nodes(
    _context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]
) -> tuple[Node, ...]:
    """Return the nodes of each `COUNTxCPUS:MEM_MIB[:GPUS]`; BadParameter if a text has another form."""
    from models.simulation.nodes import Node

    found = []
    for text in texts:
        read = _NODES.fullmatch(text)
        if not read:
            raise click.BadParameter(
                f"{text!r} does not describe nodes; write COUNTxCPUS:MEM_MIB[:GPUS], such as 20x64:257000:4"
            )
        count, cpus, mem_mib, gpus = (int(part or 0) for part in read.groups())
        found.append(Node(count=count, cpus=cpus, mem_mib=mem_mib, gpus=gpus))
    return tuple(found)


def machines(given: Sequence[Node], scenario: Path | None, partition: str | None) -> Cluster:
    """Return the nodes given, else the scenario's, else those of the live cluster (of the partition, if one is named).

    Raises RightsizerError if there are none.
    """
    from models.simulation.nodes import cluster_of
    from models.simulation.scenario import cluster, read_scenario

    if given and scenario is not None:
        raise click.UsageError("give either --nodes or --scenario")
    if given:
        return cluster_of(list(given))
    if scenario is not None:
        # The scenario's reservations belong to its own load.
        return cluster(msgspec.structs.replace(read_scenario(scenario), reservations=[]))
    return cluster_of(_live(partition))


def _live(partition: str | None) -> list[Node]:
    from slurm_plugin.slurm.nodes import read_nodes

    try:
        found = read_nodes(partition)
    except SlurmError as error:
        raise RightsizerError(f"no nodes to replay on: {error}; or {HOW}") from None
    if not found.nodes:
        of = f"partition {partition}" if partition else "cluster"
        raise RightsizerError(f"scontrol shows no node of this {of}; {HOW}")
    if found.away:
        note(f"{counted(found.away, 'node')} down or drained now; counted as if up")
    return list(found.nodes)
