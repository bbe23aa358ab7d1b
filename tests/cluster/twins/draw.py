"""Requests drawn by chance: combinations of options that nobody would write a row of the matrix for. Pure."""

from __future__ import annotations

import random
import shlex
from collections.abc import Callable, Sequence

from tests.cluster.matrix.form import Command, Form
from tests.cluster.twins.scripts import STEP, script_drawn

# A request has one of each group; "" is none of it, and as likely as its share of the group.
_NODES = ("", "", "", "-N 1", "-N 2", "-N 3", "-N 1-2")
_TASKS = ("", "", "-n 1", "-n 2", "-n 3", "-n 5", "--ntasks-per-node=2", "--ntasks-per-node=3")
_CPUS = ("", "-c 1", "-c 2", "-c 3", "-c 4", "-c 8")
_MEMORY = ("", "--mem=2000", "--mem=6G", "--mem=16000", "--mem=0", "--mem-per-cpu=400", "--mem-per-cpu=3G")
_GPUS = (
    *("",) * 6,
    *("--gres=gpu:1", "--gres=gpu:2", "--gres=gpu:a:2", "--gres=gpu:a:1,gpu:b:2", "--gres=shard:3"),
    *("--gpus=1", "--gpus=2", "--gpus=3", "--gpus=b:2", "--gpus-per-node=2", "--gpus-per-task=1"),
    *("--gpus-per-node=b:2", "--gpus-per-task=2", "--gpus=4", "--sockets-per-node=1 --gpus-per-socket=2"),
)
# With GPUs, amounts of each GPU may take the place of other amounts.
_CPUS_WITH_GPUS = (*_CPUS, "--cpus-per-gpu=2")
_MEMORY_WITH_GPUS = (*_MEMORY, "--mem-per-gpu=2000", "--mem-per-gpu=5G")
_WITH_GPUS = (
    *("", "", "", "", "", "", "", "", "--ntasks-per-gpu=1", "--gpu-bind=single:1", "--gpu-bind=closest"),
    *("--gres-flags=enforce-binding", "--gres-flags=disable-binding"),
)
# A request has each of these with a chance of one in sixteen.
_FURTHER = (
    *("--exclusive", "--exclusive=user", "--oversubscribe", "--overcommit", "--contiguous", "--spread-job"),
    *("--use-min-nodes", "--threads-per-core=1", "--hint=nomultithread", "--hint=compute_bound"),
    *("--mincpus=4", "--ntasks-per-core=1", "--ntasks-per-socket=2", "--sockets-per-node=1"),
    *("--cores-per-socket=4", "--distribution=cyclic", "--distribution=block:cyclic", "--no-kill"),
    *("--distribution=plane=2", "-B 1:4:1", "--hint=memory_bound", "--mem-bind=local"),
    *("-C fast", "-C '[fast*2]'", "-C '[fast*1&even*1]'", "--prefer=even", "--switches=1"),
)
_FURTHER_CHANCE = 1 / 16
_COMMANDS: tuple[Command, ...] = (
    *("sbatch", "sbatch", "sbatch", "#SBATCH", "#SBATCH", "sbatch --wrap", "srun", "salloc"),
)
_DIRECT: tuple[Command, ...] = ("srun", "srun", "srun", "salloc")
# What only sbatch takes; the job is then several.
_ARRAYS = {"--array=1-2": 2, "--array=1-3%1": 3}
_ARRAY_CHANCE = 1 / 12
# A request with one of these is left as it is, a client's also with one of the second row (docs/forms.md). Most of
# them are drawn again: what is not cut cannot lose anything.
_KEPT = ("-N 1-2", "--mem=0", "--exclusive", "--exclusive=user", "--spread-job")
_KEPT_OF_CLIENTS = ("--distribution=cyclic", "--distribution=block:cyclic", "--distribution=plane=2")
_DRAWN_AGAIN = 9 / 10
# Slurm refuses these together, or slurmctld dies of them (24.11: the first pair), whether we are there or not.
_EXCLUDE_EACH_OTHER = (
    ("--spread-job", "-C '["),
    ("--exclusive", "--oversubscribe"),
    *(
        ("--ntasks-per-gpu", word)
        for word in ("--ntasks-per-node", "--gpus-per-task", "--sockets-per-node=1 ")
    ),
    *(("--gres=shard", word) for word in ("--mem-per-gpu", "--cpus-per-gpu", "--ntasks-per-gpu")),
    *((gpus, "-N 3") for gpus in ("--gpus=1", "--gpus=2", "--gpus=b:2")),
    ("--gpus=1", "-N 2"),
    *((cpus, "-n 5", "-N 1") for cpus in ("-c 4", "-c 8")),
)
# Variables that stand for options, without the prefix that each command has, and how often one does.
_VARIABLES = {
    "--mem": "MEM_PER_NODE",
    "--mem-per-cpu": "MEM_PER_CPU",
    "--mem-per-gpu": "MEM_PER_GPU",
    "--gres": "GRES",
    "--gpus": "GPUS",
    "--gpus-per-node": "GPUS_PER_NODE",
    "--gpus-per-task": "GPUS_PER_TASK",
    "--cpus-per-gpu": "CPUS_PER_GPU",
}
_VARIABLES_OF_SRUN = {"-c": "SRUN_CPUS_PER_TASK", "-n": "SLURM_NTASKS", "-N": "SLURM_NNODES"}
_PREFIXES: dict[Command, str] = {"srun": "SLURM_", "salloc": "SALLOC_"}
_BY_VARIABLE = 1 / 8
_USED_MIB = (200.0, 900.0, 3000.0)


