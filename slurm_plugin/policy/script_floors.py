"""What a script fixes by itself: a program that is told to use 16 GB does not know that its job was given less.

This reads the parts of the script that the hook sends, with continued lines joined. A number that is written out
becomes a floor. A number that cannot be read, or an inner srun that asks for its own share, keeps the dimension as
asked.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Sequence

import msgspec

from accounting.request import Dimension
from accounting.units import parse_memory_mib
from models.past.families import without_numbers
from slurm_plugin.policy.script_gromacs import mdrun_cpus, mdrun_divides
from slurm_plugin.policy.script_java import (
    HEAP,
    HEAP_OPTIONS,
    HEAP_OVERHEAD,
    HEAP_PERCENT,
    HEAP_UNREAD,
    follows_its_job,
)
from slurm_plugin.policy.script_launchers import (
    BY_CPUS,
    CPUS_BY_NUMBER,
    RANKS_BY_CPUS,
    kept_by_launchers,
    launched_cpus,
    read_launched,
)
from slurm_plugin.policy.script_parts import read_parts
from slurm_plugin.policy.script_programs import is_session, kept_by_programs
from slurm_plugin.policy.script_steps import Step, farmed, held_at_once, read_steps, turns
from slurm_plugin.policy.script_threads import WORDS, ThreadsHeld, threads_each, told_cpus
from slurm_plugin.policy.script_values import IS, LAUNCHERS, QUOTE, UNREAD, with_values

_SAY_MEMORY = tuple(
    f"{option}{IS}{QUOTE}"
    for option in (
        "--(?:max[-_]?mem(?:ory)?|(?:driver-|executor-)?memory|mem-limit|memory-limit)",
        r"spark\.(?:driver|executor)\.memory",
    )
)
_MEMORY_OPTIONS = [re.compile(rf"{says}(\d+(?:\.\d+)?[kKmMgGtT]?)i?[bB]?\b") for says in _SAY_MEMORY]
_MEMORY_OPTIONS_UNREAD = [re.compile(rf"{says}[$`]") for says in _SAY_MEMORY]
# These begin with plain letters: searching for those is ten times as fast as for a word boundary, and a submission
# waits. What may not precede them is checked by a lookbehind after them. The first is Slurm's own variable, by which
# an srun in the script asks.
_CPUS_EXPORTED = re.compile(rf"_CPUS_PER_TASK{IS}{QUOTE}(\d{{1,4}})\b")
# By which an srun counts its tasks, unless it says -n. What a script gives to its program sets nothing
# (`./a $SLURM_NTASKS 1000`).
_TASKS_EXPORTED = re.compile(rf"SLURM_N(?:TASKS|PROCS)(?<!\$SLURM_N\w{{5}}){IS}{QUOTE}(\d{{1,6}})\b")
_TASKS_EXPORTED_UNREAD = re.compile(rf"SLURM_N(?:TASKS|PROCS)={QUOTE}{UNREAD}")
_THREADS = (
    # OpenMP, MKL, OpenBLAS, Julia, Rayon and many more; csh sets it without a sign in between.
    re.compile(rf"_NUM_THREADS{IS}{QUOTE}(\d{{1,4}})\b"),
    re.compile(
        rf"-(?<!\w-)(?:-?(?:threads|num[-_](?:threads|cpus)|n?cpus|nproc|cores|jobs){IS}|[t@jp]\s+)"
        # GNU parallel's `-j 50%` follows what the job has.
        rf"{QUOTE}(\d{{1,4}})\b(?!\.?\d*%)"
    ),
    re.compile(r"make(?<!\wmake)\s+-j\s*(\d{1,4})\b"),
    # Spark waits for ever for an executor that has more cores than its workers.
    re.compile(rf"executor(?<!total-executor)[-.]cores{IS}{QUOTE}(\d{{1,4}})\b"),
)
# Variables matter only in what such a word asks for: a script without any of these is read as it is.
_ASKING = (
    "srun",
    *LAUNCHERS,
    "mdrun",
    *HEAP_OPTIONS,
    *WORDS,
    "mem",
    "((",
    "nproc",
    "num_",
    "num-",
    "arallel",
    ".devices",
    "CUDA_VIS",
)
# With fewer CPUs, one of these numbers is not among the job's, and the program is not started.
_CPUS_BY_NUMBER = re.compile(
    r"taskset(?<!\wtaskset)\s+(?:(?:-a?c|--cpu-list)[ \t]+[^\s-]|\dx)"
    # Nodes of memory too: all remaining CPUs may belong to another one.
    r"|numactl\b[^\n;|&]{0,80}\s(?:-[CN]|--(?:physcpu|cpunode|cpu)bind)"
    r"|--cpu-?set(?:-cpus)?[= \t]|SLURM_CPU_BIND=\S{0,80}?ma(?:p|sk)_"
    # GNU's OpenMP («Thread creation failed») and Charm++ end if a CPU is missing; others only warn.
    r"|GOMP_CPU_AFFINITY[= \t]|\+(?:pe|com)map[ \t]"
)
_INNER_TASKS = re.compile(rf"\s(?:-n\s*|--ntasks{IS}){QUOTE}(\d{{1,6}})\b")
_INNER_TASKS_PER_NODE = re.compile(rf"\s--n?tasks-per-node{IS}{QUOTE}(\d{{1,6}})\b")
_INNER_ONE_NODE = re.compile(rf"\s(?:-N\s*|--nodes{IS}){QUOTE}1\b(?!-)")
_INNER_EACH_NODE = re.compile(r"\s--n?tasks-per-node\b|\s(?:-m|--distribution)[=\s]+[\"']?plane\b")
_INNER_NODES = re.compile(rf"\s(?:-N\s*|--nodes{IS}){QUOTE}(?!1\b)\d")
_INNER_CPUS = re.compile(rf"\s(?:-c\s*|--cpus-per-task{IS}){QUOTE}(\d{{1,4}})\b")
_INNER_TASKS_BY_CPUS = re.compile(rf"\s(?:-n\s*|--n?tasks(?:-per-node)?{IS}){QUOTE}{BY_CPUS}")
_INNER_CPUS_UNREAD = re.compile(
    rf"\s(?:-[nc]\s*|--(?:ntasks(?:-per-node)?|tasks-per-node|cpus-per-task){IS}){QUOTE}{UNREAD}"
)
# Such a step has CPUs to itself that no step next to it has, and the memory that comes with them.
_INNER_PART = re.compile(r"\s(?:-c\s*\S|--cpus-per-task|--exact\b|--exclusive\b)")
_INNER_AS_A_TASK = re.compile(rf"\s(?:-c\s*|--cpus-per-task{IS}){QUOTE}\$\{{?SLURM_CPUS_PER_TASK\b")
# Parts of a step that Slurm puts on different nodes: what each has there is not known beforehand.
_INNER_PARTS = re.compile(r"\s:\s+\S")
_INNER_MEMORY = re.compile(rf"\s--mem{IS}{QUOTE}(\d+[kKmMgGtT]?)[bB]?\b")
_INNER_MEMORY_UNREAD = re.compile(rf"\s--mem(?:-per-[cg]pu)?{IS}{QUOTE}{UNREAD}")
_INNER_SHARES = re.compile(rf"\s--mem-per-(?:cpu|gpu){IS}(?![\s$])")
# CPUs and GPUs by their numbers on the node: with fewer of them the step fails, or a task sees none.
_BY_NUMBER = r"\S*(?:\$|ma(?:p|sk)_)"
# Options that fix both CPUs and GPUs, for each task, or tasks for each GPU.
_FOR_TASKS = rf"--(?:tres-per-task|ntasks-per-gpu){IS}"
_INNER_GPUS = re.compile(
    rf"\s(?:(?:--gres|--gpus(?:-per-\w+)?|-G)(?:=|[ \t]*){QUOTE}\w|--gpu-bind{IS}{_BY_NUMBER}|{_FOR_TASKS})"
)
_INNER_GPUS_UNREAD = re.compile(rf"\s(?:--gres|--gpus(?:-per-\w+)?|-G)(?:=|[ \t]*){QUOTE}{UNREAD}")
# A task's CPUs are given by GPUs or by number, or count double where cores have two threads.
_INNER_CORES = re.compile(
    rf"\s(?:--cpus-per-gpu{IS}{QUOTE}\w|--cpu[-_]bind{IS}{_BY_NUMBER}|{_FOR_TASKS}"
    rf"|--threads-per-core{IS}|--hint{IS}{QUOTE}nomultithread)"
)
# Processes or parts of a model, one on each GPU, as torchrun, accelerate, DeepSpeed, Megatron, vLLM and Lightning
# start them. If more than one is asked for and there are fewer GPUs, the rest find none («invalid device ordinal»).
_GPU_OPTIONS = (
    r"--(?:nproc[-_]per[-_]node|num[-_](?:processes|gpus)|trainer\.devices|(?:tensor|pipeline|data|context|expert)"
    rf"[-_](?:model[-_])?parallel[-_]size){IS}{QUOTE}"
)
# A script that counts the GPUs that it sees follows them.
_ON_EACH_GPU = re.compile(rf"{_GPU_OPTIONS}(?:[2-9]|1\d|(?!\$\(nvidia-smi\b){UNREAD})")
_GPUS_BY_NUMBER = re.compile(rf"CUDA_VISIBLE_DEVICES={QUOTE}(?:\d+,\d|[1-9]\d*\b)")
_NUMBERED = re.compile(r"\b([A-Za-z_]+\d\w*)=")
COUNTS_UP = "the script counts up to the CPUs that its job has"
# Files there count towards the limit of their job, but not as any process's memory, which may be all that Slurm sees.
_SHARED_MEMORY = re.compile(r"/dev/shm(?<!\w/dev/shm)\b")  # noqa: S108 - nothing is put there
# Shell arithmetic needs no sign before a variable; other languages quote its name.
_OWN_MEMORY = re.compile(r"(?:\$\{?|[(*/+\"'-]\s*)SLURM_MEM_PER_(?:NODE|CPU|GPU)\b")


class ScriptFloors(msgspec.Struct, frozen=True, kw_only=True):
    """What a script fixes: floors (0 = none), and dimensions to keep, each with what in the script asks for it.

    `tasks_by_fit`: if the job gives no number of tasks, a step starts as many as fit its CPUs. `on_nodes`: a step
    takes several nodes. `on_each_node`: a step or a launcher is told how many ranks are on each node; `cpus_per_node`:
    the CPUs that a launcher's count on there. `least_part`: the fewest CPUs, with their memory, that a step has on a
    node, other than all of them or a task's (0: no step does). `session`: a person works in it.
    """

    memory_mib: int = 0
    cpus_per_task: int = 0
    kept: tuple[tuple[Dimension, str], ...] = ()
    tasks_by_fit: bool = False
    on_nodes: bool = False
    on_each_node: bool = False
    cpus_per_node: int = 0
    least_part: int = 0
    session: bool = False


NOTHING = ScriptFloors()


# Called twice for each submission.
@functools.lru_cache(maxsize=16)
def read_floors(script: str, num_tasks: int) -> ScriptFloors:
    """Return what a script fixes by itself. The job's `num_tasks` tasks share the ranks and steps that it starts."""
    plain = without_numbers(script)
    nothing = _fixes_nothing(plain, min(num_tasks, 2)) and not (_has_numbered(plain) and _names_alike(script))
    return NOTHING if nothing else _read(script, num_tasks)


