"""The threads and ranks that a script gives GROMACS' mdrun, which ends if they do not match its CPUs. Pure.

script_floors.py asks, and says what is kept for that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

_MDRUN = re.compile(r"mdrun(?<!\wmdrun)(?:_\w+)?[\"']?[ \t]([^\n;|&]*)")
_THREADS = re.compile(r"-(nt|ntmpi|ntomp)[ \t]+[\"']?(\d{1,4})\b")
# A number that may follow the CPUs. The number of tasks is never cut, and GPUs are cut by themselves.
_FOLLOWS = r"[ \t]+[\"']?(?:`|\$(?!\{?SLURM_(?:N(?:TASKS|PROCS)|GPUS)))"
_ALL_FOLLOW, _RANKS_FOLLOW = re.compile(rf"-nt{_FOLLOWS}"), re.compile(rf"-nt(?:mpi)?{_FOLLOWS}")
# All threads must be a multiple of those of a rank, or of the ranks; of one they always are.
_DIVIDES = re.compile(r"-nt(?:mpi|omp)[ \t]+[\"']?(?!1\b)")
# Ranks for PME come out of all ranks, and a grid has one for each cell.
_DIVIDES_RANKS = re.compile(r"-(?:npme[ \t]+[\"']?[1-9]|dd[ \t])")


def mdrun_cpus(body: str, num_tasks: int) -> Iterator[int]:
    """Yield the CPUs per task that each mdrun counts on.

    If OMP_NUM_THREADS says another number than its `-ntomp`, it ends.
    """
    for options in _mdruns(body):
        said = {option: int(number) for option, number in _THREADS.findall(options)}
        threads = said.get("ntomp", 0)
        started = max(said.get("nt", 0), said.get("ntmpi", 0) * max(threads, 1))
        yield max(threads, math.ceil(started / num_tasks))


def mdrun_divides(body: str) -> bool:
    """Return whether an mdrun's number follows its CPUs, and another one must divide it: with fewer CPUs it may end."""
    return any(
        (_ALL_FOLLOW.search(options) and _DIVIDES.search(options))
        or (_RANKS_FOLLOW.search(options) and _DIVIDES_RANKS.search(options))
        for options in _mdruns(body)
    )


def _mdruns(body: str) -> Iterator[str]:
    """Yield the options of each mdrun."""
    # A plain search is ten times as fast.
    return (found[1] for found in _MDRUN.finditer(body)) if "mdrun" in body else iter(())
