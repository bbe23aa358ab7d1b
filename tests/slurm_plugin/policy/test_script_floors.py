"""What a script fixes by itself: numbers in it are floors, and what no number says is kept as asked."""

import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_plugin.policy import script_floors
from slurm_plugin.policy.script_floors import ScriptFloors, read_floors
from slurm_plugin.policy.submission import job_request
from slurm_plugin.service.decide import fixed_by
from tests.builders import submission


@pytest.mark.parametrize(
    ("body", "floors"),
    [
        ("java -Xmx4g -jar tool.jar", ScriptFloors(memory_mib=5120)),
        ("java -Xmx2048m x; java -Xmx1g y", ScriptFloors(memory_mib=2560)),
        ("sort --max-mem=3G x", ScriptFloors(memory_mib=3072)),
        ("export OMP_NUM_THREADS=6", ScriptFloors(cpus_per_task=6)),
        ("RAYON_NUM_THREADS=6 tool", ScriptFloors(cpus_per_task=6)),
        ('export OMP_NUM_THREADS="6"', ScriptFloors(cpus_per_task=6)),
        ("MKL_NUM_THREADS='6' ./a", ScriptFloors(cpus_per_task=6)),
        ("setenv OMP_NUM_THREADS 6", ScriptFloors(cpus_per_task=6)),
        ('tool --threads "6" --max-memory="3G"', ScriptFloors(cpus_per_task=6, memory_mib=3072)),
        ("mpirun -np '8' ./a\nsrun --mem='2G' -c '4' ./b", ScriptFloors(cpus_per_task=4, memory_mib=2048)),
        ("mpirun -np  8 ./a\nsrun --mem\t 2G ./b", ScriptFloors(cpus_per_task=4, memory_mib=2048)),
        ("tool --threads   6 --max-memory  3G", ScriptFloors(cpus_per_task=6, memory_mib=3072)),
        ("samtools sort -@ 4 x.bam", ScriptFloors(cpus_per_task=4)),
        ("make -j8", ScriptFloors(cpus_per_task=8)),
        ("tool --threads 12 x", ScriptFloors(cpus_per_task=12)),
        ("mpirun -np 8 ./a", ScriptFloors(cpus_per_task=4)),
        ("srun -n 8 ./a", ScriptFloors(cpus_per_task=4)),
        ("srun --ntasks=4 --cpus-per-task=3 ./a", ScriptFloors(cpus_per_task=6)),
        # It starts the job's two tasks.
        ("srun -c 4 ./a", ScriptFloors(cpus_per_task=4)),
        ("srun --cpus-per-task=4 ./a", ScriptFloors(cpus_per_task=4)),
        # Each of the two may be alone on its node.
        ("srun -n 1 -c 4 ./a", ScriptFloors(cpus_per_task=4)),
        ("srun --ntasks-per-node=4 ./a", ScriptFloors(cpus_per_task=4)),
        ("srun --ntasks-per-node=4 -c 2 ./a", ScriptFloors(cpus_per_task=8)),
        ("srun -n 8 --ntasks-per-node=8 ./a", ScriptFloors(cpus_per_task=4)),
        ("srun -N 1 -n 4 -c 2 ./a", ScriptFloors(cpus_per_task=8)),
        ("srun -N 1-2 -n 4 -c 2 ./a", ScriptFloors(cpus_per_task=4)),
        ("srun -N1 -n1 ./a &\nsrun -N1 -n1 ./b &\nwait", ScriptFloors(cpus_per_task=1)),
        ("export SRUN_CPUS_PER_TASK=4\nsrun ./a", ScriptFloors(cpus_per_task=4)),
        ("export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK\nsrun ./a", ScriptFloors()),
        ("srun --mem=2G ./a", ScriptFloors(memory_mib=2048)),
        ("srun --mem=2GB ./a\nsrun --mem 3000mb ./b", ScriptFloors(memory_mib=3000)),
        ("srun \\\n  -n 8 \\\n  --mem=2G \\\n  ./a", ScriptFloors(cpus_per_task=4, memory_mib=2048)),
        ("mpirun \\\r\n -np 8 ./a", ScriptFloors(cpus_per_task=4)),
        ("java \\\n-Xmx4g x", ScriptFloors(memory_mib=5120)),
        ("srun -c 4 --mem=2G ./a\nsrun -c 6 --mem=1G ./b", ScriptFloors(cpus_per_task=6, memory_mib=2048)),
        (
            "srun -c 4 --mem=2G ./a &\nsrun -c 6 --mem=1G ./b&\nwait",
            ScriptFloors(cpus_per_task=10, memory_mib=3072),
        ),
        ("srun -c 8 ./a > a.log 2>&1 & srun -c 8 ./b &> b.log & wait", ScriptFloors(cpus_per_task=16)),
        ("srun -c 8 ./a | tee a.log & srun -c 8 ./b |& tee b.log &\nwait", ScriptFloors(cpus_per_task=16)),
        ("srun -c 8 ./a 2>&1 && srun -c 8 ./b || srun -c 8 ./c", ScriptFloors(cpus_per_task=8)),
        ("srun -c $SLURM_CPUS_PER_TASK ./a", ScriptFloors()),
        ("OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK ./a", ScriptFloors()),
        ("srun ./a -n 5", ScriptFloors(cpus_per_task=3)),
        ("#SBATCH -c 8 --mem=8000\n# make -j64\n./a", ScriptFloors()),
        ("./a", ScriptFloors()),
    ],
)
def test_numbers_in_a_script_are_floors(body: str, floors: ScriptFloors) -> None:
    found = read_floors(f"#!/bin/sh\n{body}\n", num_tasks=2)
    assert msgspec.structs.replace(found, tasks_by_fit=False) == floors