# To look for such names takes longer than all else that is done for another task of a workflow.
@functools.lru_cache(maxsize=512)
def _has_numbered(script: str) -> bool:
    """Whether a script, its numbers hidden, sets variables that have numbers in their names."""
    return bool(_NUMBERED.search(script))


def _names_alike(script: str) -> bool:
    """Whether a script sets variables whose names differ only in numbers (`MPI1=…`, `MPI2=…`)."""
    names = set(_NUMBERED.findall(script))
    return len({without_numbers(name) for name in names}) < len(names)


# Tasks of a workflow differ only in numbers: if nothing is fixed when all digits are nines, nothing is by any others,
# but where two variables then are one that is set in two ways. What is fixed for two tasks is for any more.
@functools.lru_cache(maxsize=512)
def _fixes_nothing(script: str, num_tasks: int) -> bool:
    return _read(script.replace("0", "9"), num_tasks) == NOTHING


def _read(script: str, num_tasks: int) -> ScriptFloors:
    lines = (line for line in script.splitlines() if not line.lstrip().startswith("#"))
    body = "\n".join(lines).replace("\\\n", "")
    said = with_values(body) if any(word in body for word in _ASKING) else body
    threads, steps, parts = ThreadsHeld(said), read_steps(said), read_parts(said)
    launched = read_launched(said, threads)
    node_cpus = [(sum(part.node_cpus or 0 for part in command.parts), command.turn) for command in launched]
    options, own = [step.options for step in steps], [step.own for step in steps]
    heaps = list(HEAP.finditer(said))
    heaps_mib = (HEAP_OVERHEAD * _mib(heap[1], "B") for heap in heaps)
    memory = [held_at_once(zip(heaps_mib, turns(said, heaps), strict=True))]
    memory += [_mib(text, "M") for option in _MEMORY_OPTIONS for text in option.findall(said)]
    memory.append(held_at_once((_step_mib(step.options), step.turn) for step in steps))
    return ScriptFloors(
        memory_mib=math.ceil(max(memory, default=0)),
        cpus_per_task=max(
            (
                *_cpus(body, said, num_tasks),
                *launched_cpus(launched, num_tasks),
                *_steps_cpus(steps, threads, num_tasks),
                *parts.least_cpus,
            ),
            default=0,
        ),
        kept=(
            *_kept_memory(said, options, own),
            *_kept_by_steps(said, options, own),
            *_kept_by_farms(farmed(said, steps)),
            *kept_by_launchers(said, launched),
            *((("cores", CPUS_BY_NUMBER),) if _CPUS_BY_NUMBER.search(said) else ()),
            *_kept_gpus(said),
            *kept_by_programs(said),
            *((("cores", COUNTS_UP),) if parts.counts_up else ()),
            *((("cores", "GROMACS' ranks and threads must divide its CPUs"),) if mdrun_divides(said) else ()),
        ),
        tasks_by_fit=any(map(_says_cpus_alone, options)),
        on_nodes=any(map(_INNER_NODES.search, options)),
        cpus_per_node=math.ceil(held_at_once(node_cpus)),
        on_each_node=any(part.node_cpus is not None for command in launched for part in command.parts)
        or (num_tasks > 1 and any(map(_INNER_EACH_NODE.search, own))),
        least_part=min(filter(None, (_part(step, num_tasks) for step in steps)), default=0),
        session=is_session(said),
    )


