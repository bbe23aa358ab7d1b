"""A launcher's ranks, with the threads of each, are a floor of CPUs, however the script names the launcher."""

import pytest

from slurm_plugin.policy.script_floors import read_floors
from slurm_plugin.policy.submission import job_request
from slurm_plugin.service.decide import fixed_by
from tests.builders import submission


@pytest.mark.parametrize(
    ("body", "cpus"),
    [
        ("mpirun_rsh -np 8 -hostfile hosts ./a", 8),
        ("ibrun -n 8 -o 0 task_affinity ./a", 8),
        ("prun -n 8 ./a", 8),
        ("mpiexec_mpt -n 8 ./a", 8),
        ("mpiexecjl -n 8 julia a.jl", 8),
        ("aprun -n 4 -d 2 -cc depth ./a", 8),
        ("aprun -d 4 ./a", 4),
        ("aprun -n 2 ./a -c 8", 2),
        ("mpirun -c 8 ./a", 8),
        ("mpirun ./a -d 8", 0),
        ("mpirun -np 2 ./a : -np 6 ./b", 8),
        # Of the launcher whose name no table has, and of programs that start ranks by themselves.
        ("runParallel -np 8 simpleFoam", 8),
        ("starccm+ -batch run.java -np 8 a.sim", 8),
        # By a variable.
        ("MPIRUN=/opt/openmpi/bin/mpirun\n$MPIRUN -np 8 ./a", 8),
        ('MPI="${MPI_HOME}/bin/mpiexec.hydra"\n"$MPI" -n 8 ./a', 8),
        ("NP=8\nRUN=ibrun\n$RUN -n $NP ./a", 8),
    ],
)
def test_the_ranks_of_any_launcher_are_a_floor(body: str, cpus: int) -> None:
    """Open MPI's eight ranks had one CPU, where `-c` or a variable said them (22.05)."""
    assert read_floors(f"#!/bin/sh\n{body}\n", 1).cpus_per_task == cpus


@pytest.mark.parametrize(
    ("body", "cpus"),
    [
        ("export OMP_NUM_THREADS=2\nmpirun -np 4 ./a", 8),
        ("setenv OMP_NUM_THREADS 2\nmpirun -np 4 ./a", 8),
        ("OMP_NUM_THREADS=2\nexport OMP_NUM_THREADS\nmpirun -np 4 ./a", 8),
        ("mpirun -np 4 -x OMP_NUM_THREADS=2 ./a", 8),
        ("mpiexec -genv OMP_NUM_THREADS 2 -n 4 ./a", 8),
        ("OMP_NUM_THREADS=2 mpirun -np 4 ./a", 8),
        ("T=2\nexport OMP_NUM_THREADS=$T\nmpirun -np 4 ./a", 8),
        ("if x; then export OMP_NUM_THREADS=2; fi\nmpirun -np 4 ./a", 8),
        ("mpirun -np 4 gmx_mpi mdrun -ntomp 2", 8),
        ("mpirun -np 4 lmp -sf omp -pk omp 2 -in a", 8),
        ("export OMP_NUM_THREADS=2\nsrun -n 4 ./a", 8),
        ("srun -n 4 gmx_mpi mdrun -ntomp 2", 8),
        ("export OMP_NUM_THREADS=2\nsrun -n 2 ./a &\nsrun -n 2 ./b &\nwait", 8),
        # Slurm gives each of these tasks one CPU.
        ("export OMP_NUM_THREADS=2\nsrun -n 4 -c 1 ./a", 4),
        # Of another command, set again, or later.
        ("OMP_NUM_THREADS=2 ./a\nmpirun -np 4 ./b", 4),
        ("env OMP_NUM_THREADS=2 ./a; mpirun -np 4 ./b", 4),
        ("export OMP_NUM_THREADS=4\n./a\nexport OMP_NUM_THREADS=1\nmpirun -np 4 ./b", 4),
        ("mpirun -np 4 ./a\nexport OMP_NUM_THREADS=4\n./b", 4),
        ("export OMP_NUM_THREADS=4\n./a\nunset OMP_NUM_THREADS\nmpirun -np 4 ./b", 4),
        ("export OMP_NUM_THREADS=4\n./a\nOMP_NUM_THREADS=1 MKL_NUM_THREADS=1\nmpirun -np 4 ./b", 4),
        ("export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\nmpirun -np 4 ./a", 4),
        ("mpirun -np 4 -x OMP_NUM_THREADS ./a", 4),
    ],
)
def test_ranks_count_with_the_threads_of_each(body: str, cpus: int) -> None:
    """Four ranks of two threads had four CPUs (LAMMPS, and GROMACS' options, on 22.05)."""
    assert read_floors(f"#!/bin/sh\n{body}\n", 1).cpus_per_task == cpus


