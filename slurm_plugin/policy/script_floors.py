"""What a script fixes by itself: a program told to use 16 GB does not know that its job was given less.

Reads the parts of the script that the hook sends; lines that go on after a backslash are one. A number that is written
out becomes a floor; a number that cannot be read, or an inner srun that asks for its own share, keeps the dimension as
it was asked for.
"""

from __future__ import annotations

import bisect
import functools
import math
import re
from collections.abc import Sequence

import msgspec

from accounting.request import Dimension
from accounting.units import parse_memory_mib
from models.past.families import without_numbers

# A Java process holds more than its heap: threads' stacks, code, buffers.
HEAP_OVERHEAD = 1.25

# What a number may stand behind: a sign or blanks, and a quote.
_IS = "(?:=|[ \\t]+)"
_QUOTE = "[\"']?"

_HEAP = re.compile(r"-Xmx(\d+[kKmMgGtT]?)\b")
_HEAP_PERCENT = re.compile(r"-XX:(?:MaxRAMPercentage|MaxRAMFraction)=")
# Without any of these a heap is a quarter of what the job was given, where Java sees that.
_JAVA = re.compile(r"java(?<!\wjava)[ \t]+-(?!-?version)")
_MEMORY_OPTION = re.compile(
    rf"--(?:max-?mem(?:ory)?|memory|mem-limit|memory-limit){_IS}{_QUOTE}(\d+(?:\.\d+)?[kKmMgGtT]?)i?[bB]?\b"
)
# These begin with plain letters, which are ten times as fast to search for as a boundary: a submission waits. What may
# not stand before them is looked at behind them.
_THREADS = (
    # OpenMP, MKL, OpenBLAS, Julia, Rayon and many more; csh sets it without a sign between.
    re.compile(rf"_NUM_THREADS{_IS}{_QUOTE}(\d{{1,4}})\b"),
    # Slurm's own, which an srun in the script asks by.
    re.compile(rf"_CPUS_PER_TASK{_IS}{_QUOTE}(\d{{1,4}})\b"),
    re.compile(
        rf"-(?<!\w-)(?:-?(?:threads|num[-_]threads|n?cpus|nproc|cores|jobs){_IS}|[t@jp]\s+)"
        rf"{_QUOTE}(\d{{1,4}})\b"
    ),
    re.compile(r"make(?<!\wmake)\s+-j\s*(\d{1,4})\b"),
)
_LAUNCHERS = ("mpirun", "mpiexec", "orterun")
_LAUNCHER = re.compile(rf"\b(?:{'|'.join(_LAUNCHERS)})\b")
_COMMAND_END = re.compile(r"[\n;|&]")
_RANKS = re.compile(rf"\s(?:-np|-n|--np|--n){_IS}{_QUOTE}(\d{{1,6}})\b")
_INNER = re.compile(r"srun(?<!\wsrun)\b([^\n;|&]*)")
# Where commands end, with their pipes; `&` alone leaves one in the background, while `2>&1`, `&>` and `|&` end none.
_LIST_END = re.compile(r"\n|;|&&|\|\||(?<![<>|&])&(?![>&])")
_INNER_TASKS = re.compile(rf"\s(?:-n\s*|--ntasks{_IS}){_QUOTE}(\d{{1,6}})\b")
_INNER_TASKS_PER_NODE = re.compile(rf"\s--ntasks-per-node{_IS}{_QUOTE}(\d{{1,6}})\b")
_INNER_ONE_NODE = re.compile(rf"\s(?:-N\s*|--nodes{_IS}){_QUOTE}1\b(?!-)")
_INNER_NODES = re.compile(rf"\s(?:-N\s*|--nodes{_IS}){_QUOTE}(?!1\b)\d")
# Open MPI's and Hydra's ways of saying how many ranks are on each node.
_RANKS_PER_NODE = re.compile(r"\bppr:|\s(?:--?(?:npernode|ppn|perhost)|-N)[=\s]")
_INNER_CPUS = re.compile(rf"\s(?:-c\s*|--cpus-per-task{_IS}){_QUOTE}(\d{{1,4}})\b")
_INNER_MEMORY = re.compile(rf"\s--mem{_IS}{_QUOTE}(\d+[kKmMgGtT]?)[bB]?\b")
_INNER_SHARES = re.compile(rf"\s--mem-per-(?:cpu|gpu){_IS}(?![\s$])")
# CPUs and GPUs by their numbers on the node: with fewer of them the step fails, or a task sees none.
_BY_NUMBER = r"\S*(?:\$|ma(?:p|sk)_)"
# Of both, for each task or for each GPU a task.
_FOR_TASKS = rf"--(?:tres-per-task|ntasks-per-gpu){_IS}"
_INNER_GPUS = re.compile(
    rf"\s(?:(?:--gres|--gpus(?:-per-\w+)?|-G)(?:=|[ \t]*){_QUOTE}\w|--gpu-bind{_IS}{_BY_NUMBER}|{_FOR_TASKS})"
)
# A task's CPUs are by GPUs, by their numbers, or twice as many where cores have two threads.
_INNER_CORES = re.compile(
    rf"\s(?:--cpus-per-gpu{_IS}{_QUOTE}\w|--cpu[-_]bind{_IS}{_BY_NUMBER}|{_FOR_TASKS}"
    rf"|--threads-per-core{_IS}|--hint{_IS}{_QUOTE}nomultithread)"
)
# Files there count for the limit of their job, and for none of its processes, which are all that Slurm may look at.
_SHARED_MEMORY = re.compile(r"/dev/shm(?<!\w/dev/shm)\b")  # noqa: S108 - nothing is put there
_OWN_MEMORY = re.compile(r"\$\{?SLURM_MEM_PER_(?:NODE|CPU|GPU)\b")