def test_a_step_that_starts_as_many_tasks_as_fit_keeps_their_room() -> None:
    for body, changes, kept in (
        ("srun -c 2 ./a", {}, True),
        ("srun -n 1 ./first\nsrun -c 2 ./a", {}, True),
        ("srun -c 2 ./a", {"num_tasks": 1}, False),
        ("srun -c 2 ./a", {"ntasks_per_node": 1}, False),
        ("srun -n 1 -c 2 ./a", {}, False),
        ("srun --ntasks-per-node=1 -c 2 ./a", {}, False),
        ("srun -c $SLURM_CPUS_PER_TASK ./a", {}, False),
        ("srun ./a", {}, False),
    ):
        asked = submission(cpus_per_task=8, script=f"#!/bin/sh\n{body}\n", **changes)
        assert ("cores" in dict(fixed_by(asked, job_request(asked)).kept)) is kept, (body, changes)


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("./a --mem $SLURM_MEM_PER_NODE", ["memory"]),
        ("java -Xmx${SLURM_MEM_PER_CPU}m x", ["memory"]),
        ("java -XX:MaxRAMPercentage=75 x", ["memory"]),
        # A heap that nobody sizes is a quarter of the cgroup's limit: what it held before is no measure of its need.
        ("java -jar tool.jar", ["memory"]),
        ("time /usr/lib/jvm/bin/java \\\n  -cp lib tool", ["memory"]),
        ("java -jar tool.jar\nexport JAVA_TOOL_OPTIONS=-Xmx4g", []),
        ("module load java\njava -version\n./a", []),
        ("java --version; ./myjava -jar x", []),
        # What lies there is memory of the job, and of no process that Slurm measures.
        ("sort -T /dev/shm/$USER big.txt", ["memory"]),
        ("export TMPDIR=/dev/shm\njava -jar tool.jar", ["memory"]),
        ("# not in /dev/shm\n./a --cache /scratch/dev/shmoo", []),
        ("srun --mem-per-cpu=500 ./a", ["memory"]),
        ("srun --gres=gpu:2 ./a", ["gpus"]),
        ("srun -G4 ./a", ["gpus"]),
        ("srun --gres='gpu:2' ./a", ["gpus"]),
        ("srun --gpus  4 ./a", ["gpus"]),
        ("srun --gpus=$SLURM_GPUS ./a", []),
        ("srun --gpu-bind=map_gpu:0,1 ./a", ["gpus"]),
        ("srun --gpu-bind verbose,mask_gpu:0x3 ./a", ["gpus"]),
        ("srun --gpu-bind=closest ./a", []),
        ("srun --mem-per-cpu  $X ./a", []),
        ("srun --cpus-per-gpu=4 ./a", ["cores"]),
        ("srun --cpu-bind=map_cpu:0,1,2,3 ./a", ["cores"]),
        ("srun --cpu-bind=verbose,mask_cpu:0xff ./a", ["cores"]),
        ('B=mask_cpu:0xf\nsrun --cpu-bind "$B" --gpu-bind=$G ./a', ["gpus", "cores"]),
        ("srun --cpu-bind=cores ./a", []),
        ("srun --hint=nomultithread -c 4 ./a", ["cores"]),
        ("srun --threads-per-core 1 ./a", ["cores"]),
        ("srun --ntasks-per-gpu=1 ./a", ["gpus", "cores"]),
        ("srun --tres-per-task=cpu=4 ./a", ["gpus", "cores"]),
    ],
)
def test_what_cannot_be_a_floor_is_kept(body: str, kept: list[str]) -> None:
    assert [dimension for dimension, _ in read_floors(f"#!/bin/sh\n{body}\n", 1).kept] == kept


