"""Threads that a script gives programs by options of their own are floors."""

import pytest

from slurm_plugin.policy.script_floors import read_floors


@pytest.mark.parametrize(
    ("body", "tasks", "cpus"),
    [
        ("lmp -k on t 8 -sf kk -in a", 1, 8),
        ("lmp -k on g 1 t 8 -sf kk -in a", 1, 8),
        ("lmp -kokkos on threads 8 -in a", 4, 8),
        ("lmp -sf omp -pk omp 8 -in a", 1, 8),
        ("lmp -sf intel -pk intel 0 mode mixed omp 8 -in a", 1, 8),
        ("lmp -package omp 8 -suffix omp -in a", 4, 8),
        ("lmp -k on g 4 -sf kk -in a", 1, 0),
        ("lmp -k on g 1 -sf kk -var t 300 -in a", 1, 0),
        ("lmp -k off -in t 8", 1, 0),
        ("lmp -k on t $SLURM_CPUS_PER_TASK -in a", 1, 0),
        ("namd3 +p8 a.conf", 1, 8),
        ("charmrun ++p 8 namd2 a.conf", 4, 2),
        ("charmrun +p8 namd2 ++ppn 4 a.conf", 4, 4),
        ("chmod g+p x; date +p", 1, 0),
        ("abaqus job=a cpus=8 interactive", 1, 8),
        ("abq2023 job=a input=a.inp cpus=8", 4, 2),
        ("cpus=8\n./a", 1, 0),
        ("fluent 3ddp -g -t8 -i a.jou", 1, 8),
        ("cat > a.com <<E\n%NProcShared=8\n%mem=4GB\nE\ng16 a.com", 1, 8),
        ("cat > a.inp <<E\n%pal\n  nprocs 8\nend\nE\norca a.inp", 4, 2),
        ("MDRUN='gmx mdrun'\n$MDRUN -ntmpi 1 -ntomp 8", 1, 8),
        ('GMX=/usr/bin/gmx_mpi\nMDRUN="$GMX mdrun"\n"$MDRUN" -ntomp 8', 1, 8),
        # By variables.
        ("N=8\nlmp -k on t $N -sf kk -in a", 1, 8),
        ("CPUS=8\nabaqus job=a cpus=$CPUS interactive", 1, 8),
        ("N=8\nnamd3 +p$N a.conf", 1, 8),
        ("N=8\nstarccm+ -np ${N} -batch a.sim", 1, 8),
        ("T=8\nfluent 3ddp -g -t$T -i a.jou", 1, 8),
        ("N=$SLURM_CPUS_ON_NODE\nnamd3 +p$N a.conf", 1, 0),
        # Names that differ only in numbers.
        ("MDRUN1='gmx mdrun'\nMDRUN2='gmx_mpi mdrun'\n$MDRUN1 -ntmpi 1 -ntomp 8\n$MDRUN2 -ntomp 2", 1, 8),
        # However often a long path is named.
        (f"T=8\nGMX=/apps/{'a' * 39}/bin/gmx_mpi\n" + "$GMX grompp\n$GMX mdrun -ntomp $T\n" * 90, 1, 8),
    ],
)
def test_threads_that_a_program_is_told_of_are_a_floor(body: str, tasks: int, cpus: int) -> None:
    assert read_floors(f"#!/bin/sh\n{body}\n", tasks).cpus_per_task == cpus
