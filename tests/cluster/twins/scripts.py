"""What drawn jobs run: steps that say where they are and what Slurm told them, one or several. Pure."""

from __future__ import annotations

import random

# What programs read of their job. Each line begins with where it was read.
VARIABLES = (
    *("CPUS_PER_TASK", "NTASKS", "NPROCS", "NTASKS_PER_NODE", "TASKS_PER_NODE", "JOB_NUM_NODES", "NNODES"),
    *("JOB_CPUS_PER_NODE", "MEM_PER_NODE", "MEM_PER_CPU", "MEM_PER_GPU", "THREADS_PER_CORE", "CPUS_PER_GPU"),
    *("GPUS", "GPUS_PER_NODE", "GPUS_PER_TASK", "TRES_PER_TASK", "STEP_NUM_TASKS", "STEP_TASKS_PER_NODE"),
)


def _telling(where: str) -> str:
    return f'env | sed -nE "s/^SLURM_({"|".join(VARIABLES)})=/{where} \\1=/p"'


# Each task says which of the job's nodes it is on, and which GPUs it sees.
STEP = f"sh -c 'echo task=$SLURM_NODEID gpus=$CUDA_VISIBLE_DEVICES; {_telling('step')}'"
_SLOW_STEP = STEP.replace("echo", "sleep 1; echo", 1)
# How a script starts its only step.
_STARTS = (
    *("srun", "srun", "srun", "srun", "srun -n 1", "srun -c 2", "srun --mem=1000", "srun --exact -n 1 -c 1"),
    *("srun -n 2", "srun -N 1 -n 1", "srun --overlap", "srun --mem=0", "srun --mem-per-cpu=300", "srun -l"),
    *("srun --gpus-per-task=1", "srun --gpus=1", "srun --gres=gpu:1", "srun --gres=none", "srun --exclusive"),
    *("srun -n $SLURM_NTASKS", "srun -c $SLURM_CPUS_PER_TASK", "srun --cpu-bind=cores", "srun -m cyclic"),
    *("srun --ntasks-per-node=1", "srun -n 1 -c $SLURM_CPUS_PER_TASK --mem=$SLURM_MEM_PER_NODE", "srun -O"),
)
# How a script starts steps that run next to each other.
_STARTS_BESIDE = (
    *("srun -n 1 --exact", "srun -n 1 -c 1 --exact", "srun -n 1 --exact --mem=500", "srun -n 1 --overlap"),
    *("srun -n 1 --exclusive", "srun -N 1 -n 1 -c 2 --exact --mem=300", "srun --overlap", "srun"),
    *("srun -n 1 --exact --gpus=1", "srun -n 1 --exact --gpus-per-task=1 --mem=200", "srun -n 1 --mem=400"),
    *("srun -n 1 -c $SLURM_CPUS_PER_TASK --exact", "srun -n 1 --exact --mem-per-cpu=200"),
)
_BESIDE = 1 / 3
# What somebody types in an allocation is not known beforehand, but it fits one of any size.
_STARTS_IN_SALLOC = ("srun", "srun", "srun -n 1", "srun --overlap", "srun -N 1 -n 1")


def script_drawn(chance: random.Random, *, direct: bool) -> str:
    """Draw a script; for a salloc (`direct`), the command that it runs."""
    if direct:
        return f"{chance.choice(_STARTS_IN_SALLOC)} {STEP}"
    if chance.random() > _BESIDE:
        return f"{_telling('script')}\n{chance.choice(_STARTS)} {STEP}\n"
    start, many = chance.choice(_STARTS_BESIDE), chance.choice((2, 3))
    if chance.random() < 1 / 2:
        steps = f"{start} {_SLOW_STEP} &\n" * many
    else:
        steps = f"for i in {' '.join(map(str, range(1, many + 1)))}; do\n  {start} {_SLOW_STEP} &\ndone\n"
    return f"{_telling('script')}\n{steps}wait\n"