# The same as in script_floors.py, said plainly: each begins at a boundary, and one pass goes over all ranks.
PLAIN_THREADS = re.compile(
    r"(?:(?:_(?:NUM_THREADS|CPUS_PER_TASK)(?:=|[ \t]+)"
    r"|\B--?(?:threads|num[-_]threads|n?cpus|nproc|cores|jobs)(?:=|[ \t]+)"
    r"|\B-(?:t|@|j|p)\s+)[\"']?|\bmake\s+-j\s*)(\d{1,4})\b"
)
PLAIN_LAUNCHED = re.compile(
    r"\b(mpirun|mpiexec|orterun)\b|([\n;|&])|\s(?:-np|-n|--np|--n)(?:=|[ \t]+)[\"']?(\d{1,6})\b"
)
PIECES = (
    "mpirun", "mpiexec", "orterun", "make", "srun", "-np", "-n", "--np", "--n", "-j", "-t", "-@", "-c", "-", "--mem=",
    "--threads", "--ncpus", "--gres=", "--max-mem ", "OMP_NUM_THREADS", "-Xmx", "g", "k", ".", "x", "_", "=", " ", " ",
    " ", "\t", "\n", "\\\n", ";", "|", "&", "0", "4", "16", "250", '"', "'",
)  # fmt: skip


def plain_cpus(script: str) -> int:
    cpus, is_launched = [0, *map(int, PLAIN_THREADS.findall(script))], False
    for launcher, end, number in PLAIN_LAUNCHED.findall(script):
        if is_launched and number:
            cpus.append(int(number))
        is_launched = bool(launcher) or (is_launched and not end and not number)
    return max(cpus)


@settings(max_examples=500)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_a_fast_search_finds_what_a_plain_one_does(script: str) -> None:
    launched = script.replace("srun", "run")
    assert read_floors(launched, 1).cpus_per_task == plain_cpus(launched.replace("\\\n", ""))


@settings(max_examples=500)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join), st.integers(1, 3))
def test_what_numbers_fix_is_found_whatever_was_read_before(script: str, num_tasks: int) -> None:
    assert read_floors(script, num_tasks) == script_floors._read(script, num_tasks)


@given(st.text(max_size=400), st.integers(1, 64))
def test_any_script_can_be_read(script: str, num_tasks: int) -> None:
    floors = read_floors(script, num_tasks)
    assert floors.memory_mib >= 0
    assert floors.cpus_per_task >= 0
