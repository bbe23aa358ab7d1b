"""How many threads or processes a script gives its programs, by their own options or by OMP_NUM_THREADS. Pure.

script_floors.py takes them for floors, and script_launchers.py multiplies those of each rank by its ranks.
"""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from slurm_plugin.policy.script_values import DEFAULT, QUOTE

# A default may be exceeded, but hardly ever is less.
_NUMBER = rf"[ \t]*{QUOTE}(?:{DEFAULT})?(\d{{1,4}})\b"


class Program(NamedTuple):
    """How a program is told a number of CPUs: any of `words` is in its script, and what `says` finds has the number.

    `each`: it is that of each of its ranks; otherwise, of all.
    """

    words: tuple[str, ...]
    says: re.Pattern[str]
    each: bool = False


_PROGRAMS = (
    # LAMMPS' packages OPENMP, INTEL and KOKKOS.
    Program(
        ("-pk ", "-package ", "-k ", "-kokkos "),
        re.compile(
            rf"\s-(?:pk|package)[ \t]+(?:intel[ \t][^\n;|&-]{{0,80}}?[ \t])?omp{_NUMBER}"
            rf"|\s-(?:k|kokkos)[ \t]+on[ \t](?:[^\n;|&-]{{0,80}}?[ \t])?t(?:hreads)?{_NUMBER}"
        ),
        each=True,
    ),
    # What launchers of MPI call the number of processes, and so do STAR-CCM+, COMSOL, Ansys and OpenFOAM's runParallel.
    Program(("-np",), re.compile(rf"\s-np[ \t]{_NUMBER}")),
    # GROMACS.
    Program(("-ntomp",), re.compile(rf"mdrun(?<!\wmdrun)[^\n;|&]{{0,400}}?\s-ntomp{_NUMBER}"), each=True),
    # Charm++'s, such as NAMD.
    Program(("+ppn",), re.compile(rf"\s\+{{1,2}}ppn{_NUMBER}"), each=True),
    Program(("+p",), re.compile(rf"\s\+{{1,2}}p{_NUMBER}")),
    Program(("cpus=",), re.compile(rf"\b(?:abaqus|abq\w{{0,20}})[ \t][^\n;|&]{{0,400}}?\scpus={_NUMBER}")),
    Program(("fluent",), re.compile(rf"fluent[\"']?[ \t]+\dd[^\n;|&]{{0,400}}?\s-t{_NUMBER}")),
    # In an input that a script writes: Gaussian's and ORCA's.
    Program(("%n", "%N"), re.compile(rf"%(?i:nproc(?:shared|s)?)={_NUMBER}")),
    Program(("nprocs",), re.compile(rf"%(?i:pal)\s{{1,9}}nprocs{_NUMBER}")),
)
# A script with none of these words tells no program of a number of CPUs.
WORDS = tuple(word for program in _PROGRAMS for word in program.words)
_COMMAND = re.compile(r"[^\n;|&]+")
_OMP = "OMP_NUM_THREADS"
# Of a number that follows the job's CPUs nothing is known.
_SETS_OMP = re.compile(rf"{_OMP}(?:=|[ \t]+)[\"']?(?:(\d{{1,4}})\b|[$`])")
# Such a command sets it for those after it, any other only for itself.
_FOR_ALL = re.compile(
    r"[ \t({]*(?:(?:then|do|else)[ \t]+)?(?:(?:export|setenv|declare|typeset)[ \t]"
    r"|(?:\w+=\S*[ \t]+)*\w+=\S*[ \t]*(?:#|\Z))"
)


class ThreadsHeld:
    """OMP_NUM_THREADS by place in a script: what it was last set to."""

    def __init__(self, body: str) -> None:
        self._held: list[tuple[int, int]] = [(-1, 1), *_held(body)] if _OMP in body else [(-1, 1)]

    def at(self, place: int) -> int:
        """Return the threads of a rank that the command at a place starts; 1 if no number is known."""
        return self._held[bisect.bisect(self._held, (place, math.inf)) - 1][1]


def _held(body: str) -> Iterator[tuple[int, int]]:
    before = 1
    for command in _COMMAND.finditer(body):
        if _OMP not in command[0]:
            continue
        said = _SETS_OMP.search(command[0])
        if not said:
            if command[0].split()[0] == "unset":
                before = 1
                yield command.start(), before
            continue
        number = max(int(said[1] or 1), 1)
        yield command.start(), number
        if _FOR_ALL.match(command[0]):
            before = number
        else:
            yield command.end(), before


def threads_each(command: str) -> int:
    """Return how many threads a command gives each of its ranks by its program's own options; 0 if none is said."""
    return max(_numbers(command, each=True), default=0)


def told_cpus(body: str, num_tasks: int) -> Iterator[int]:
    """Yield the CPUs per task that programs are told of."""
    yield from _numbers(body, each=True)
    yield from (math.ceil(number / num_tasks) for number in _numbers(body, each=False))


def _numbers(text: str, *, each: bool) -> Sequence[int]:
    # A plain search is ten times as fast as a pattern, and a submission waits.
    programs = (
        program
        for program in _PROGRAMS
        if program.each is each and any(word in text for word in program.words)
    )
    return [int(found[found.lastindex or 0]) for program in programs for found in program.says.finditer(text)]
