"""Forms of request where slurm.conf sets MaxMemPerCPU=2000, which Lua does not see, and one partition has whole nodes.

To be read like the rows of table.py. If the CPUs of a job cannot carry its memory, Slurm gives it more of them: the
twin then has more than it requests, and ours must never have more than the twin. On 25.11 and 26.05 an srun inside a
job with -c whose CPUs were raised aborts, with us or without («cpus-per-task set by two different environment
variables»): such rows start none.
"""

from __future__ import annotations

from slurm_plugin.sandbox.shape import NodeShape, Shape
from tests.cluster.matrix.form import form

_NODE = NodeShape(cores=64, memory_mib=120000)
SHAPE = Shape(
    nodes=(_NODE, _NODE),
    lines=(
        "MaxMemPerCPU=2000",
        "PartitionName=pair Nodes={node[0]},{node[1]}",
        "PartitionName=tight Nodes={node[0]} MaxMemPerCPU=500",
        "PartitionName=wide Nodes={node[0]} MaxMemPerCPU=8000",
        "PartitionName=pernode Nodes={node[0]} DefMemPerNode=6000",
        "PartitionName=withgpus Nodes={node[0]} DefMemPerGPU=1000",
        "PartitionName=whole Nodes={node[1]} OverSubscribe=EXCLUSIVE",
    ),
    outside_main=1,
)
# Here Slurm does not allocate memory.
UNCOUNTED_SHAPE = Shape(nodes=(_NODE,), lines=("SelectTypeParameters=CR_Core",))
UNCOUNTED_FORMS = (
    form("uncounted-cpus-mem", "-c 8 --mem=8000", cpu=2),
    # Fewer CPUs would bring less memory.
    form("uncounted-per-cpu", "-c 8 --mem-per-cpu=1000"),
    form("uncounted-gpus", "-c 4 --mem=8000 --gpus=4", cpu=2, gpu=1),
)
# Slurm refuses a job that requests more of a node.
REFUSED_SHAPE = Shape(
    nodes=(_NODE,),
    lines=(
        "EnforcePartLimits=ALL",
        "PartitionName=small Nodes={node[0]} MaxMemPerNode=4000",
        "PartitionName=few Nodes={node[0]} MaxCPUsPerNode=4",
    ),
)
REFUSED_FORMS = (
    form("refused-mem", "-p small -c 8 --mem=8000"),
    form("refused-per-cpu", "-p small -c 8 --mem-per-cpu=1000"),
    form("refused-cpus", "-p few -c 8 --mem=8000"),
    form("refused-each", "-p small,few -c 8 --mem=8000"),
    form("refused-not", "-p small -c 8 --mem=4000", cpu=2, mem=256),
    form("refused-not-cpus", "-p few -c 4 --mem=8000", cpu=2, mem=256),
)
# A program may map no more than 110 % of its job's request. This one maps 4 GiB, and uses none of it.
VIRTUAL_SHAPE = Shape(nodes=(_NODE,), lines=("VSizeFactor=110",))
_MAPS = "python3 -c 'import mmap; mmap.mmap(-1, 4 << 30)'\n"
VIRTUAL_FORMS = (
    form("virtual-mem", "-c 8 --mem=8000", cpu=2, script=_MAPS),
    form("virtual-step", "-c 8 --mem=8000", cpu=2, script=f"srun {_MAPS}"),
    # Fewer CPUs would bring less memory.
    form("virtual-per-cpu", "-c 8 --mem-per-cpu=1000", script=_MAPS),
    form("virtual-default", "-c 8", script=_MAPS),
)

FORMS = (
    form("limit-cpus-mem", "-c 8 --mem=8000", cpu=2, mem=256),
    # Its memory brings the CPUs of which it keeps two busy.
    form("limit-raised", "--mem=8000", cpu=2, mem=4000),
    form("limit-raised-cpus", "-c 3 --mem=16000", cpu=2, mem=256, srun=False),
    form("limit-per-cpu", "-c 8 --mem-per-cpu=1000", cpu=2, mem=256),
    form("limit-per-cpu-raised", "-c 4 --mem-per-cpu=4000", cpu=2, mem=256),
    form("limit-per-cpu-alone", "--mem-per-cpu=8000", cpu=2, mem=4000),
    form("limit-tasks-per-cpu", "-n 2 -c 4 --mem-per-cpu=4000", cpu=4, mem=512, tasks=2),
    form("limit-tasks", "-n 4 -c 4 --mem=8000", cpu=8, mem=256, tasks=4),
    form("limit-tasks-raised", "-n 16 --mem=24000", mem=256, tasks=16),
    form("limit-tasks-fewer", "-n 4 -c 8 --mem=20000", tasks=4, srun=False),
    form("limit-nodes", "-p pair -N 2 -c 4 --mem=16000", cpu=4, mem=512, tasks=2, srun=False),
    form("limit-per-node", "-p pair -N 2 --ntasks-per-node=2 -c 4 --mem=8000", cpu=8, mem=512, tasks=4),
    # The memory is needed, and so are the CPUs that carry it.
    form("limit-needed", "-c 16 --mem=16000", cpu=8, used_mib=15500),
    form("limit-needed-all", "-c 8 --mem=16000", used_mib=15500),
    form("limit-needed-raised", "-c 4 --mem=16000", used_mib=15500, srun=False),
    form("limit-default", "-c 8", cpu=2, mem=2000),
    form("limit-default-node", "-p pernode -c 8", cpu=3),
    form("limit-tight", "-p tight -c 8 --mem=4000", cpu=2, mem=256),
    form("limit-tight-needed", "-p tight -c 16 --mem=4000", cpu=8, used_mib=3900),
    form("limit-wide-needed", "-p wide -c 8 --mem=16000", cpu=2, used_mib=15500),
    form("limit-partitions", "-p main,wide -c 16 --mem=16000", cpu=8, used_mib=15500),
    form("limit-gpus", "-c 4 --mem-per-gpu=4000 --gpus=4", cpu=2, mem=256, gpu=1),
    form("limit-gpus-bring-memory", "-p withgpus -c 4 --gpus=4", cpu=2),
    # It gets all CPUs of its node, whatever it requests: other jobs could use none of them.
    form("limit-exclusive-partition", "-p whole -c 8 --mem=8000", srun=False),
    # It and its twin run in the same one of the two: the first, which has room for them while nothing else runs.
    form("limit-one-of-them-exclusive", "-p main,whole -c 8 --mem=8000", alone=True),
    form("limit-array", "--array=1-2 -c 8 --mem=16000", cpu=2, mem=256, jobs=2),
    form("limit-srun", "-n 1 -c 4 --mem=6000", command="srun", mem=256),
    form("limit-srun-raised", "--mem=16000", command="srun", cpu=2, mem=4000),
    # These start a task on each of the CPUs that their memory brings.
    form("limit-srun-tasks", "-c 4 --mem=16000", command="srun"),
    form("limit-raised-ranks", "--mem=16000", script="srun -n $SLURM_CPUS_ON_NODE hostname\n"),
    form("limit-whole-node", "--mem=0 -c 4", srun=False),
)