def _cpus(body: str, said: str, num_tasks: int) -> Iterator[int]:
    """Yield the CPUs per task that commands count on; `said` is the script with its variables filled in."""
    for threads in _THREADS:
        yield from map(int, threads.findall(body))
    yield from map(int, _CPUS_EXPORTED.findall(said))
    yield from (math.ceil(int(tasks) / num_tasks) for tasks in _TASKS_EXPORTED.findall(said))
    yield from told_cpus(said, num_tasks)
    yield from mdrun_cpus(said, num_tasks)


def _steps_cpus(steps: Sequence[Step], threads: ThreadsHeld, num_tasks: int) -> Iterator[int]:
    """Yield the CPUs per task that inner sruns count on."""
    held = held_at_once((_step_cpus(step, threads.at(step.place), num_tasks), step.turn) for step in steps)
    yield math.ceil(held / num_tasks)
    # Each task of a step has its CPUs on one node, where there may be only one of the job's tasks.
    for step in steps:
        yield from map(int, _INNER_CPUS.findall(step.options))


def _step_cpus(step: Step, threads: int, num_tasks: int) -> int:
    """Return the CPUs that an inner srun counts on in numbers; 0 if it takes what the job has.

    Each of its tasks has as many threads as OMP_NUM_THREADS or its program's options say, unless it says `-c`. A step
    without a number of tasks starts as many as the job has. Several tasks on one node count once for each task of the
    job.
    """
    options = step.options
    tasks, each_node = _INNER_TASKS.search(options), _INNER_TASKS_PER_NODE.search(options)
    cpus = _INNER_CPUS.search(options)
    if not (tasks or each_node or cpus):
        return 0
    started = int(tasks[1]) if tasks else num_tasks * int(each_node[1] if each_node else 1)
    if tasks and started > 1 and _INNER_ONE_NODE.search(options):
        started *= num_tasks
    return started * (int(cpus[1]) if cpus else max(threads, threads_each(options)))


