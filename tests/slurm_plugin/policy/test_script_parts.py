"""What a script does with the number of its CPUs: a part of it is at least one, and a loop up to it keeps the CPUs."""

import pytest

from slurm_plugin.policy.script_floors import COUNTS_UP, read_floors


@pytest.mark.parametrize(
    ("body", "cpus"),
    [
        # Its threads, or workers, are at least one.
        ("(( threads = SLURM_CPUS_PER_TASK - 1 ))", 2),
        ("./a -w $((${SLURM_CPUS_ON_NODE}/4))", 4),
        ("N=$SLURM_CPUS_PER_TASK\n./a $(($N - 2))", 3),
        ("make -j$((SLURM_JOB_CPUS_PER_NODE/4))", 4),
        ("make -j$(($(nproc) / 4))", 4),
        ("N=`expr `nproc` - 1`", 2),
        ("Pool(int(os.environ['SLURM_CPUS_PER_TASK'])-2)", 3),
        ('Pool(int(os.environ["SLURM_CPUS_ON_NODE"]) // 4)', 4),
        ('n = int(os.environ["SLURM_CPUS_PER_TASK"])\nPool(n // 4)', 4),
        ("n = int(os.getenv('SLURM_CPUS_PER_TASK', 8))\nmap(f, max_workers=(n) - 2)", 3),
        ("Pool(int(os.environ.get('SLURM_CPUS_PER_TASK', '8')) // 4)", 4),
        ("Pool(len(os.sched_getaffinity(0)) - 1)", 2),
        ("Parallel(n_jobs=joblib.cpu_count() // 2)", 2),
        ('n <- as.integer(Sys.getenv("SLURM_CPUS_PER_TASK"))\nmakeCluster(n-1)', 2),
        ('mc.cores=as.integer(Sys.getenv("SLURM_CPUS_PER_TASK", "8")) %/% 4', 4),
        ("plan(multisession, workers = availableCores() - 1)", 2),
        ("N=${SLURM_CPUS_PER_TASK:-8}\nmake -j$((N/4))", 4),
        ("make -j$((${SLURM_CPUS_PER_TASK:-8} / 4))", 4),
        ("cores=$(nproc)\nmake -j $(( cores - 2 ))", 3),
        # The number is that of the node, another one, or an option's.
        ("Pool(os.cpu_count() - 1)\nmakeCluster(detectCores() - 1)", 0),
        ("n = int(os.environ['SLURM_CPUS_PER_TASK'])\nm // 4\nx.n // 4\nmean // 4", 0),
        ("bowtie2 -p $SLURM_CPUS_PER_TASK -1 a.fq -2 b.fq", 0),
        ("n=$SLURM_CPUS_PER_TASK\nhead -n -1 x", 0),
    ],
)
def test_a_part_of_its_cpus_is_at_least_one(body: str, cpus: int) -> None:
    found = read_floors(f"#!/bin/sh\n{body}\n", num_tasks=2)
    assert (found.memory_mib, found.cpus_per_task) == (0, cpus)


@pytest.mark.parametrize(
    ("body", "counts_up"),
    [
        # As in the Alliance's guide for MPS: with fewer CPUs it would run fewer programs, and still end well.
        ("for ((i=0; i<SLURM_CPUS_PER_TASK; i++))\ndo\n ./my_code $i &\ndone\nwait", True),
        ("for i in $(seq 1 $SLURM_CPUS_PER_TASK); do ./a $i & done; wait", True),
        ("for i in `seq 0 $((SLURM_CPUS_ON_NODE - 1))`; do ./a $i & done; wait", True),
        ("N=${SLURM_CPUS_PER_TASK:-8}\nseq $N | xargs -P $N -n1 ./a", True),
        ("i=1; while [ $i -le $SLURM_CPUS_PER_TASK ]; do ./a $i & i=$((i+1)); done", True),
        ("n=$(nproc)\nwhile ($i <= $n)", True),
        ("n = int(os.environ['SLURM_CPUS_PER_TASK'])\nfor i in range(n): start(i)", True),
        ("for i in range(int(os.environ['SLURM_CPUS_PER_TASK'])): start(i)", True),
        ("eval echo {1..$SLURM_CPUS_PER_TASK}", True),
        ("seq 100 | xargs -P $SLURM_CPUS_PER_TASK -n1 ./a", False),
        ("N=$SLURM_CPUS_PER_TASK\nfor i in $(seq 100); do ./a -t $N $i; done", False),
        ("while [ $(jobs -r | wc -l) -ge $SLURM_CPUS_PER_TASK ]; do wait -n; done", False),
        ("n = int(os.environ['SLURM_CPUS_PER_TASK'])\nfor i in range(100): f(i, n)", False),
    ],
)
def test_a_script_that_counts_up_to_its_cpus_keeps_them(body: str, counts_up: bool) -> None:
    kept = [dimension for dimension, _ in read_floors(f"#!/bin/sh\n{body}\n", 1).kept]
    assert kept == (["cores"] if counts_up else [])


@pytest.mark.parametrize(("uses", "keeps"), [(250, False), (251, True)])
@pytest.mark.parametrize(
    ("head", "in_head", "use"), [("n=$(nproc)\n", 2, "./a $n\n"), ("", 0, "./a `nproc`\n")]
)
def test_a_script_that_names_its_cpus_too_often_to_look_at_each_use_keeps_them(
    uses: int, keeps: bool, head: str, in_head: int, use: str
) -> None:
    found = read_floors(f"#!/bin/sh\n{head}{use * (uses - in_head)}", num_tasks=1)
    assert dict(found.kept) == ({"cores": COUNTS_UP} if keeps else {})
