"""GROMACS' mdrun ends if its numbers of threads and ranks do not match each other, or its CPUs (seen with 2022.5)."""

import pytest

from slurm_plugin.policy.script_floors import ScriptFloors, read_floors

DIVIDES = ScriptFloors(kept=(("cores", "GROMACS' ranks and threads must divide its CPUs"),))


@pytest.mark.parametrize(
    ("body", "num_tasks", "cpus"),
    [
        ("export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\ngmx mdrun -ntmpi 1 -ntomp 8", 1, 8),
        ("mpirun -np $SLURM_NTASKS gmx_mpi mdrun -ntomp 4 -v", 4, 4),
        ("srun mdrun_mpi -ntomp '4'", 4, 4),
        ("gmx mdrun -ntmpi 4 -ntomp 2 -deffnm md", 1, 8),
        ("gmx mdrun -ntmpi 4 -ntomp 2", 4, 2),
        ("T=8\ngmx mdrun -nt $T", 1, 8),
        ("gmx mdrun -nt 8 | tee -ntomp 16", 1, 8),
        ("gmx mdrun -ntmpi 1 -ntomp $SLURM_CPUS_PER_TASK", 1, 1),
        ("gmx mdrun -ntmpi $SLURM_NTASKS -ntomp $SLURM_CPUS_PER_TASK -npme 2", 4, 0),
        ("gmx mdrun -nt $SLURM_CPUS_PER_TASK -npme 0", 1, 0),
        # One divides every number, and the number of GPUs is no number of CPUs.
        ("gmx mdrun -nt $SLURM_CPUS_PER_TASK -ntmpi 1", 1, 1),
        ("gmx mdrun -ntmpi $SLURM_GPUS_ON_NODE -npme 1", 1, 0),
        ("gmx mdrun", 1, 0),
        ("gmx grompp -ntomp 8; xmdrun -ntomp 8", 1, 0),
    ],
)
def test_threads_that_are_written_out_are_a_floor(body: str, num_tasks: int, cpus: int) -> None:
    assert read_floors(body, num_tasks) == ScriptFloors(cpus_per_task=cpus)


@pytest.mark.parametrize(
    "options",
    [
        "-nt $SLURM_CPUS_PER_TASK -ntmpi $RANKS",
        '-nt "$(nproc)" -ntomp $T',
        "-ntomp `threads` -nt ${SLURM_CPUS_PER_TASK}",
        "-ntmpi $SLURM_CPUS_PER_TASK -npme 12",
        "-ntmpi $SLURM_CPUS_PER_TASK \\\n  -dd 2 2 2",
    ],
)
def test_cpus_stay_if_another_number_must_divide_them(options: str) -> None:
    assert read_floors(f"gmx mdrun {options}\n", 1) == DIVIDES