def _takes_part(options: str) -> bool:
    """Whether an inner srun has CPUs to itself, other than as many as a task of the job has."""
    return bool(_INNER_PART.search(options)) and not _INNER_AS_A_TASK.search(options)


def _part(step: Step, num_tasks: int) -> int:
    """Return the fewest CPUs that such a step has on one node; 0 if it has all of the job's, or a task's."""
    options = step.own
    if not _takes_part(options):
        return 0
    cpus = _INNER_CPUS.search(options)
    return max(1, _step_cpus(Step(options), 1, 1) if num_tasks == 1 else int(cpus[1]) if cpus else 1)


def _says_cpus_alone(options: str) -> bool:
    """Whether an inner srun gives CPUs in numbers, and no number of tasks."""
    return bool(_INNER_CPUS.search(options)) and not (
        _INNER_TASKS.search(options) or _INNER_TASKS_PER_NODE.search(options)
    )


def _step_mib(options: str) -> float:
    return max((_mib(text, "M") for text in _INNER_MEMORY.findall(options)), default=0.0)


def _mib(text: str, bare_unit: str) -> float:
    return parse_memory_mib(text, bare_unit=bare_unit) or 0.0


def _kept_memory(body: str, steps: Sequence[str], own: Sequence[str]) -> Iterator[tuple[Dimension, str]]:
    if "SLURM_MEM_PER_" in body and _OWN_MEMORY.search(body):
        # The script uses whatever it is given: what it used before is no measure of what it needs.
        yield "memory", "the script passes its memory on"
    elif _SHARED_MEMORY.search(body):
        yield "memory", "the script has files in memory (/dev/shm)"
    elif follows_its_job(body):
        yield "memory", "Java's heap follows the memory of its job"
    elif HEAP_PERCENT.search(body) or any(map(_INNER_SHARES.search, steps)):
        yield "memory", "the script fixes its memory"
    elif (
        HEAP_UNREAD.search(body)
        or any(option.search(body) for option in _MEMORY_OPTIONS_UNREAD)
        or any(map(_INNER_MEMORY_UNREAD.search, own))
    ):
        yield "memory", "the script fixes its memory by a number that cannot be read"


