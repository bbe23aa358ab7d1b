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
# Options of steps that run next to each other.
_BESIDE_EACH_OTHER = (
    *("-n 1 --exact", "-n 1 -c 1 --exact", "-n 1 --exact --mem=500", "-n 1 --overlap", "-n1 -c1 --mem=700"),
    *("-n 1 --exclusive", "-N 1 -n 1 -c 2 --exact --mem=300", "--overlap", "-N1 -n1 --exclusive --mem 600M"),
    *("-n 1 --exact --gpus=1", "-n 1 --exact --gpus-per-task=1 --mem=200", "-n 1 --mem=400", "-n 1 -G 1"),
    *(
        "-n 1 -c $SLURM_CPUS_PER_TASK --exact",
        "-n 1 --exact --mem-per-cpu=200",
        "--ntasks=1 --mem=1G --exact",
    ),
)
# How people write that: {step} is what each runs, {options} are those of its srun.
_WAYS_BESIDE = (
    "srun {options} {step} &\nsrun {options} {step} &\nwait\n",
    "for i in 1 2 3; do\n  srun {options} {step} &\ndone\nwait\n",
    "for i in 1 2; do (cd /; srun {options} {step}; true) & done; wait\n",
    "(cd /; srun {options} {step}; true) &\n(cd / && srun {options} {step}) &\nwait\n",
    "{{ srun {options} {step}; }} & {{ srun {options} {step}; true; }} & wait\n",
    "run() {{\n  srun {options} {step}\n  true\n}}\nrun 1 & run 2 &\nwait\n",
    "run () {{ srun {options} {step}; }}\nfor i in 1 2; do run $i & done\nwait\n",
    'launch="srun {options}"\n$launch {step} &\n$launch {step} &\nwait\n',
    'options="{options}"\nsrun $options {step} & srun $options {step} & wait\n',
    "i=0\nwhile [ $i -lt 2 ]; do\n  i=$((i+1))\n  srun {options} {step} &\ndone\nwait\n",
    "seq 2 | xargs -P 2 -I X srun {options} {step}\n",
    "srun {options} {step} | cat &\nsrun {options} {step} 2>&1 | cat &\nwait\n",
    "srun {options} {step} & first=$!\nsrun {options} {step} & wait $first; wait\n",
    "srun {options} \\\n  {step} &\nsrun {options} \\\n  {step} &\nwait\n",
    "if true; then srun {options} {step} & fi\n[ 1 ] && srun {options} {step} &\nwait\n",
)
_BESIDE = 1 / 2
# What somebody types in an allocation is not known beforehand, but it fits one of any size.
_STARTS_IN_SALLOC = ("srun", "srun", "srun -n 1", "srun --overlap", "srun -N 1 -n 1")


def script_drawn(chance: random.Random, *, direct: bool) -> str:
    """Draw a script; for a salloc (`direct`), the command that it runs."""
    if direct:
        return f"{chance.choice(_STARTS_IN_SALLOC)} {STEP}"
    if chance.random() > _BESIDE:
        return f"{_telling('script')}\n{chance.choice(_STARTS)} {STEP}\n"
    options = chance.choice(_BESIDE_EACH_OTHER)
    return f"{_telling('script')}\n{chance.choice(_WAYS_BESIDE).format(options=options, step=_SLOW_STEP)}"
