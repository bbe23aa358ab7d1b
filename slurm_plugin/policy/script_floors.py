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
from models.families import without_numbers

# A Java process holds more than its heap: threads' stacks, code, buffers.
HEAP_OVERHEAD = 1.25

_HEAP = re.compile(r"-Xmx(\d+[kKmMgGtT]?)\b")
_HEAP_PERCENT = re.compile(r"-XX:(?:MaxRAMPercentage|MaxRAMFraction)=")
_MEMORY_OPTION = re.compile(
    r"--(?:max-?mem(?:ory)?|memory|mem-limit|memory-limit)[= ](\d+(?:\.\d+)?[kKmMgGtT]?)i?[bB]?\b"
)
# These begin with plain letters, which are ten times as fast to search for as a boundary: a submission waits. What may
# not stand before them is looked at behind them.
_THREADS = (
    re.compile(r"_NUM_THREADS=(\d{1,4})\b"),  # OpenMP, MKL, OpenBLAS, Julia, Rayon and many more
    re.compile(r"-(?<!\w-)(?:-?(?:threads|num[-_]threads|n?cpus|nproc|cores|jobs)[= ]|[t@jp]\s+)(\d{1,4})\b"),
    re.compile(r"make(?<!\wmake)\s+-j\s*(\d{1,4})\b"),
)
_LAUNCHERS = ("mpirun", "mpiexec", "orterun")
_LAUNCHER = re.compile(rf"\b(?:{'|'.join(_LAUNCHERS)})\b")
_COMMAND_END = re.compile(r"[\n;|&]")
_RANKS = re.compile(r"\s(?:-np|-n|--np|--n)[= ](\d{1,6})\b")
_INNER = re.compile(r"srun(?<!\wsrun)\b([^\n;|&]*)")
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


NOTHING = ScriptFloors()


# It is asked twice about a submission.
@functools.lru_cache(maxsize=16)
def read_floors(script: str, num_tasks: int) -> ScriptFloors:
    """Return what a script fixes by itself. `num_tasks` are the job's: they share ranks and steps that it starts."""
    return NOTHING if _fixes_nothing(without_numbers(script)) else _read(script, num_tasks)


# Tasks of a workflow differ in numbers alone: where nothing is fixed by nines, nothing is by others.
@functools.lru_cache(maxsize=512)
def _fixes_nothing(script: str) -> bool:
    return _read(script.replace("0", "9"), 1) == NOTHING


def _read(script: str, num_tasks: int) -> ScriptFloors:
    body = "\n".join(line for line in script.splitlines() if not line.lstrip().startswith("#"))
    inner = _INNER.findall(body)
    memory = [HEAP_OVERHEAD * _mib(text, "B") for text in _HEAP.findall(body)]
    memory += [_mib(text, "M") for text in _MEMORY_OPTION.findall(body)]
    memory += [_mib(text, "M") for options in inner for text in _INNER_MEMORY.findall(options)]
    cpus = [int(number) for threads in _THREADS for number in threads.findall(body)]
    cpus += [math.ceil(number / num_tasks) for number in _ranks(body)]
    cpus += [math.ceil(_step_cpus(options) / num_tasks) for options in inner]
    return ScriptFloors(
        memory_mib=math.ceil(max(memory, default=0)),
        cpus_per_task=max(cpus, default=0),
        kept=tuple(_kept(body, inner)),
    )


def _ranks(body: str) -> list[int]:
    """Return how many ranks each launcher is told to start: the first number of its own command."""
    if not any(launcher in body for launcher in _LAUNCHERS):
        return []
    commands = (_COMMAND_END.split(launched, 1)[0] for launched in _LAUNCHER.split(body)[1:])
    return [int(found[1]) for found in map(_RANKS.search, commands) if found]


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