@pytest.mark.parametrize(
    ("body", "cpus"),
    [
        ("mpirun -np 4 ./a &\nmpirun -np 4 ./b &\nwait", 8),
        ("(cd a; mpirun -np 4 ./a) &\n(cd b; mpirun -np 4 ./a > log 2>&1) &\nwait", 8),
        ("ibrun -n 4 -o 0 ./a | tee log &\nibrun -n 4 -o 4 ./b &\nwait\nibrun -n 6 ./c", 8),
        ("mpirun -np 4 ./a\nmpirun -np 4 ./b", 4),
        ("gmx mdrun -ntomp 4 -s a &\ngmx mdrun -ntomp 4 -s b &\nwait", 8),
        ("gmx mdrun -ntmpi 2 -ntomp 2 -s a &\ngmx mdrun -nt 4 -s b &\nwait", 8),
        ("gmx mdrun -ntomp 4 -s a && gmx mdrun -ntomp 4 -s b", 4),
    ],
)
def test_what_runs_side_by_side_counts_together(body: str, cpus: int) -> None:
    """Two times four ranks had four CPUs (LAMMPS on 22.05)."""
    assert read_floors(f"#!/bin/sh\n{body}\n", 1).cpus_per_task == cpus


@pytest.mark.parametrize(
    ("body", "tasks", "cpus"),
    [
        ("mpirun -npernode 4 ./a &\nmpirun -npernode 4 ./b &\nwait", 1, 8),
        ("mpirun -npernode 2 ./a : -npernode 6 ./b", 1, 8),
        ("mpirun -npernode 8 ./a", 1, 8),
        ("mpirun --map-by ppr:4:node:PE=2 ./a", 1, 8),
        ("export OMP_NUM_THREADS=2\nmpiexec -ppn 4 ./a", 1, 8),
        ("aprun -n 8 -N 4 -d 2 ./a", 1, 8),
        ("mpirun -npernode 8 ./a", 4, 2),
        ("mpirun -np 16 -npernode 8 ./a", 4, 2),
        ("mpirun -np 4 -ppn 8 ./a", 4, 1),
        ("mpirun -npernode $SLURM_NTASKS_PER_NODE ./a", 4, 0),
    ],
)
def test_ranks_on_each_node_are_shared_by_the_tasks_there(body: str, tasks: int, cpus: int) -> None:
    """Eight ranks on each of two nodes had one CPU there (22.05, Open MPI 4.1.4)."""
    asked = submission(
        cpus_per_task=8,
        num_tasks=2 * tasks,
        ntasks_per_node=tasks,
        nodes_min=2,
        nodes_max=2,
        script=f"#!/bin/sh\n{body}\n",
    )
    found = fixed_by(asked, job_request(asked))
    assert (found.cpus_per_task, found.kept) == (cpus, ())


@pytest.mark.parametrize(
    "body",
    [
        "ibrun -n $N ./a",
        "aprun -n 8 -d $T ./a",
        "aprun -n 8 -cc 0,2,4 ./a",
        "prun -n $SLURM_CPUS_ON_NODE ./a",
    ],
)
def test_a_launcher_told_what_cannot_be_read_keeps_its_cpus(body: str) -> None:
    assert dict(read_floors(f"#!/bin/sh\n{body}\n", 1).kept).keys() == {"cores"}
