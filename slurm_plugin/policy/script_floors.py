"""What a script fixes by itself: a program told to use 16 GB does not know that its job was given less.

Reads the part of the script that the hook sends. A number that is written out becomes a floor; a number that cannot be
read, or an inner srun that asks for its own share, keeps the dimension as it was asked for.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence

import msgspec

from accounting.request import Dimension
from accounting.units import parse_memory_mib

# A Java process holds more than its heap: threads' stacks, code, buffers.
HEAP_OVERHEAD = 1.25

_HEAP = re.compile(r"-Xmx(\d+[kKmMgGtT]?)\b")
_HEAP_PERCENT = re.compile(r"-XX:(?:MaxRAMPercentage|MaxRAMFraction)=")
_MEMORY_OPTION = re.compile(
    r"--(?:max-?mem(?:ory)?|memory|mem-limit|memory-limit)[= ](\d+(?:\.\d+)?[kKmMgGtT]?)i?[bB]?\b"
)
_THREADS = re.compile(
    r"(?:\b(?:OMP|MKL|OPENBLAS|NUMEXPR|JULIA|BLIS|VECLIB_MAXIMUM)_NUM_THREADS="
    r"|\B--?(?:threads|num[-_]threads|n?cpus|nproc|cores|jobs)[= ]"
    r"|\bmake\s+-j\s*|\B-(?:t|@|j|p)\s+)(\d{1,4})\b"
)
# A launcher, the end of its command, or ranks: the first after a launcher are its own.
_LAUNCHED = re.compile(r"\b(mpirun|mpiexec|orterun)\b|([\n;|&])|\s(?:-np|-n|--np|--n)[= ](\d{1,6})\b")
_INNER = re.compile(r"\bsrun\b([^\n;|&]*)")
_INNER_TASKS = re.compile(r"\s(?:-n\s*|--ntasks[= ])\"?(\d{1,6})\b")
_INNER_CPUS = re.compile(r"\s(?:-c\s*|--cpus-per-task[= ])\"?(\d{1,4})\b")
_INNER_MEMORY = re.compile(r"\s--mem[= ]\"?(\d+[kKmMgGtT]?)\b")
_INNER_SHARES = re.compile(r"\s--mem-per-(?:cpu|gpu)[= ](?!\$)")
_INNER_GPUS = re.compile(r"\s(?:--gres|--gpus(?:-per-\w+)?|-G)[= ]?(?!\$)\"?\w")
_OWN_MEMORY = re.compile(r"\$\{?SLURM_MEM_PER_(?:NODE|CPU|GPU)\b")


class ScriptFloors(msgspec.Struct, frozen=True, kw_only=True):
    """What a script fixes: floors (0 = none), and dimensions to keep, each with what in the script asks for it."""

    memory_mib: int = 0
    cpus_per_task: int = 0
    kept: tuple[tuple[Dimension, str], ...] = ()


# The same script comes with many different requests.
@functools.lru_cache(maxsize=512)
def read_floors(script: str, num_tasks: int) -> ScriptFloors:
    """Return what a script fixes by itself. `num_tasks` are the job's: they share ranks and steps that it starts."""
    body = "\n".join(line for line in script.splitlines() if not line.lstrip().startswith("#"))
    inner = _INNER.findall(body)
    memory = [HEAP_OVERHEAD * _mib(text, "B") for text in _HEAP.findall(body)]
    memory += [_mib(text, "M") for text in _MEMORY_OPTION.findall(body)]
    memory += [_mib(text, "M") for options in inner for text in _INNER_MEMORY.findall(options)]
    cpus = [int(number) for number in _THREADS.findall(body)]
    cpus += [math.ceil(number / num_tasks) for number in _ranks(body)]
    cpus += [math.ceil(_step_cpus(options) / num_tasks) for options in inner]
    return ScriptFloors(
        memory_mib=math.ceil(max(memory, default=0)),
        cpus_per_task=max(cpus, default=0),
        kept=tuple(_kept(body, inner)),
    )


def _ranks(body: str) -> list[int]:
    """Return how many ranks each launcher is told to start.

    In one pass: one expression for both would go through the rest of a line anew from each launcher in it.
    """
    ranks: list[int] = []
    is_launched = False
    for launcher, end, number in _LAUNCHED.findall(body):
        if is_launched and number:
            ranks.append(int(number))
        is_launched = bool(launcher) or (is_launched and not end and not number)
    return ranks


def _step_cpus(options: str) -> int:
    """Return the CPUs that an inner srun asks for in numbers; 0 where it takes what the job has."""
    tasks, cpus = _INNER_TASKS.search(options), _INNER_CPUS.search(options)
    return int(tasks[1] if tasks else 1) * int(cpus[1] if cpus else 1) if tasks or cpus else 0


def _mib(text: str, bare_unit: str) -> float:
    return parse_memory_mib(text, bare_unit=bare_unit) or 0.0


def _kept(body: str, inner: Sequence[str]) -> list[tuple[Dimension, str]]:
    kept: list[tuple[Dimension, str]] = []
    if _OWN_MEMORY.search(body):
        # It takes whatever it is given: what it took before is no measure of what it needs.
        kept.append(("memory", "the script passes its memory on"))
    elif _HEAP_PERCENT.search(body) or any(_INNER_SHARES.search(options) for options in inner):
        kept.append(("memory", "the script fixes its memory"))
    if any(_INNER_GPUS.search(options) for options in inner):
        kept.append(("gpus", "an srun in the script fixes its GPUs"))
    return kept
