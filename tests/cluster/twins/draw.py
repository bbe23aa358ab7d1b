"""Requests drawn by chance: combinations of options that nobody would write a row of the matrix for. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.cluster.matrix.form import Command, Form

# A request has one of each group; "" is none of it, and as likely as its share of the group.
_NODES = ("", "", "", "-N 1", "-N 2", "-N 3", "-N 1-2")
_TASKS = ("", "", "-n 1", "-n 2", "-n 3", "-n 5", "--ntasks-per-node=2", "--ntasks-per-node=3")
_CPUS = ("", "-c 1", "-c 2", "-c 3", "-c 4", "-c 8")
_MEMORY = ("", "--mem=2000", "--mem=6G", "--mem=16000", "--mem=0", "--mem-per-cpu=400", "--mem-per-cpu=3G")
_GPUS = (
    *("",) * 6,
    *("--gres=gpu:1", "--gres=gpu:2", "--gres=gpu:a:2", "--gres=gpu:a:1,gpu:b:2"),
    *("--gpus=1", "--gpus=2", "--gpus=3", "--gpus=b:2", "--gpus-per-node=2", "--gpus-per-task=1"),
)
# With GPUs, amounts of each GPU may take the place of other amounts.
_CPUS_WITH_GPUS = (*_CPUS, "--cpus-per-gpu=2")
_MEMORY_WITH_GPUS = (*_MEMORY, "--mem-per-gpu=2000", "--mem-per-gpu=5G")
_WITH_GPUS = ("", "", "", "--ntasks-per-gpu=1", "--gpu-bind=single:1", "--gres-flags=enforce-binding")
# A request has each of these with a chance of one in twelve.
_FURTHER = (
    *("--exclusive", "--exclusive=user", "--oversubscribe", "--overcommit", "--contiguous", "--spread-job"),
    *("--use-min-nodes", "--threads-per-core=1", "--hint=nomultithread", "--hint=compute_bound"),
    *("--mincpus=4", "--ntasks-per-core=1", "--ntasks-per-socket=2", "--sockets-per-node=1"),
    *("--cores-per-socket=4", "--distribution=cyclic", "--distribution=block:cyclic", "--no-kill"),
    *("-C fast", "-C '[fast*2]'"),
)
_FURTHER_CHANCE = 1 / 12
_COMMANDS: tuple[Command, ...] = ("sbatch", "sbatch", "#SBATCH", "sbatch --wrap", "srun", "salloc")
# How its script starts the step.
_STARTS = ("srun", "srun", "srun", "srun -n 1", "srun -c 2", "srun --mem=1000", "srun --exact -n 1 -c 1")
_USED_MIB = (200.0, 900.0, 3000.0)
# Each task says which of the job's nodes it is on, and which GPUs it sees.
STEP = "sh -c 'echo task=$SLURM_NODEID gpus=$CUDA_VISIBLE_DEVICES'"


def drawn(count: int, seed: int, places: Sequence[str] = ()) -> list[Form]:
    """Draw `count` requests; the same seed draws the same ones. What must be cut is not said: see compare.py.

    Each has one of `places`, options that say where it may run or under whose limits.
    """
    chance = random.Random(seed)
    return [_drawn(chance, f"drawn-{_letters(number)}", places) for number in range(count)]


def _letters(number: int) -> str:
    """Spell a number as letters: names that differ only by a number are one family."""
    high, low = divmod(number, 26)
    return (_letters(high - 1) if high else "") + chr(ord("a") + low)


def _drawn(chance: random.Random, name: str, places: Sequence[str]) -> Form:
    gpus = chance.choice(_GPUS)
    cpus, memory = (_CPUS_WITH_GPUS, _MEMORY_WITH_GPUS) if gpus else (_CPUS, _MEMORY)
    options = [chance.choice(group) for group in (_NODES, _TASKS, cpus, memory)]
    options += [gpus, chance.choice(_WITH_GPUS) if gpus else ""]
    options += [option for option in _FURTHER if chance.random() < _FURTHER_CHANCE]
    options += [chance.choice(places)] if places else []
    return Form(
        name=name,
        asks=" ".join(filter(None, options)),
        cut={},
        command=chance.choice(_COMMANDS),
        tasks=_tasks(options),
        used_mib=chance.choice(_USED_MIB),
        script=f"{chance.choice(_STARTS)} {STEP}\n",
    )


def _tasks(options: list[str]) -> int:
    """Return how many tasks the past jobs had: those that a request of these options has at least."""
    asked = {word: int(number) for word, number in map(_number_of, options) if number.isdigit()}
    return asked.get("-n") or asked.get("-N", 1) * asked.get("--ntasks-per-node", 1)


def _number_of(option: str) -> tuple[str, str]:
    word, _, number = option.replace("=", " ").partition(" ")
    return word, number.partition("-")[0]
