"""The threads and ranks that a script gives GROMACS' mdrun, which ends if they do not match its CPUs. Pure.

script_floors.py asks, and says what is kept for that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from slurm_plugin.policy.script_steps import held_at_once, turns

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
    """Yield the CPUs per task that the mdruns count on.

    If OMP_NUM_THREADS says another number than its `-ntomp`, it ends.
    """
    found = _mdruns(body)
    started = list[float]()
    for mdrun in found:
        said = {option: int(number) for option, number in _THREADS.findall(mdrun[1])}
        threads = said.get("ntomp", 0)
        yield threads
        started.append(max(threads, said.get("nt", 0), said.get("ntmpi", 0) * threads, said.get("ntmpi", 0)))
    held = held_at_once(zip(started, turns(body, found), strict=True))
    yield math.ceil(held / num_tasks)


def mdrun_divides(body: str) -> bool:
    """Return whether an mdrun's number follows its CPUs, and another one must divide it: with fewer CPUs it may end."""
    return any(
        (_ALL_FOLLOW.search(mdrun[1]) and _DIVIDES.search(mdrun[1]))
        or (_RANKS_FOLLOW.search(mdrun[1]) and _DIVIDES_RANKS.search(mdrun[1]))
        for mdrun in _mdruns(body)
    )


def _mdruns(body: str) -> list[re.Match[str]]:
    """Return each mdrun, with its options as a group."""
    # A plain search is ten times as fast.
    return list(_MDRUN.finditer(body)) if "mdrun" in body else []
