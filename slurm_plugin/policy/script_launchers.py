"""The launchers of MPI ranks in a script: how many CPUs they count on, and why CPUs stay for them. Pure.

A launcher asks Slurm, or nobody, how many ranks it may start. With fewer CPUs than ranks it refuses, or its ranks take
turns, each of which spins while it waits for the others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from accounting.request import Dimension
from slurm_plugin.policy.script_steps import Turn, held_at_once, turns
from slurm_plugin.policy.script_threads import ThreadsHeld, threads_each
from slurm_plugin.policy.script_values import IS, LAUNCHERS, QUOTE, UNREAD

# As many ranks as the job has CPUs: with fewer it would not fail, but compute something else.
BY_CPUS = r"(?:\$\{?|\$\(\([^)\n]{0,80}?)SLURM_(?:JOB_)?CPUS_"
RANKS_BY_CPUS = "the script starts as many ranks as the job has CPUs"
CPUS_BY_NUMBER = "the script takes CPUs by their numbers"
_NAME = re.compile(rf"\b(?:{'|'.join(LAUNCHERS)})\b")
_COMMAND_END = re.compile(r"[\n;|&]")
# Parts of a command that have ranks of their own (`mpirun -np 2 ./a : -np 6 ./b`).
_PARTS = re.compile(r"(?<=\s):(?=\s)")
_NUMBER = rf"{QUOTE}(\d{{1,6}})\b"
# Open MPI then has a slot for each CPU of the job, not for each task, and starts a rank on each.
_SLOTS_BY_CPUS = re.compile(r"ras_slurm_use_entire_allocation[= \t]+[\"']?[1-9tTyY]")
# Ranks placed by anything smaller than a node: fewer CPUs may be on fewer sockets.
_RANKS_PER_SOCKET = re.compile(r"\bppr:[^:\s]+:(?!node)|\s--?npersocket[= \t]")
# CPUs of ranks by number: in a file, or as a list.
_RANKS_BY_NUMBER = re.compile(r"\s--?(?:rf|rankfile|cpu-list)[= \t]|\srankfile:|\s-cc[ \t]+\d")


class _Options(NamedTuple):
    """How a launcher is told its ranks, the CPUs of each, and the ranks on a node; each pattern's group is a number.

    Those of numbers that cannot be read match any number of ranks: what follows a launcher's first one belongs to its
    program. Their group is what only the shell knows, and the job's CPUs.
    """

    ranks: re.Pattern[str]
    ranks_unread: re.Pattern[str]
    ranks_by_cpus: re.Pattern[str]
    cpus: re.Pattern[str]
    cpus_unread: re.Pattern[str]
    per_node: re.Pattern[str]


def _options(ranks: str, cpus: str, per_node: str, other_ranks: str = "") -> _Options:
    return _Options(
        ranks=re.compile(rf"\s(?:{ranks}{other_ranks}){IS}{_NUMBER}"),
        ranks_unread=re.compile(rf"\s(?:{ranks}){IS}{QUOTE}({UNREAD})?"),
        ranks_by_cpus=re.compile(rf"\s(?:{ranks}){IS}{QUOTE}({BY_CPUS})?"),
        cpus=re.compile(rf"{cpus}{IS}{_NUMBER}"),
        cpus_unread=re.compile(rf"{cpus}{IS}{QUOTE}{UNREAD}"),
        per_node=re.compile(rf"(?:\s(?:{per_node}){IS}|\bppr:)(?:{_NUMBER})?"),
    )


# Open MPI has `-c` for the ranks, too, but so may a program for something else: only its number counts. PE says to how
# many CPUs it binds each.
_MPIRUN = _options(
    "-np|-n|--np|--n", r"[:,\s](?:PE|pe|--cpus-per-(?:proc|rank))", "--?(?:npernode|ppn|perhost)|-N", "|-c"
)
_OF = {"aprun": _options("-n", r"\s-d", "-N")}


class Launched(NamedTuple):
    """A launcher's command, from behind its name on, or a part of it, with the threads that OMP_NUM_THREADS says."""

    options: _Options
    command: str
    threads: int

    @property
    def rank_cpus(self) -> int:
        """The CPUs that each rank counts on."""
        cpus = self.options.cpus.search(self.command)
        return max(int(cpus[1]) if cpus else 1, threads_each(self.command), self.threads)

    @property
    def cpus(self) -> int:
        """The CPUs that all ranks count on; 0 if their number is not said."""
        ranks = self.options.ranks.search(self.command)
        return int(ranks[1]) * self.rank_cpus if ranks else 0

    @property
    def node_cpus(self) -> int | None:
        """The CPUs that the ranks on a node count on, 0 if not known; None if it does not say how many they are."""
        ranks = self.options.per_node.search(self.command)
        if not ranks:
            return None
        cpus = int(ranks[1] or 0) * self.rank_cpus
        return min(cpus, self.cpus) if self.cpus else cpus


class Command(NamedTuple):
    """A launcher's command, by its parts, and when it runs."""

    parts: tuple[Launched, ...]
    turn: Turn


def read_launched(body: str, threads: ThreadsHeld) -> list[Command]:
    """Return the command of each launcher."""
    # A plain search is ten times as fast.
    if not any(name in body for name in LAUNCHERS):
        return []
    found = list(_NAME.finditer(body))
    ends = [*(name.start() for name in found), len(body)][1:]
    commands = (
        _COMMAND_END.split(body[name.end() : end], maxsplit=1)[0]
        for name, end in zip(found, ends, strict=True)
    )
    return [
        Command(
            tuple(
                Launched(_OF.get(name[0], _MPIRUN), part, threads.at(name.start()))
                for part in _PARTS.split(command)
            ),
            turn,
        )
        for name, command, turn in zip(found, commands, turns(body, found), strict=True)
    ]


def launched_cpus(launched: Sequence[Command], num_tasks: int) -> Iterator[int]:
    """Yield the CPUs per task that they count on. Without a number of ranks a launcher starts the job's tasks."""
    held = ((sum(part.cpus for part in command.parts), command.turn) for command in launched)
    yield math.ceil(held_at_once(held) / num_tasks)
    # One CPU of its own is no floor.
    yield from (part.rank_cpus for command in launched for part in command.parts if part.rank_cpus > 1)


def kept_by_launchers(body: str, launched: Sequence[Command]) -> Iterator[tuple[Dimension, str]]:
    """Yield why the CPUs stay as asked for launchers."""
    parts = [part for command in launched for part in command.parts]
    if any(_first(part.options.ranks_unread, part) for part in parts):
        yield "cores", "the script's number of ranks cannot be read"
    elif any(_first(part.options.ranks_by_cpus, part) for part in parts) or (
        parts and _SLOTS_BY_CPUS.search(body)
    ):
        yield "cores", RANKS_BY_CPUS
    elif any(part.options.cpus_unread.search(part.command) for part in parts):
        yield "cores", "the CPUs of the script's ranks cannot be read"
    elif any(_RANKS_PER_SOCKET.search(part.command) for part in parts):
        yield "cores", "the script says how many ranks are on each socket"
    if any(_RANKS_BY_NUMBER.search(part.command) for part in parts):
        yield "cores", CPUS_BY_NUMBER


def _first(says_ranks: re.Pattern[str], part: Launched) -> bool:
    first = says_ranks.search(part.command)
    return bool(first and first[1])
