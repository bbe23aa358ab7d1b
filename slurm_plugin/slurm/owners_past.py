"""When jobs of owners had which nodes in the past, according to accounting: calls sacct and reads its lines."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

from slurm_plugin.slurm.command import UNIX_TIMES, run
from slurm_plugin.slurm.hostlist import expand_nodes

Span = tuple[float, float]
# Slurm's word for a job that never had a node.
_NO_NODES = "None assigned"
_PATIENCE_S = 60.0


def had_nodes(partitions: Collection[str], from_s: float, now_s: float) -> dict[str, list[Span]]:
    """Return from when to when (unix seconds) jobs of partitions had each node; raises SlurmError if sacct fails."""
    if not partitions:
        return {}
    asked = (
        "--allusers", "--allocations", "--duplicates", "--noheader", "--parsable2", "--format=Start,End,NodeList",
        f"--partition={','.join(sorted(partitions))}", f"--starttime={_words(from_s)}", "--endtime=now",
    )  # fmt: skip
    return spans_of(run("sacct", *asked, patience_s=_PATIENCE_S, variables=UNIX_TIMES), now_s)


def _words(at_s: float) -> str:
    """Return a moment in the form that sacct takes, in local time."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at_s))


def spans_of(text: str, now_s: float) -> dict[str, list[Span]]:
    """Return each node's spans from `start|end|nodes` lines, overlapping ones merged; those of running jobs end now."""
    found: dict[str, list[Span]] = {}
    for line in text.splitlines():
        start, _, rest = line.partition("|")
        end, _, nodes = rest.partition("|")
        if not start.isdecimal() or nodes in ("", _NO_NODES):
            continue
        span = (float(start), float(end) if end.isdecimal() else now_s)
        for name in expand_nodes(nodes):
            found.setdefault(name, []).append(span)
    return {name: merged(spans) for name, spans in found.items()}


def merged(spans: Sequence[Span]) -> list[Span]:
    """Return spans in order, those that overlap or touch merged."""
    found: list[Span] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def spells_of(spans: Mapping[str, Sequence[Span]]) -> dict[str, list[float]]:
    """Return how long (seconds) each node was unused between two spans."""
    return {
        name: [later[0] - before[1] for before, later in pairwise(of_node)] for name, of_node in spans.items()
    }
