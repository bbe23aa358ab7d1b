"""The forms of request, and what Slurm must allocate for each: one row per form, for people to read.

Every row belongs to a family whose last eight jobs used 200 MiB, one core per task and one GPU per node: such a job is
granted 256 MiB, two CPUs per task and one GPU. In enforce mode its AllocTRES is that of the same submission with
`--comment=rightsize=off`, except for the words given here: `cpu`, `mem` (MiB) and `gpu` of the whole job.
"""

from __future__ import annotations

from dataclasses import replace

from slurm_plugin.sandbox.shape import NodeShape, Shape
from tests.cluster.matrix.form import form

RESERVATION = "course"
# One node for most rows (among several Slurm would choose by what is free at the moment), two for rows that need them,
# and one whose cores have two hyper-threads. Unless a partition sets something else, a CPU brings 1000 MiB.
_MAIN = NodeShape(
    cores=64,
    memory_mib=256000,
    gpu_types=("a",) * 4 + ("b",) * 4,
    gres=("nic:8",),
    features=("fast", "ib"),
)
SHAPE = Shape(
    nodes=(_MAIN, _MAIN, NodeShape(threads_per_core=2)),
    lines=(
        "Licenses=matlab:50",
        "PartitionName=pair Nodes={node[0]},{node[1]}",
        "PartitionName=both Nodes={node[0]},{node[1]} MinNodes=2",
        "PartitionName=second Nodes={node[0]}",
        "PartitionName=smt Nodes={node[2]}",
        "PartitionName=sockets Nodes={node[2]} SelectTypeParameters=CR_Socket_Memory",
        "PartitionName=percpu Nodes={node[0]} DefMemPerCPU=2000",
        "PartitionName=pernode Nodes={node[0]} DefMemPerNode=6000",
        "PartitionName=maxmem Nodes={node[0]} MaxMemPerCPU=2000",
    ),
    outside_main=2,
)

