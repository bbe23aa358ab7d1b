"""Whether the jobs of the past fit the nodes at all, and how they are placed there. Pure.

A job that ran on one node must fit on one; a job that ran on several may be spread, by shares, over as many as
needed.
"""

from __future__ import annotations

import msgspec
import numpy

from accounting.units import counted
from models.scheduling.placement import WHOLE, Placement, place_spread, place_whole, spread_larger
from models.scheduling.room import MILLI, Ints, Room, amounts_of
from models.simulation.nodes import Cluster
from models.simulation.past import Past
from models.simulation.results import Results
from models.simulation.workload import Flags, Workload

WORDS = ("CPUs", "MiB of memory", "GPUs")
UNITS = (MILLI, 1, MILLI)
# The fields of a Past that have one row per job.
COLUMNS = ("counted", "keeps", "busiest", "nodes", "start_s", "end_s", "held")


def unfit(past: Past, cluster: Cluster) -> Flags:
    """Return which jobs the empty cluster cannot hold."""
    empty = Room.of(cluster.capacity)
    shapes = numpy.column_stack([past.jobs.asked, past.nodes > 1])
    different, which = numpy.unique(shapes, axis=0, return_inverse=True)
    cannot = numpy.array(
        [not _fits(empty, shape[:3], spans=bool(shape[3])) for shape in different], dtype=numpy.bool_
    )
    found: Flags = cannot[which.reshape(-1)]
    return found


def _fits(empty: Room, asked: Ints, *, spans: bool) -> bool:
    place = place_spread if spans else place_whole
    return place(empty, amounts_of(asked)) is not None


def why_unfit(past: Past, cluster: Cluster, cannot: Flags) -> str:
    """Return how many jobs do not fit, and what they ask for that no node, or not all nodes together, have."""
    lone = cannot & (past.nodes <= 1)
    said = [
        (
            f"{over.sum():,} ask for up to {past.jobs.asked[over, row].max() // unit:,} {word} on one node, "
            f"but no node has more than {cluster.capacity[row].max() // unit:,}"
        )
        for row, (word, unit) in enumerate(zip(WORDS, UNITS, strict=True))
        if (over := lone & (past.jobs.asked[:, row] > cluster.capacity[row].max())).any()
    ]
    alike = lone & (past.jobs.asked <= cluster.capacity.max(axis=1)).all(axis=1)
    if alike.any():
        said.append(f"{alike.sum():,} ask for more of several resources together than any one node has")
    if (cannot & ~lone).any():
        said.append(f"{(cannot & ~lone).sum():,} multi-node jobs ask for more than all nodes together have")
    return f"{cannot.sum():,} of {counted(len(cannot), 'job')} cannot run on these nodes: {'; '.join(said)}"


def held_beyond(real: Results) -> list[str]:
    """Return, in words, how much was really held at once of each resource of which these nodes have less."""
    held = numpy.array([moment.allocated for moment in real.moments]).max(axis=0).tolist()
    return [
        f"{most // unit:,} {word} (they have {total // unit:,})"
        for most, total, word, unit in zip(held, real.total, WORDS, UNITS, strict=True)
        if most > total
    ]


def placement_of(past: Past, cluster: Cluster) -> Placement:
    """Return how jobs are placed: on one node each, except those that no node holds."""
    empty = Room.of(cluster.capacity)
    different = numpy.unique(past.jobs.asked, axis=0)
    return WHOLE if all(_fits(empty, asked, spans=False) for asked in different) else spread_larger(empty)


def without(past: Past, rows: Flags) -> Past:
    """Return a past without some of its jobs."""
    left = ~rows
    columns = {name: getattr(past.jobs, name)[left] for name in Workload.__struct_fields__}
    own = {name: getattr(past, name)[left] for name in COLUMNS}
    numbers = numpy.flatnonzero(left).tolist()
    return msgspec.structs.replace(
        past,
        jobs=Workload(**columns),
        cases=tuple(past.cases[number] for number in numbers),
        outcome=tuple(past.outcome[number] for number in numbers),
        **own,
    )