def _kept_by_steps(body: str, steps: Sequence[str], own: Sequence[str]) -> Iterator[tuple[Dimension, str]]:
    if any(map(_INNER_GPUS.search, steps)) or any(map(_INNER_GPUS_UNREAD.search, own)):
        yield "gpus", "an srun in the script fixes its GPUs"
    if any(_INNER_CORES.search(step) or _INNER_PARTS.search(step) for step in steps):
        yield "cores", "an srun in the script fixes its CPUs"
    elif any(map(_INNER_CPUS_UNREAD.search, own)) or (own and _TASKS_EXPORTED_UNREAD.search(body)):
        yield "cores", "an srun in the script asks for a number that cannot be read"
    elif any(map(_INNER_TASKS_BY_CPUS.search, own)):
        yield "cores", RANKS_BY_CPUS


def _kept_gpus(body: str) -> Iterator[tuple[Dimension, str]]:
    # A plain search is ten times as fast.
    if ("--" in body and _ON_EACH_GPU.search(body)) or (
        "CUDA_VISIBLE_DEVICES=" in body and _GPUS_BY_NUMBER.search(body)
    ):
        yield "gpus", "the script counts on so many GPUs"


def _kept_by_farms(farm: Sequence[Step]) -> Iterator[tuple[Dimension, str]]:
    """Yield what steps that run side by side wait for.

    With less of it, fewer of them run at once, and the time may not be enough.
    """
    if any(_takes_part(step.own) for step in farm):
        yield "cores", "the script starts steps side by side, and how many cannot be read"
    if any(_step_mib(step.options) for step in farm):
        yield "memory", "the script starts steps side by side, and how many cannot be read"