CPUS = (
    form("cpus", "-c 8", cpu=2, mem=2000),
    form("cpus-mem", "-c 8 --mem=8000", cpu=2, mem=256),
    form("tasks", "-n 4 --mem=8000", mem=256, tasks=4),
    form("tasks-cpus", "-n 2 -c 8 --mem=8000", cpu=4, mem=256, tasks=2),
    form("nodes", "-p pair -N 2 --mem=8000", mem=512, tasks=2),
    form("nodes-cpus", "-p pair -N 2 -c 4 --mem=8000", cpu=4, mem=512, tasks=2),
    form("nodes-tasks", "-p pair -N 2 -n 4 -c 4 --mem=8000", cpu=8, mem=512, tasks=4, alone=True),
    form("node-range", "-N 1-2 -c 4 --mem=8000"),
    form("per-node", "-p pair -N 2 --ntasks-per-node=2 -c 4 --mem=8000", cpu=8, mem=512, tasks=4),
    form("per-node-tasks", "-n 2 --ntasks-per-node=2 -c 4 --mem=8000", cpu=4, mem=256, tasks=2),
    form("per-core", "-n 2 --ntasks-per-core=1 -c 4 --mem=8000", mem=256, tasks=2),
    form("per-socket", "-n 2 --ntasks-per-socket=2 -c 4 --mem=8000", mem=256, tasks=2),
    form("sockets", "--sockets-per-node=1 -c 4 --mem=8000", mem=256),
    form("mincpus", "--mincpus=8 -c 4 --mem=8000", mem=256),
    form("overcommit", "-n 4 --overcommit --mem=8000", mem=256, tasks=4),
    form("oversubscribe", "--oversubscribe -c 4 --mem=8000", mem=256),
    form("threads", "-p smt -c 8 --mem=8000", cpu=2, mem=256),
    form("threads-per-core", "-p smt --threads-per-core=1 -c 4 --mem=8000", mem=256),
    form("hint", "-p smt --hint=nomultithread -c 4 --mem=8000", mem=256),
)
MEMORY = (
    form("mem", "--mem=8000", mem=256),
    form("mem-unit", "--mem=8G", mem=256),
    form("mem-per-cpu", "--mem-per-cpu=4000", mem=256),
    form("cpus-mem-per-cpu", "-c 8 --mem-per-cpu=1000", cpu=2, mem=256),
    form("tasks-mem-per-cpu", "-n 2 -c 4 --mem-per-cpu=1000", cpu=4, mem=512, tasks=2),
    form("mem-per-gpu", "--mem-per-gpu=4000 --gres=gpu:4", mem=256, gpu=1),
    form("mem-per-gpu-one", "--mem-per-gpu=4000 --gres=gpu", mem=256),
    form("mem-per-gpu-job", "--mem-per-gpu=4000 --gpus=4", mem=256, gpu=1),
    form("mem-per-gpu-node", "--mem-per-gpu=4000 --gpus-per-node=b:2", mem=256, gpu=1),
    form("mem-per-gpu-task", "-n 2 --mem-per-gpu=4000 --gpus-per-task=2", mem=512, gpu=2, tasks=2),
    form("nodes-mem-per-cpu", "-p pair -N 2 -n 4 -c 2 --mem-per-cpu=1000", mem=1024, tasks=4, alone=True),
    form("mem-zero-gpus", "--mem=0 --gres=gpu:4", gpu=1),
)
GPUS = (
    form("gres", "--mem=4000 --gres=gpu:4", mem=256, gpu=1),
    form("gres-cpus", "-c 4 --mem=4000 --gres=gpu:2", cpu=2, mem=256, gpu=1),
    form("gres-typed", "--mem=4000 --gres=gpu:a:2", mem=256, gpu=1),
    form("gres-several", "--mem=4000 --gres=gpu:4,nic:2", mem=256, gpu=1),
    form("gres-two-types", "--mem=4000 --gres=gpu:a:1,gpu:b:1", mem=256),
    form("gres-other", "-c 4 --mem=4000 --gres=nic:2", cpu=2, mem=256),
    form("gpus", "--mem=4000 --gpus=4", mem=256, gpu=1),
    form("gpus-typed", "--mem=4000 --gpus=a:2", mem=256, gpu=1),
    form("gpus-cpus", "-c 8 --mem-per-cpu=1000 --gpus=4", cpu=2, mem=256, gpu=1),
    form("gpus-per-node", "--mem=4000 --gpus-per-node=4", mem=256, gpu=1),
    form("gpus-per-node-typed", "--mem=4000 --gpus-per-node=b:2", mem=256, gpu=1),
    form("nodes-gpus-per-node", "-p pair -N 2 --mem=4000 --gpus-per-node=2", mem=512, gpu=2, tasks=2),
    form("nodes-gres", "-p pair -N 2 --mem=4000 --gres=gpu:2", mem=512, gpu=2, tasks=2),
    form("gpus-per-task", "-n 2 --mem=4000 --gpus-per-task=2", mem=256, gpu=2, tasks=2),
    form("cpus-gpus-per-task", "-n 2 -c 4 --mem=4000 --gpus-per-task=2", cpu=4, mem=256, gpu=2, tasks=2),
    form("gpus-per-task-typed", "-n 2 --mem=4000 --gpus-per-task=a:1", mem=256, tasks=2),
    form("nodes-gpus", "-p pair -N 2 --mem=4000 --gpus=4", mem=512, gpu=2, tasks=2),
    form("spread-job", "-p pair --spread-job -n 3 --mem=4000", tasks=3, alone=True),
    # Its tasks may be on two nodes, and each then needs a GPU of its own.
    form("tasks-gpus", "-p pair -n 2 --mem=4000 --gpus=4", mem=256, gpu=2, tasks=2, alone=True),
    # No node has so many, and its srun starts a task on each.
    form("gpus-of-two-nodes", "-p pair --mem=4000 --gpus=a:5", mem=512, alone=True),
    # Slurm puts four on one node and one on the other, where it carries all the memory there.
    form("mem-per-gpu-of-two-nodes", "-p pair --gpus=a:5 --mem-per-gpu=4000", mem=1280, alone=True),
    # Its constraint gives it two nodes.
    form("gpus-counted-features", "-p pair -C '[fast*2]' --mem=4000 --gpus=4", mem=512, alone=True),
    # Its partition puts it on two nodes, each with a GPU.
    form("gpus-min-nodes", "-p both --mem=4000 --gpus=4", mem=512, alone=True),
    # On smaller nodes, with fewer CPUs, all tasks would go to one of them, with half of the GPUs.
    form("tasks-gres", "-p pair -N 2 -n 5 -c 4 --mem=8000 --gres=gpu:2", mem=512, gpu=2, tasks=5, alone=True),
    form("gpus-per-socket", "--sockets-per-node=1 --mem=4000 --gpus-per-socket=2", mem=256),
    form("cpus-per-gpu", "--mem=4000 --gpus=2 --cpus-per-gpu=4", mem=256),
    form("cpus-per-gpu-gres", "--mem=4000 --gres=gpu:2 --cpus-per-gpu=4", mem=256),
    form("cpus-per-gpu-task", "-n 2 --mem=4000 --gpus-per-task=2 --cpus-per-gpu=2", mem=256, tasks=2),
    form("tasks-per-gpu", "--mem=4000 --gpus=2 --ntasks-per-gpu=2", mem=256, tasks=4),
)
PLACE = (
    form("wrap", "-c 8 --mem=8000", command="sbatch --wrap", cpu=2, mem=256),
    form("directives", "-c 8 --mem=8000", command="#SBATCH", cpu=2, mem=256),
    form("directives-gpus", "-c 4 --mem=4000 --gpus=a:2", command="#SBATCH", cpu=2, mem=256, gpu=1),
    form("environment", "-c 8", SBATCH_MEM_PER_NODE="8000", cpu=2, mem=256),
    form("environment-per-cpu", "-c 8", SBATCH_MEM_PER_CPU="1000", cpu=2, mem=256),
    form("environment-gres", "--mem=4000", SBATCH_GRES="gpu:2", mem=256, gpu=1),
    form("environment-gpus", "--mem=4000", SBATCH_GPUS="2", mem=256, gpu=1),
    form("environment-per-gpu", "--gpus=2", SBATCH_MEM_PER_GPU="4000", mem=256, gpu=1),
    form("environment-hint", "-p smt -c 4 --mem=8000", SBATCH_HINT="nomultithread", mem=256),
    form("array", "--array=1-2 -c 8 --mem=8000", cpu=2, mem=256, jobs=2),
    form("array-throttled", "--array=1-2%1 -c 8 --mem=8000", cpu=2, mem=256, jobs=2),
    form("array-gpus", "--array=1-2 --mem=4000 --gres=gpu:2", mem=256, gpu=1, jobs=2),
    form("environment-array", "-c 8 --mem=8000", SBATCH_ARRAY_INX="1-2", cpu=2, mem=256, jobs=2),
    form("partitions", "-p main,second -c 8 --mem=8000", cpu=2, mem=256),
    form("def-mem-per-cpu", "-p percpu -c 8", cpu=2, mem=4000),
    form("def-mem-per-node", "-p pernode -c 8", cpu=2),
    form("max-mem-per-cpu", "-p maxmem -c 2 --mem-per-cpu=4000", cpu=2, mem=256),
    form("max-mem-per-cpu-mem", "-p maxmem --mem=8000", cpu=2, mem=4000),
    form("reservation", f"--reservation={RESERVATION} -L matlab:1 -c 8 --mem=8000", cpu=2, mem=256),
    form("licences", "-L matlab:2 -c 8 --mem=8000", cpu=2, mem=256),
    form("feature", "-C fast -c 8 --mem=8000", cpu=2, mem=256),
    form("features", "-C 'fast&ib' -c 8 --mem=8000", cpu=2, mem=256),
    form("contiguous", "-p pair --contiguous -N 2 -c 4 --mem=8000", cpu=4, mem=512, tasks=2),
    form(
        "all-at-once",
        f"--array=1-2%1 -p main,second --reservation={RESERVATION} -L matlab:1 -C 'fast&ib' -n 2 -c 4 "
        "--mem-per-cpu=1000 --gres=gpu:a:2,nic:1",
        cpu=4,
        mem=512,
        gpu=1,
        tasks=2,
        jobs=2,
    ),
    # Slurm gives the parts of a heterogeneous job different nodes.
    form("het", "-p pair -c 4 --mem=4000 : -p pair -c 2 --mem=2000", jobs=2),
    form("het-directives", "-p pair -c 4 --mem=4000 : -p pair -c 2 --mem=2000", command="#SBATCH", jobs=2),
)
# What the script, or the environment, requests for a step of its own.
STEPS = (
    form("step-cpus", "-n 4 -c 8 --mem=8000", script="srun -c 4 hostname\n", cpu=16, mem=256, tasks=4),
    form("step-fit", "-c 8 --mem=8000", script="srun -c 4 hostname\n", mem=256),
    form(
        "step-nodes",
        "-p pair -N 2 -n 2 -c 8 --mem=8000",
        script="srun -c 6 hostname\n",
        cpu=12,
        mem=512,
        tasks=2,
    ),
    form(
        "step-alone",
        "-p pair -N 2 -c 8 --mem=8000",
        script="srun -N1 -n1 -c6 hostname\n",
        cpu=12,
        mem=512,
        tasks=2,
    ),
    # With less, these steps are refused («More processors requested than permitted», «Memory required by task is not
    # available»), run one after the other, or are killed.
    form(
        "step-variables",
        "-c 8 --mem=8000",
        script="N=4\nM=2G\nsrun -n $N -c 1 --mem=$M hostname\n",
        cpu=4,
        mem=2048,
    ),
    form("step-unread", "-c 8 --mem=8000", script="N=$(echo 4)\nsrun -n $N -c 1 --mem=${N}G hostname\n"),
    form(
        "step-farm",
        "-c 8 --mem=8000",
        script="for n in 1 2 3 4; do srun -n 1 -c 2 --mem=1000 hostname & done; wait\n",
    ),
    form(
        "step-groups",
        "-c 8 --mem=8000",
        script="srun -n 1 --exact --mem=500 sh -c 'cd /; sleep 1' &\n"
        "(cd /; srun -n 1 --exact --mem=500 sleep 1; date) 2>&1 | cat &\nwait\n",
        cpu=2,
        mem=1024,
    ),
    form(
        "step-function",
        "-c 8 --mem=8000",
        script="one() {\n  srun -n 1 --exact --mem=500 sleep 1\n  date\n}\none &\none &\nwait\n",
    ),
    form(
        "step-launcher",
        "-c 8 --mem=8000",
        script='launch="srun -n 1 -c 2 --exact --mem=500"\n$launch sleep 1 &\n$launch sleep 1 &\nwait\n',
        cpu=4,
        mem=1024,
    ),
    form(
        "step-options",
        "-c 8 --mem=8000",
        script="bash <<'END'\nargs=(-n 1 -c 2 --exact --mem=500)\n"
        'srun "${args[@]}" sleep 1 &\nsrun "${args[@]}" hostname &\nwait\nEND\n',
        cpu=4,
        mem=1024,
    ),
    form(
        "step-lists",
        "-c 8 --mem=8000",
        script="cd / && srun -n 1 --exact --mem=500 sleep 1 && date &\n"
        "if srun -n 1 --exact --mem=500 sleep 1; then date; fi &\nwait\n",
        cpu=2,
        mem=1024,
    ),
    form(
        "step-larger",
        "-c 8 --mem=8000",
        script="n=1\nwhile [ $n -le 4 ]; do\n  srun -n $n -c 1 hostname || exit 1\n  n=$((n*2))\ndone\n",
        mem=256,
    ),
    form(
        "step-sometimes",
        "-c 8 --mem=8000",
        script="N=1\n[ -d / ] && N=4\nsrun -n $N -c 1 hostname\n",
        mem=256,
    ),
    form(
        "step-parts",
        "-p pair -N 2 -c 8 --mem=8000",
        script="srun -n 1 -c 1 hostname : -n 4 -c 2 hostname\n",
        mem=512,
        tasks=2,
    ),
    form("step-share", "-c 8 --mem-per-cpu=1000", script="srun -n 1 -c 1 hostname\n"),
    form("step-gpu-share", "--gpus=4 --mem-per-gpu=2000", script="srun -n 1 --gpus=1 hostname\n"),
    form("step-blanks", "-c 8 --mem=8000", script="srun --mem  2GB hostname\n", cpu=2, mem=2048),
    # Submitted from inside a job, whose environment is passed on.
    form("step-exported-cpus", "-n 2 -c 8 --mem=8000", SRUN_CPUS_PER_TASK="8", cpu=4, mem=256, tasks=2),
    form("step-exported-gpus", "--mem=4000 --gres=gpu:4", SLURM_GPUS="4"),
    form("step-exported-gres", "--mem=4000 --gpus=4", SLURM_GRES="gpu:4"),
)
# The client of a direct srun or salloc knows its CPUs and GPUs too, so only the memory is cut.
DIRECT = (
    form("srun", "-c 4 --mem=8000", command="srun", mem=256),
    form("srun-per-cpu", "-n 2 -c 2 --mem-per-cpu=2000", command="srun", mem=512, tasks=2),
    form("srun-gpus", "--mem=4000 --gres=gpu:2", command="srun", mem=256),
    form("salloc", "-c 4 --mem=8000", command="salloc", mem=256),
    form("salloc-gpus", "--mem=4000 --gpus=2", command="salloc", mem=256),
)
# These wait for a node without any other job, so they come last.
WHOLE_NODES = (
    form("mem-zero", "--mem=0 -c 4"),
    form("mem-zero-tasks", "--mem=0 -n 2 -c 4", tasks=2),
    form("exclusive-gpus", "--exclusive --mem-per-cpu=1000 --gres=gpu:2"),
    form("exclusive", "--exclusive -c 4 --mem=8000"),
    form("environment-exclusive", "-c 4 --mem=8000", SBATCH_EXCLUSIVE="exclusive"),
    form("exclusive-user", "--exclusive=user -c 4 --mem=8000"),
    # It gets all 32 CPUs of a socket; with fewer CPUs per task the srun would start more than two tasks.
    form(
        "whole-sockets",
        "-p sockets -c 16 --mem=8000",
        script="srun sh -c 'test $SLURM_NTASKS -le 2'\n",
        mem=256,
    ),
)
# A client cannot say how many tasks follow from GPUs, nor in which partition a reservation is.
_UNKNOWN_TO_CLIENTS = {"tasks-per-gpu", "reservation"}
# The rows with one part, typed as a direct srun that asks before it submits. They are cut as a batch job would be.
AS_CLIENT = tuple(
    replace(row, command="srun", cut={} if row.name in _UNKNOWN_TO_CLIENTS else row.cut)
    for row in (*CPUS, *MEMORY, *GPUS, *PLACE)
    if row.command == "sbatch" and row.jobs == 1 and not row.environment
)
FORMS = (*CPUS, *MEMORY, *GPUS, *PLACE, *STEPS, *DIRECT, *WHOLE_NODES)
