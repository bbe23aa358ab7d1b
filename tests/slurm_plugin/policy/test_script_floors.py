"""What a script fixes by itself: numbers in it are floors, and what no number gives is kept as requested."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_plugin.policy import script_floors
from slurm_plugin.policy.script_floors import ScriptFloors, read_floors
from slurm_plugin.policy.script_values import with_values
from slurm_plugin.policy.submission import job_request
from slurm_plugin.sbatch.wire_text import SCRIPT_BYTES
from slurm_plugin.service.decide import fixed_by
from tests.builders import submission

# `a1` is as long as two of `a0`, and so on: the last is 16 million characters long.
DOUBLED = "a0=1\n" + "".join(f"a{n + 1}=$a{n}$a{n}\n" for n in range(24))
LONG_VALUE = "a=$((SLURM_CPUS_PER_TASK*SLURM_CPUS_PER_TASK*SLURM_NTASKS))\nsrun "
MANY_CHARS = 10**6  # a pattern that is not linear in the length of a script would take a quarter of an hour


@pytest.mark.parametrize(
    ("body", "floors"),
    [
        ("java -Xmx4g -jar tool.jar", ScriptFloors(memory_mib=5120)),
        ("export JAVA_TOOL_OPTIONS=-XX:MaxHeapSize=4g\n./tool", ScriptFloors(memory_mib=5120)),
        ("H=4g\njava -XX:MaxHeapSize=$H -jar x", ScriptFloors(memory_mib=5120)),
        ("java -Xmx2048m x; java -Xmx1g y", ScriptFloors(memory_mib=2560)),
        ("java -Xmx2g x &\njava -Xmx1g y &\nwait\njava -Xmx1g z", ScriptFloors(memory_mib=3840)),
        ("java -Xmx2g x >log 2>&1\njava -Xmx1g y", ScriptFloors(memory_mib=2560)),
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
        # A task that asks a scheduler of its own for more than there is waits for ever.
        ("ray start --head --num-cpus 4", ScriptFloors(cpus_per_task=4)),
        ("spark-submit --executor-memory 4G pi.py", ScriptFloors(memory_mib=4096)),
        ("spark-submit --executor-cores 4 pi.py", ScriptFloors(cpus_per_task=4)),
        ("spark-submit --total-executor-cores 24 pi.py", ScriptFloors()),
        (
            "spark-submit --conf spark.executor.cores=4 --conf spark.executor.memory=4g pi.py",
            ScriptFloors(memory_mib=4096, cpus_per_task=4),
        ),
        ("make -j8", ScriptFloors(cpus_per_task=8)),
        ("tool --threads 12 x", ScriptFloors(cpus_per_task=12)),
        ("mpirun -np 8 ./a", ScriptFloors(cpus_per_task=4)),
        ("mpirun --map-by socket:PE=4 ./a", ScriptFloors(cpus_per_task=4)),
        ("mpirun -np 8 --map-by slot:pe=4 ./a", ScriptFloors(cpus_per_task=16)),
        ("mpirun -np 1 --cpus-per-rank 4 ./a", ScriptFloors(cpus_per_task=4)),
        ("mpirun --map-by slot:PE=$SLURM_CPUS_PER_TASK ./a", ScriptFloors()),
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
        ("export SLURM_NTASKS=8\nsrun ./a", ScriptFloors(cpus_per_task=4)),
        ("N=8\nSLURM_NPROCS=$N srun ./a", ScriptFloors(cpus_per_task=4)),
        ("srun ./a $SLURM_NTASKS 1000", ScriptFloors()),
        ('[ $SLURM_NTASKS -gt 8 ] || [ "$SLURM_NTASKS" = 8 ] || srun ./a', ScriptFloors()),
        ("export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK\nsrun ./a", ScriptFloors()),
        ("parallel -j 50% ./a ::: *.fa", ScriptFloors()),
        ("parallel -j 12.5% ./a ::: *.fa", ScriptFloors()),
        ("parallel -j 50 ./a ::: *.fa", ScriptFloors(cpus_per_task=50)),
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
    assert (found.memory_mib, found.cpus_per_task) == (floors.memory_mib, floors.cpus_per_task)


def test_a_step_that_starts_as_many_tasks_as_fit_keeps_room_for_them() -> None:
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


def test_a_step_on_several_nodes_keeps_cpus_unless_the_job_says_on_how_many_it_is() -> None:
    for nodes, kept in ((None, True), (2, False)):
        asked = submission(
            cpus_per_task=8, nodes_min=nodes, nodes_max=nodes, script="#!/bin/sh\nsrun -N 2 -n 2 ./a\n"
        )
        assert ("cores" in dict(fixed_by(asked, job_request(asked)).kept)) is kept


@pytest.mark.parametrize(
    ("body", "floors"),
    [
        ("NP=8\nsrun -n $NP ./a", (0, 8)),
        ("export NP='8'; srun -n ${NP} ./a", (0, 8)),
        ("NP=8  # ranks\nmpirun -np $NP ./a", (0, 8)),
        ("set NP = 8\nmpirun -np $NP ./a", (0, 8)),
        ("NP=8\nRANKS=$NP\nsrun -n $RANKS -c 1 ./a", (0, 8)),
        ('MEM=3G\nsrun --mem="$MEM" ./a', (3072, 0)),
        ("if x; then HEAP=4g; fi\njava -Xmx$HEAP -jar a.jar", (5120, 0)),
        ("GB=4\ngatk --java-options -Xmx${GB}g", (5120, 0)),
        ("GB=50\nTrinity --max_memory ${GB}G", (51200, 0)),
        ("C=4\nexport SRUN_CPUS_PER_TASK=$C\nsrun ./a", (0, 4)),
        # What a program does with its threads shows in its past; a wrong number does not make it fail.
        ("T=8\nbwa mem -t $T", (0, 0)),
        ("NP=$SLURM_NTASKS\nsrun -n $NP ./a", (0, 0)),
        ("C=${SLURM_CPUS_PER_TASK:-4}\nsrun -n 1 -c $C ./a", (0, 1)),
        ("srun -n $((SLURM_NTASKS/2)) ./a", (0, 0)),
        ("P=$(( SLURM_NTASKS_PER_NODE * $SLURM_NNODES ))\nmpirun -np $P ./a", (0, 0)),
        # Not set here, or not for this program.
        ("tool --np=8\nNP=7 # NP=9", (0, 0)),
    ],
)
def test_a_variable_stands_for_the_number_that_the_script_assigns_to_it(
    body: str, floors: tuple[int, int]
) -> None:
    found = read_floors(f"#!/bin/sh\n{body}\n", 1)
    assert (found.memory_mib, found.cpus_per_task, found.kept) == (*floors, ())


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("srun -n $NP ./a", ["cores"]),
        ("srun -n $1 ./a", ["cores"]),
        ("srun --ntasks=$((SLURM_NNODES*16)) ./a", ["cores"]),
        ("N=$((SLURM_NTASKS*2))\nmpirun -np $N ./a", ["cores"]),
        ("export SLURM_NTASKS=$((SLURM_NNODES*16))\nsrun ./a", ["cores"]),
        ("export SLURM_NTASKS=${SLURM_NTASKS:-1}\nsrun ./a", []),
        ("export SLURM_NTASKS=$N\n./a", []),
        ("srun -n $SLURM_ARRAY_TASK_ID ./a", ["cores"]),
        ("srun -n `nproc` -c 1 ./a", ["cores"]),
        ('srun -n1 --cpus-per-task="$C" ./a', ["cores"]),
        ("for n in 1 2 4; do srun -n $n ./a; done", ["cores"]),
        ("N=4\nif x; then N=8; fi\nmpirun -np $N ./a", ["cores"]),
        ("N=$(nproc)\nmpirun -np $N ./a", ["cores"]),
        ("srun --mem=${MEM} ./a", ["memory"]),
        ("java -Xmx$HEAP -jar a.jar", ["memory"]),
        ("java -Xmx$((SLURM_CPUS_PER_TASK*2))g -jar a.jar", ["memory"]),
        ("Trinity --max_memory $GB", ["memory"]),
        ("java -Xmx$((SLURM_MEM_PER_NODE*8/10))m -jar a.jar", ["memory"]),
        ("M=$(( 8 * SLURM_MEM_PER_NODE / 10 ))\n./a", ["memory"]),
        ("python3 -c 'import os; os.environ[\"SLURM_MEM_PER_NODE\"]'", ["memory"]),
        ("unset SLURM_MEM_PER_CPU SLURM_MEM_PER_NODE\n./a", []),
        ("srun -n4 --gpus=$G ./a", ["gpus"]),
        # Each part runs on a node of its own.
        ("srun -n 1 ./a : -n 3 ./b", ["cores"]),
        ("srun -n 1 ./a http://b:80", []),
        # Words after the program are its own.
        ('srun -l -n 4 --exclusive --mpi=pmix sh -c "$COMMAND"', []),
        ("srun --label --ntasks 4 --mem 2G python train.py -c $CONFIG --gpus $G -n $EPOCHS", []),
        ("srun $OPTIONS -n $N ./a", ["cores"]),
        ('srun -n"$((N * 2))" ./a', ["cores"]),
        ("mpirun -np 4 ./a -n $EPOCHS", []),
        ("mpirun -np $SLURM_NTASKS ./a -n $EPOCHS", []),
        ("mpirun --map-by slot:PE=$PE ./a", ["cores"]),
        ("PE=$(nproc)\nmpirun --map-by ppr:1:node:PE=$PE ./a", ["cores"]),
        ("mpirun --cpus-per-rank $1 ./a", ["cores"]),
        ("OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\nmpirun --map-by node:PE=$OMP_NUM_THREADS ./a", []),
    ],
)
def test_a_number_that_cannot_be_read_keeps_its_dimension(body: str, kept: list[str]) -> None:
    """A step that asks for more than its job still has fails."""
    assert [dimension for dimension, _ in read_floors(f"#!/bin/sh\n{body}\n", 1).kept] == kept


@pytest.mark.parametrize(
    ("body", "keeps"),
    [
        ("mpirun -np $SLURM_CPUS_PER_TASK ./a", True),
        ("NP=$SLURM_CPUS_ON_NODE\nmpiexec -n $NP ./a", True),
        ("mpirun -np ${SLURM_JOB_CPUS_PER_NODE} ./a", True),
        ("mpirun -np $((SLURM_NNODES * SLURM_CPUS_ON_NODE)) ./a", True),
        # Open MPI then has a slot for each CPU.
        ("export OMPI_MCA_ras_slurm_use_entire_allocation=1\nmpirun ./a", True),
        ("mpirun --mca ras_slurm_use_entire_allocation 1 ./a", True),
        ("mpirun --mca ras_slurm_use_entire_allocation 0 ./a", False),
        ("export OMPI_MCA_ras_slurm_use_entire_allocation=1\nsrun ./a", False),
        ("srun -n $((SLURM_CPUS_PER_TASK-1)) ./a", True),
        ("srun --ntasks=$SLURM_CPUS_PER_TASK ./a", True),
        ("srun --ntasks-per-node=$SLURM_CPUS_ON_NODE ./a", True),
        ("N=$SLURM_CPUS_ON_NODE\nsrun --ntasks-per-node $N ./a", True),
        ("srun --ntasks-per-node=$SLURM_NTASKS_PER_NODE ./a", False),
        # The number of tasks stays as it is, and fewer threads do not change the computation.
        ("mpirun -np $SLURM_NTASKS ./a", False),
        ("mpirun -np $SLURM_NTASKS ./a -n $SLURM_CPUS_PER_TASK", False),
        ("mpirun ./a --threads $SLURM_CPUS_PER_TASK", False),
        ("srun -c $SLURM_CPUS_PER_TASK ./a -n $SLURM_CPUS_PER_TASK", False),
    ],
)
def test_a_script_that_starts_as_many_ranks_as_cpus_keeps_its_cpus(body: str, keeps: bool) -> None:
    """A problem divided into eight parts cannot be computed by two ranks."""
    assert ("cores" in dict(read_floors(f"#!/bin/sh\n{body}\n", 1).kept)) is keeps


@pytest.mark.parametrize(
    ("launcher", "keeps"),
    [
        ("mpirun --map-by ppr:1:socket:PE=$SLURM_CPUS_PER_TASK", True),
        ("mpirun -np $SLURM_NTASKS --map-by ppr:2:numa", True),
        ("mpirun -npersocket 2", True),
        ("mpirun --map-by ppr:2:node:PE=$SLURM_CPUS_PER_TASK", False),
        ("mpirun --map-by socket:PE=$SLURM_CPUS_PER_TASK", False),
    ],
)
def test_ranks_by_socket_keep_cpus_also_if_the_job_sets_its_tasks_per_node(
    launcher: str, keeps: bool
) -> None:
    """Slurm took 4 of 16 CPUs from one of two sockets: Open MPI 4.1 started two ranks, not four, or refused."""
    asked = submission(
        cpus_per_task=8, ntasks_per_node=2, nodes_min=2, nodes_max=2, script=f"#!/bin/sh\n{launcher} ./a\n"
    )
    assert ("cores" in dict(fixed_by(asked, job_request(asked)).kept)) is keeps


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("for i in 1 2 3; do srun -n1 -c1 ./a $i & done; wait", ["cores"]),
        ("while read f; do\n  srun -n1 --exact --mem=1G ./a $f &\ndone < list\nwait", ["cores", "memory"]),
        ("for i in 1 2 3; do srun -n1 --exclusive ./a $i & done; wait", ["cores"]),
        ("run() { srun -n1 -c1 ./a $1 & }\nrun 1; run 2; wait", ["cores"]),
        ("parallel -j 8 srun --exclusive -N1 -n1 ./a ::: *.fa", ["cores"]),
        ('srun="srun --exact -n1"\n$parallel "$srun ./a {1}" ::: {1..9}', ["cores"]),
        ("seq 8 | xargs -P 8 -I X srun -n1 -c1 --mem=1G ./a X", ["cores", "memory"]),
        # One after the other, each with all that the job has: Slurm starts no other next to it.
        ("for i in 1 2 3; do srun -n1 -c1 ./a $i; done", []),
        ("for i in 1 2 3; do srun -N1 -n1 -w node$i ./a & done; wait", []),
        ("seq 8 | xargs -n 1 srun -n1 -c1 ./a", []),
        # As many as there are tasks, however many CPUs these have.
        ("for i in $(seq $SLURM_NTASKS); do srun -n1 -c $SLURM_CPUS_PER_TASK ./a & done; wait", []),
        ("for i in 1 2 3; do srun --overlap -n1 -c1 --mem=1G ./a & done; wait", []),
        # These can be counted.
        ("srun -n1 -c1 ./a &\nsrun -n1 -c1 ./b &\nwait", []),
    ],
)
def test_side_by_side_steps_of_unknown_number_keep_the_resource_that_they_share(
    body: str, kept: list[str]
) -> None:
    """With less of it fewer run at once: eight of 3 s each took 24 s instead of 3 (22.05, 26.05)."""
    assert [dimension for dimension, _ in read_floors(f"#!/bin/sh\n{body}\n", 1).kept] == kept


@pytest.mark.parametrize(
    ("command", "fields", "keeps"),
    [
        ("srun -n1 -c1 ./a", {}, True),
        ("srun -n1 --exact ./a", {}, True),
        ("srun -n 4 -c 2 ./a", {}, False),
        ("srun -n1 ./a", {}, False),
        ("srun bash -c './a'", {}, False),
        ("srun -n1 -c $SLURM_CPUS_PER_TASK ./a", {}, False),
        ("srun -n1 -c1 ./a", {"cpus_per_task": 1}, False),
        ("srun -n1 -c1 ./a", {"cpus_per_task": None}, False),
        ("srun -n1 -c1 ./a", {"mem_per_cpu_mib": None, "mem_per_node_mib": 8000}, False),
        ("srun -n 2 -c 4 ./a", {"num_tasks": 2}, True),
        ("srun -n 2 -c 8 ./a", {"num_tasks": 2}, False),
    ],
)
def test_a_step_with_some_of_the_cpus_keeps_the_memory_that_comes_with_them(
    command: str, fields: dict[str, int | None], keeps: bool
) -> None:
    """Of 8 CPUs of 1000 MiB each, cut to 2 of 128, a step with one was killed at 128 (22.05, 26.05)."""
    asked = submission(
        **{"cpus_per_task": 8, "mem_per_node_mib": None, "mem_per_cpu_mib": 1000, **fields},
        script=f"#!/bin/sh\n{command}\n",
    )
    assert ("memory" in dict(fixed_by(asked, job_request(asked)).kept)) is keeps


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("./a --mem $SLURM_MEM_PER_NODE", ["memory"]),
        ("java -Xmx${SLURM_MEM_PER_CPU}m x", ["memory"]),
        ("java -XX:MaxRAMPercentage=75 x", ["memory"]),
        # A heap without a set size is a quarter of the cgroup's limit: what it held before says nothing of its need.
        ("java -jar tool.jar", ["memory"]),
        ("time /usr/lib/jvm/bin/java \\\n  -cp lib tool", ["memory"]),
        ("java $JAVA_OPTS -jar tool.jar", ["memory"]),
        ('"$JAVA_HOME/bin/java" "$OPTS" -jar tool.jar', ["memory"]),
        ("srun java @options Main", ["memory"]),
        ("module load java\njavac Main.java\njava Main 150", ["memory"]),
        ("cd run\n  time $JAVA_HOME/bin/java org.tool.Main", ["memory"]),
        ("cd run && java Main; true", ["memory"]),
        ("srun -n 1 -c4 java Main", ["memory"]),
        ("/usr/bin/time -v nice -n 5 java org.tool.Main", ["memory"]),
        ("export JAVA_TOOL_OPTIONS=-XX:MaxHeapSize=$(cat h)", ["memory"]),
        ("echo java $(java -version)\ncp -r /data/java $TMPDIR\nmodule load java $EXTRA", []),
        ("./a # java $Y\necho java is needed", []),
        ("gatk HaplotypeCaller -I a.bam", ["memory"]),
        ("module load samtools gatk BWA\nmodule load gatk R/4.2 picard-tools R/4", []),
        ("./reformat.sh data; bash repair.sh x\n./data_repair.sh in=x", []),
        ("gatk --java-options '-XX:+UseParallelGC' Mutect2", ["memory"]),
        ("/opt/bbmap/bbduk.sh in=a.fq out=b.fq", ["memory"]),
        ("PicardCommandLine MarkDuplicates I=a.bam", ["memory"]),
        ("TrimmomaticPE a.fq b.fq", ["memory"]),
        ("bbduk.sh -Xmx4g in=a.fq out=b.fq", []),
        ("gatk --java-options -Xmx4g HaplotypeCaller", []),
        ("module load java python\nmodule load gatk 4.5\ngatk --list\n./a", []),
        ("java -jar tool.jar\nexport JAVA_TOOL_OPTIONS=-Xmx4g", []),
        ("module load java\njava -version\n./a", []),
        ("java --version; ./myjava -jar x", []),
        # Files there are memory of the job, but of no process that Slurm measures.
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
        ("torchrun --nproc_per_node=4 train.py", ["gpus"]),
        ("python -m torch.distributed.launch --nproc-per-node 10 train.py", ["gpus"]),
        ("torchrun --nproc_per_node=1 train.py", []),
        ("torchrun --nproc_per_node=gpu train.py", []),
        ("N=4\ntorchrun --nproc_per_node=$N train.py", ["gpus"]),
        ("torchrun --nproc_per_node=$N train.py", ["gpus"]),
        ("torchrun --nproc_per_node=$SLURM_GPUS_ON_NODE train.py", []),
        ("N=$SLURM_GPUS_ON_NODE\ntorchrun --nproc_per_node=$N train.py", []),
        ("torchrun --nproc_per_node=$(nvidia-smi -L | wc -l) train.py", []),
        ("accelerate launch --num_processes 8 train.py", ["gpus"]),
        ("accelerate launch --num_processes $((SLURM_NNODES * SLURM_GPUS_ON_NODE)) train.py", []),
        ("deepspeed --num_gpus=2 train.py", ["gpus"]),
        ("vllm serve model --tensor-parallel-size 4", ["gpus"]),
        ("python train.py --tensor-model-parallel-size 2", ["gpus"]),
        ("python train.py fit --trainer.devices=4", ["gpus"]),
        ("export CUDA_VISIBLE_DEVICES=0,1", ["gpus"]),
        ("CUDA_VISIBLE_DEVICES=1 ./a & CUDA_VISIBLE_DEVICES=0 ./b", ["gpus"]),
        ("CUDA_VISIBLE_DEVICES=0 ./a", []),
        ("CUDA_VISIBLE_DEVICES=$SLURM_LOCALID ./a", []),
        ("CUDA_VISIBLE_DEVICES= ./a", []),
        ("srun --mem-per-cpu  $X ./a", ["memory"]),
        ("srun --cpus-per-gpu=4 ./a", ["cores"]),
        ("srun --cpu-bind=map_cpu:0,1,2,3 ./a", ["cores"]),
        ("srun --cpu-bind=verbose,mask_cpu:0xff ./a", ["cores"]),
        ('B=mask_cpu:0xf\nsrun --cpu-bind "$B" --gpu-bind=$G ./a', ["gpus", "cores"]),
        ("srun --cpu-bind=cores ./a", []),
        ("taskset -c 0-7 ./a", ["cores"]),
        ("for i in 0 1 2 3; do taskset --cpu-list $i ./a & done", ["cores"]),
        ("numactl -l --physcpubind=0-7 ./a", ["cores"]),
        ("mpirun --cpu-set 0-7 ./a", ["cores"]),
        ("mpirun --cpu-list 0,4,8,12 ./a", ["cores"]),
        ("mpirun -np 1 -rf ranks.txt ./a", ["cores"]),
        ("mpirun --rankfile ranks.txt ./a", ["cores"]),
        ("mpirun --map-by rankfile:file=ranks.txt ./a", ["cores"]),
        ("taskset 0xff ./a", ["cores"]),
        ("taskset -ac 0-7 ./a", ["cores"]),
        ("numactl --cpunodebind=1 --membind=1 ./a", ["cores"]),
        ("numactl -N 0 ./a & numactl -N 1 ./b & wait", ["cores"]),
        ("export GOMP_CPU_AFFINITY=0-7\n./a", ["cores"]),
        ('setenv GOMP_CPU_AFFINITY "0-7"', ["cores"]),
        ("namd2 +p8 +pemap 0-7 in.conf", ["cores"]),
        ("export SLURM_CPU_BIND=verbose,map_cpu:0,4\nsrun ./a", ["cores"]),
        ("export SLURM_CPU_BIND=cores\nsrun ./a", []),
        ("podman run --cpuset-cpus=0-3 image", ["cores"]),
        # It only shows them.
        ("taskset -cp $$; taskset -c -p $$; numactl --show", []),
        ("numactl --interleave=all ./a", []),
        ("srun --hint=nomultithread -c 4 ./a", ["cores"]),
        ("srun --threads-per-core 1 ./a", ["cores"]),
        ("srun --ntasks-per-gpu=1 ./a", ["gpus", "cores"]),
        ("srun --tres-per-task=cpu=4 ./a", ["gpus", "cores"]),
    ],
)
def test_a_number_that_cannot_be_a_floor_keeps_its_dimension(body: str, kept: list[str]) -> None:
    assert [dimension for dimension, _ in read_floors(f"#!/bin/sh\n{body}\n", 1).kept] == kept


@pytest.mark.parametrize(
    ("command", "keeps"),
    [("srun -n1 --gpus=1 ./a", True), ("srun -n1 --gres=gpu:1 ./a", True), ("srun ./a", False)],
)
def test_a_step_with_some_of_the_gpus_keeps_the_memory_that_comes_with_them(
    command: str, keeps: bool
) -> None:
    """Of 4 GPUs of 2000 MiB each, cut to 64, a step with one was killed at 64 (22.05, 26.05)."""
    asked = submission(
        gpus_per_node=4, mem_per_node_mib=None, mem_per_gpu_mib=2000, script=f"#!/bin/sh\n{command}\n"
    )
    assert ("memory" in dict(fixed_by(asked, job_request(asked)).kept)) is keeps


# The same as in script_floors.py, written plainly: each begins at a boundary, and one pass covers all ranks.
PLAIN_THREADS = re.compile(
    r"(?:(?:_(?:NUM_THREADS|CPUS_PER_TASK)(?:=|[ \t]+)"
    r"|\B--?(?:threads|num[-_](?:threads|cpus)|n?cpus|nproc|cores|jobs)(?:=|[ \t]+)"
    r"|\B-(?:t|@|j|p)\s+|(?<=\s)-np[ \t]+)[\"']?|\bmake\s+-j\s*)(\d{1,4})\b"
)
PLAIN_LAUNCHED = re.compile(
    r"\b(mpirun|mpiexec|orterun)\b|([\n;|&])|\s(?:-np|-n|--np|--n|-c)(?:=|[ \t]+)[\"']?(\d{1,6})\b"
)
PIECES = (
    "mpirun", "mpiexec", "orterun", "make", "srun", "-np", "-n", "--np", "--n", "-j", "-t", "-@", "-c", "-", "--mem=",
    "--threads", "--ncpus", "--gres=", "--max-mem ", "OMP_NUM_THREADS", "-Xmx", "g", "k", ".", "x", "_", "=", " ", " ",
    " ", "\t", "\n", "\\\n", ";", "|", "&", "0", "4", "16", "250", '"', "'", "srun -m plane",
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
def test_the_fast_search_finds_what_a_plain_one_does(script: str) -> None:
    launched = script.replace("srun", "run")
    assert read_floors(launched, 1).cpus_per_task == plain_cpus(launched.replace("\\\n", ""))


@settings(max_examples=500)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join), st.integers(1, 3))
def test_floors_do_not_depend_on_scripts_read_before(script: str, num_tasks: int) -> None:
    assert read_floors(script, num_tasks) == script_floors._read(script, num_tasks)


@given(st.text(max_size=400), st.integers(1, 64))
def test_any_script_can_be_read(script: str, num_tasks: int) -> None:
    floors = read_floors(script, num_tasks)
    assert floors.memory_mib >= 0
    assert floors.cpus_per_task >= 0


@pytest.mark.parametrize("command", ["srun -n $a24 ./a", "srun -n $a9 ./a"])
def test_a_variable_that_grows_with_each_line_is_not_read(command: str) -> None:
    """A script of 300 bytes once kept the service busy for two minutes and took 1.5 GiB."""
    floors = read_floors(f"#!/bin/sh\n{DOUBLED}{command}\n", 1)
    assert floors.kept == (("cores", "an srun in the script asks for a number that cannot be read"),)


def test_a_script_that_would_grow_much_is_left_as_written() -> None:
    short, long = LONG_VALUE + "$a" * 10, LONG_VALUE + "$a" * 8000
    assert with_values(short) != short
    assert with_values(long) == long


@pytest.mark.parametrize(
    "piece",
    [
        "cactus-a-",
        "SLURM_CPUS_PER_TASK",
        "; srun -n 1 ",
        "java/",
        "bbduk.sh ",
        "gatk A",
        "/call-a/",
        "--attempt 2",
    ],
)
def test_a_script_of_a_million_characters_is_read_at_once(piece: str) -> None:
    script_floors._read(piece * (MANY_CHARS // len(piece)), 4)


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        ("srun ", "$(("),
        ("srun -n ", "$((SLURM_A-"),
        ("n=$(nproc)\n", "n "),
        ("", "nproc)"),
        ("nextflow ", "\t"),
        ("a='srun --mem=2G --gpus=1 --exact -n 1 -c 1 -N 1 -t 1 -J a -A b -p c'\n", "$a"),
        ("", "(srun)&"),
        ("srun\n", "& "),
        ("", "mpirun : "),
        ("", "export OMP_NUM_THREADS=2; mpirun -np 4 "),
        ("abaqus cpus= ", "abaqus "),
        ("", "fluent 3d -t"),
        ("mpirun $b a=", "a/"),
    ],
)
def test_no_script_takes_as_long_to_read_as_the_hook_waits(head: str, piece: str) -> None:
    """Three late answers in a row open the hook's breaker: nobody's job was sized for half a minute."""
    script = (head + piece * (2 * SCRIPT_BYTES // len(piece)))[: 2 * SCRIPT_BYTES]

    def spent_s() -> float:
        begin_s = time.process_time()
        script_floors._read(script, 2)
        return time.process_time() - begin_s

    assert min(spent_s() for _ in range(5)) < 0.02
