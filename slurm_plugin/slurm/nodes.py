"""The nodes of the cluster as it is now, and what each has for jobs."""

from __future__ import annotations

from collections import Counter

import msgspec

from accounting.tres import parse_tres
from models.simulation.nodes import Node
from slurm_plugin.slurm.command import run
from slurm_plugin.slurm.node_words import gpus_of, has_of, words_of

# States of a node, which may have several: it does not exist yet, or gives nothing to jobs at the moment.
NOT_THERE = frozenset({"FUTURE"})
AWAY = frozenset({"DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "NOT_RESPONDING"})
# A node that power saving has switched off, or on again a moment ago, does not respond either: Slurm gives it to jobs
# all the same.
ASLEEP = frozenset({"POWERING_DOWN", "POWERED_DOWN"})
SAVING_POWER = ASLEEP | {"POWERING_UP"}
# What Slurm appends to a state: not responding, powering up and the like.
MARKS = "*~#!%$@^-"


class Machines(msgspec.Struct, frozen=True):
    """Nodes, identical ones grouped, and how many of them are down or drained just now."""

    nodes: tuple[Node, ...]
    away: int


def read_nodes(partition: str | None = None) -> Machines:
    """Return the cluster's nodes, or a partition's; raises SlurmError if scontrol does not answer."""
    return parse_nodes(run("scontrol", "--all", "--oneliner", "show", "node"), partition)


def parse_nodes(text: str, partition: str | None = None) -> Machines:
    """Read `scontrol --oneliner show node`; what a node reserves for the system is not for jobs.

    A node that is away still counts: earlier jobs may have run on it.
    """
    alike = Counter[Node]()
    away = 0
    for line in text.splitlines():
        words = words_of(line)
        states = states_of(words)
        is_meant = partition is None or partition in words.get("Partitions", "").split(",")
        if "NodeName" in words and is_meant and not states & NOT_THERE:
            alike[capacity_of(words)] += 1
            away += bool(states & AWAY)
    return Machines(tuple(msgspec.structs.replace(node, count=count) for node, count in alike.items()), away)


def states_of(words: dict[str, str]) -> set[str]:
    """Return the states of a node, from the words of its line; NOT_RESPONDING only if it should respond."""
    states = {state.rstrip(MARKS) for state in words.get("State", "").split("+")}
    return states - {"NOT_RESPONDING"} if states & SAVING_POWER else states


def capacity_of(words: dict[str, str]) -> Node:
    """Return what a node has for jobs, from the words of its line."""
    cpus, mem_mib, gpus = has_of(words)
    return Node(cpus=cpus, mem_mib=mem_mib, gpus=gpus)


def held_of(words: dict[str, str]) -> tuple[int, int, int] | None:
    """Return the CPUs, MiB and GPUs of a node that jobs hold, from the words of its line.

    None if AccountingStorageTRES does not name all of its GPUs.
    """
    has, held = (parse_tres(words.get(name, "")) for name in ("CfgTRES", "AllocTRES"))
    if has.cpus is None or (has.gpus or 0) < sum(gpus_of(words).values()):
        return None
    return held.cpus or 0, held.mem_mib or 0, held.gpus or 0