def drawn(count: int, seed: int, places: Sequence[str] = (), *, asking: bool = False) -> list[Form]:
    """Draw `count` requests; the same seed draws the same ones. What must be cut is not said: see compare.py.

    Each has one of `places`, options that say where it may run or under whose limits. If they are of clients that are
    `asking` the service themselves, all are direct, and most of a kind that is cut.
    """
    chance = random.Random(seed)
    return [_drawn(chance, f"drawn-{_letters(number)}", places, asking=asking) for number in range(count)]


def _letters(number: int) -> str:
    """Spell a number as letters: names that differ only by a number are one family."""
    high, low = divmod(number, 26)
    return (_letters(high - 1) if high else "") + chr(ord("a") + low)


def _drawn(chance: random.Random, name: str, places: Sequence[str], *, asking: bool) -> Form:
    command = chance.choice(_DIRECT if asking else _COMMANDS)
    options = _options(chance)
    while _is_useless(command, options) or (
        _is_kept(options, asking=asking) and chance.random() < _DRAWN_AGAIN
    ):
        options = _options(chance)
    options += [chance.choice(places)] if places else []
    direct = command in {"srun", "salloc"}
    arrays = [] if direct else [array for array in _ARRAYS if chance.random() < _ARRAY_CHANCE][:1]
    variables = {option: variable for option in options if (variable := _variable_for(option, command))}
    # Where clients do not ask, nothing shows that the tasks of an srun see its variables too.
    exported = {
        option: one
        for option, one in variables.items()
        if chance.random() < _BY_VARIABLE and (asking or command != "srun")
    }
    return Form(
        name=name,
        asks=" ".join(option for option in [*options, *arrays] if option and option not in exported),
        environment=dict(exported.values()),
        cut={},
        command=command,
        tasks=_tasks(options),
        jobs=_ARRAYS[arrays[0]] if arrays else 1,
        used_mib=chance.choice(_USED_MIB),
        script=STEP if command == "srun" else script_drawn(chance, direct=direct),
    )


def _variable_for(option: str, command: Command) -> tuple[str, str] | None:
    """Return the variable that stands for an option, and its value; None if there is none."""
    word, _, value = option.replace("=", " ", 1).partition(" ")
    if command == "srun" and word in _VARIABLES_OF_SRUN:
        return _VARIABLES_OF_SRUN[word], value
    return (_PREFIXES.get(command, "SBATCH_") + _VARIABLES[word], value) if word in _VARIABLES else None


def _options(chance: random.Random) -> list[str]:
    gpus = chance.choice(_GPUS)
    cpus, memory = (_CPUS_WITH_GPUS, _MEMORY_WITH_GPUS) if gpus else (_CPUS, _MEMORY)
    options = [chance.choice(group) for group in (_NODES, _TASKS, cpus, memory)]
    options += [gpus, chance.choice(_WITH_GPUS) if gpus else ""]
    return options + [option for option in _FURTHER if chance.random() < _FURTHER_CHANCE]


def _is_useless(command: Command, options: Sequence[str]) -> bool:
    """Whether a request would not run anywhere; of an srun of one task with two nodes by a constraint 22.05 dies."""
    several = any("*" in option for option in options)
    return (
        (several and ("-N 1" in options or (command == "srun" and "-n 1" in options)))
        or any(all(any(map(_asks(word), options)) for word in words) for words in _EXCLUDE_EACH_OTHER)
        or (any(map(_asks("--gpus-per-task"), options)) and not any(map(_asks("-n"), options)))
    )


def _asks(word: str) -> Callable[[str], bool]:
    return lambda option: option.startswith(word)


def _is_kept(options: Sequence[str], *, asking: bool) -> bool:
    return not set(options).isdisjoint((*_KEPT, *(_KEPT_OF_CLIENTS if asking else ()))) or not any(options)


def _tasks(options: Sequence[str]) -> int:
    """Return how many tasks the past jobs had: those that a request of these options has at least."""
    asked = {word: int(number) for word, number in map(_number_of, options) if number.isdigit()}
    return asked.get("-n") or asked.get("-N", 1) * asked.get("--ntasks-per-node", 1)


def _number_of(option: str) -> tuple[str, str]:
    word, _, number = option.replace("=", " ").partition(" ")
    return word, number.partition("-")[0]


def words_of(form: Form) -> list[str]:
    """Return the words of a direct job's command."""
    return shlex.split(form.script)
