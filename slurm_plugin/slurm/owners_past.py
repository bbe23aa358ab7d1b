"""When owners' jobs had which nodes in the past, as accounting tells it: a call of sacct, and its lines are read."""

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
    """Return from when to when (unix seconds) jobs of partitions had each node; SlurmError where sacct fails."""
    if not partitions:
        return {}
    asked = (
        "--allusers", "--allocations", "--duplicates", "--noheader", "--parsable2", "--format=Start,End,NodeList",
        f"--partition={','.join(sorted(partitions))}", f"--starttime={_words(from_s)}", "--endtime=now",
    )  # fmt: skip
    return spans_of(run("sacct", *asked, patience_s=_PATIENCE_S, variables=UNIX_TIMES), now_s)


def _words(at_s: float) -> str:
    """Return a moment as sacct takes it, in local time."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at_s))


def spans_of(text: str, now_s: float) -> dict[str, list[Span]]:
    """Return the spans of each node from `start|end|nodes` lines, what overlaps as one; who runs has it until now."""
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
    """Return spans one after the other, what overlaps or follows at once as one."""
    found: list[Span] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def spells_of(spans: Mapping[str, Sequence[Span]]) -> dict[str, list[float]]:
    """Return for how long (seconds) each node was left alone between two spans."""
    return {
        name: [later[0] - before[1] for before, later in pairwise(of_node)] for name, of_node in spans.items()
    }
