"""Variables that a script sets, and what they stand for where it uses them."""

import pytest

from slurm_plugin.policy.script_floors import read_floors
from slurm_plugin.policy.script_values import with_values


@pytest.mark.parametrize(
    ("script", "last"),
    [
        ("NP=8\nsrun -n $NP", "srun -n 8"),
        ("NP=8\nsrun --mem=2G -n $NP ./a x=3", "srun --mem=2G -n 8 ./a x=3"),
        ("NP=8\n[ $NP = 8 ] || exit 1\nsrun -n $NP", "srun -n 8"),
        ("NP=8\ntest $NP == 8\nsrun -n $NP", "srun -n 8"),
        ('launch="srun -n 2 --exact"\n$launch ./a &', "srun -n 2 --exact ./a &"),
        ('N=2\nlaunch="srun -n $N"  # two\n${launch} ./a', "srun -n 2 ./a"),
        ('options="-n 1 -c 2 --exact"\nsrun $options ./a', "srun -n 1 -c 2 --exact ./a"),
        ('args=(-n 1 --mem=500)\nsrun "${args[@]}" ./a &', "srun -n 1 --mem=500 ./a &"),
        ("launch=( srun -n 4 )\n${launch[*]} ./a", "srun -n 4 ./a"),
        ("launch=srun\n$launch -n 4 ./a", "srun -n 4 ./a"),
        ('launch="srun -n 4 -o logs/%x_%j.out"\n$launch ./a', "srun -n 4 -o logs/%x_%j.out ./a"),
        ('launch="srunner -n 4"\n$launch ./a', "$launch ./a"),
        ('launch="srun -n $(nproc)"\n$launch ./a', "$launch ./a"),
        ("N=2\nP=8\nsrun -n $((N * P))", "srun -n 16"),
        ("N=2\nP=$((${N}*$N+1))\nsrun -n $P", "srun -n 5"),
        ("srun -n $((7/2*2+1))", "srun -n 7"),
        ("srun -n $((16/4/2))", "srun -n 2"),
        ("N=4\nN=${N:-8}\nsrun -n $N -c ${N-2}", "srun -n 4 -c 4"),
        ("N=${1:-8}\nsrun -n $N", "srun -n ${1:-8}"),
        # What cannot be known, or would be nothing.
        ("N=2\nsrun -n $((N*P))", "srun -n $((N*P))"),
        ("N=$((SLURM_NTASKS*2))\nsrun -n $N", "srun -n $N"),
        ("N=0\nsrun -n $((8/N))", "srun -n $((8/N))"),
        ("srun -n $((8-4))", "srun -n $((8-4))"),
    ],
)
def test_what_a_variable_stands_for_is_filled_in(script: str, last: str) -> None:
    assert with_values(script).split("\n")[-1] == last


@pytest.mark.parametrize(
    "script",
    [
        "NP=1\n[ $BIG ] && NP=4\nsrun -n $NP",
        "NP=1\ntest -d x || NP=4\nsrun -n $NP",
        "if x; then NP=1; else NP=4; fi\nsrun -n $NP",
        "NP=1\ncase $1 in big) NP=4 ;; esac\nsrun -n $NP",
        "NP=1\n((NP=4))\nsrun -n $NP",
        "NP=1\n((NP*=4))\nsrun -n $NP",
        "NP=1\nlet NP=4\nsrun -n $NP",
        "NP=1\n(( NP *= 4 ))\nsrun -n $NP",
        "NP=1\n(( NP = NP * 4 ))\nsrun -n $NP",
        "NP=1\nwhile ((NP++ < 4)); do srun -n $NP",
        'NP=1\nlet "NP *= 4"\nsrun -n $NP',
        "NP=1\nfor i in 1 2; do NP=$((NP+1)); srun -n $NP; done",
        "NP=(1)\nNP+=(4)\nsrun -n $NP",
        "NP=1\nNP+=4\nsrun -n $NP",
        "NP=1\nfor NP in --x=1 4; do srun -n $NP",
        "NP=1\n{ NP=4; }\nsrun -n $NP",
        # Used before it is set again: in a loop and in a function.
        "NP=1; while true; do NP=$((NP*2))\nsrun -n $NP",
        "NP=1\nrun() { srun -n $NP\n}\nrun\nNP=4\nrun",
    ],
)
def test_a_number_that_a_script_changes_cannot_be_read(script: str) -> None:
    """The first number counted: an srun of four tasks was refused in a job of two CPUs (22.05)."""
    assert "srun -n $NP" in with_values(script)
    assert "cores" in dict(read_floors(f"#!/bin/sh\n{script}\n", 1).kept)


def test_steps_by_a_variable_count_together() -> None:
    script = 'launch="srun -n 1 -c 2 --exact --mem=500 -o %s/%t.out"\n$launch ./a &\n$launch ./b &\nwait\n'
    floors = read_floors(script, 1)
    assert (floors.memory_mib, floors.cpus_per_task) == (1000, 4)


@pytest.mark.parametrize(
    "script",
    [
        "namd3 +p$((2*4)) a.namd",
        "namd3 +p${N:-8} a.namd",
        "N=${N:-8}\nabaqus job=a cpus=$N",
        "NODES=2\nPPN=4\nmpirun -np $((NODES*PPN)) ./a",
    ],
)
def test_a_default_and_arithmetic_are_floors(script: str) -> None:
    assert read_floors(f"#!/bin/sh\n{script}\n", 1).cpus_per_task == 8


def test_ranks_by_a_default_stay_as_asked() -> None:
    """The environment of the submission, or an argument, may say more."""
    assert "cores" in dict(read_floors("#!/bin/sh\nN=${1:-4}\nmpirun -np $N ./a\n", 1).kept)