class ScriptFloors(msgspec.Struct, frozen=True, kw_only=True):
    """What a script fixes: floors (0 = none), and dimensions to keep, each with what in the script asks for it.

    `tasks_by_fit`: where the job says no number of tasks, a step starts as many as have room in its CPUs. `on_nodes`: a
    step takes several nodes, `on_each_node`: a launcher is told how many ranks are on each.
    """

    memory_mib: int = 0
    cpus_per_task: int = 0
    kept: tuple[tuple[Dimension, str], ...] = ()
    tasks_by_fit: bool = False
    on_nodes: bool = False
    on_each_node: bool = False


class Step(msgspec.Struct, frozen=True):
    """An srun inside a script: its line from its name on, and whether the next command does not wait for it."""

    options: str
    background: bool


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
    lines = (line for line in script.splitlines() if not line.lstrip().startswith("#"))
    body = "\n".join(lines).replace("\\\n", "")
    steps = _steps(body)
    memory = [HEAP_OVERHEAD * _mib(text, "B") for text in _HEAP.findall(body)]
    memory += [_mib(text, "M") for text in _MEMORY_OPTION.findall(body)]
    memory.append(_held([(_step_mib(step.options), step.background) for step in steps]))
    cpus = [int(number) for threads in _THREADS for number in threads.findall(body)]
    cpus += [math.ceil(number / num_tasks) for number in _ranks(body)]
    held = _held([(_step_cpus(step.options, num_tasks), step.background) for step in steps])
    cpus.append(math.ceil(held / num_tasks))
    # Each task of a step has its CPUs on one node, where there may be no more than one of the job's tasks.
    cpus += [int(number) for step in steps for number in _INNER_CPUS.findall(step.options)]
    return ScriptFloors(
        memory_mib=math.ceil(max(memory, default=0)),
        cpus_per_task=max(cpus, default=0),
        kept=tuple(_kept(body, [step.options for step in steps])),
        tasks_by_fit=any(_says_cpus_alone(step.options) for step in steps),
        on_nodes=any(_INNER_NODES.search(step.options) for step in steps),
        on_each_node=any(map(_RANKS_PER_NODE.search, _launched(body))),
    )


def _steps(body: str) -> list[Step]:
    """Return the sruns of a script in their order."""
    found = list(_INNER.finditer(body))
    # One pass for all: each by itself would read on to the end of a long line.
    ends = [(end.start(), end[0] == "&") for end in _LIST_END.finditer(body)] if found else []
    ends.append((len(body), False))
    return [Step(step[1], ends[bisect.bisect_left(ends, (step.end(), False))][1]) for step in found]


def _held(amounts: Sequence[tuple[float, bool]]) -> float:
    """Return how much steps hold at a time: those in the background all at once, each of the others by itself."""
    alone = max((amount for amount, background in amounts if not background), default=0)
    return max(alone, sum(amount for amount, background in amounts if background))


def _ranks(body: str) -> list[int]:
    """Return how many ranks each launcher is told to start: the first number of its own command."""
    return [int(found[1]) for found in map(_RANKS.search, _launched(body)) if found]


def _launched(body: str) -> list[str]:
    """Return the command of each launcher, from its name on."""
    if not any(launcher in body for launcher in _LAUNCHERS):
        return []
    return [_COMMAND_END.split(launched, 1)[0] for launched in _LAUNCHER.split(body)[1:]]


def _step_cpus(options: str, num_tasks: int) -> int:
    """Return the CPUs that an inner srun asks for in numbers; 0 where it takes what the job has.

    One that says no number of tasks starts those of the job. Several on one node are as many for each task of the job.
    """
    tasks, each_node = _INNER_TASKS.search(options), _INNER_TASKS_PER_NODE.search(options)
    cpus = _INNER_CPUS.search(options)
    if not (tasks or each_node or cpus):
        return 0
    started = int(tasks[1]) if tasks else num_tasks * int(each_node[1] if each_node else 1)
    if tasks and started > 1 and _INNER_ONE_NODE.search(options):
        started *= num_tasks
    return started * int(cpus[1] if cpus else 1)


def _says_cpus_alone(options: str) -> bool:
    """Whether an inner srun says CPUs in numbers, and no number of tasks."""
    return bool(_INNER_CPUS.search(options)) and not (
        _INNER_TASKS.search(options) or _INNER_TASKS_PER_NODE.search(options)
    )


def _step_mib(options: str) -> float:
    return max((_mib(text, "M") for text in _INNER_MEMORY.findall(options)), default=0.0)


def _mib(text: str, bare_unit: str) -> float:
    return parse_memory_mib(text, bare_unit=bare_unit) or 0.0


def _kept(body: str, inner: Sequence[str]) -> list[tuple[Dimension, str]]:
    kept: list[tuple[Dimension, str]] = []
    if _OWN_MEMORY.search(body):
        # It takes whatever it is given: what it took before is no measure of what it needs.
        kept.append(("memory", "the script passes its memory on"))
    elif _SHARED_MEMORY.search(body):
        kept.append(("memory", "the script has files in memory (/dev/shm)"))
    elif "-Xmx" not in body and _JAVA.search(body):
        kept.append(("memory", "Java's heap follows the memory of its job"))
    elif _HEAP_PERCENT.search(body) or any(_INNER_SHARES.search(options) for options in inner):
        kept.append(("memory", "the script fixes its memory"))
    if any(_INNER_GPUS.search(options) for options in inner):
        kept.append(("gpus", "an srun in the script fixes its GPUs"))
    if any(_INNER_CORES.search(options) for options in inner):
        kept.append(("cores", "an srun in the script fixes its CPUs"))
    return kept
