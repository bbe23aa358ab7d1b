"""The ways of asking, and what Slurm must allocate for each: one row per form, for people to read.

Every row belongs to a family whose last eight jobs used 200 MiB, one core a task and one GPU a node. Enforcing, its
AllocTRES is that of the same submission with `--comment=rightsize=off`, but for what `cut` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from slurm_plugin.sandbox.shape import NodeShape, Shape

# Two nodes for most rows, and one whose cores have two hyper-threads.
_MAIN = NodeShape(cores=32, memory_mib=128000, gpu_types=("a", "a", "b", "b"), features=("fast", "ib"))
_BOTH = "Nodes={node[0]},{node[1]}"
SHAPE = Shape(
    nodes=(_MAIN, _MAIN, NodeShape(threads_per_core=2)),
    lines=(
        "Licenses=matlab:50",
        f"PartitionName=second {_BOTH}",
        "PartitionName=smt Nodes={node[2]}",
        f"PartitionName=percpu {_BOTH} DefMemPerCPU=2000",
        f"PartitionName=pernode {_BOTH} DefMemPerNode=6000",
        f"PartitionName=maxmem {_BOTH} MaxMemPerCPU=2000",
    ),
    outside_main=1,
)
RESERVATION = "course"

Command = Literal["sbatch", "wrap", "srun", "salloc"]


@dataclass(frozen=True, kw_only=True)
class Form:
    """One way of asking. `cut` are the words of AllocTRES that must differ from the untouched twin's, MiB and counts.

    `asks` are options; with `directives` they stand in `#SBATCH` lines. `tasks` is what its past jobs ran with.
    `jobs` is how many rows sacct shows for one submission (tasks of an array, parts of a heterogeneous job).
    """

    name: str
    asks: str
    cut: Mapping[str, int] = field(default_factory=dict)
    command: Command = "sbatch"
    directives: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    tasks: int = 1
    jobs: int = 1

    @property
    def asked(self) -> str:
        """The form as its user types it."""
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        command = (
            "#SBATCH" if self.directives else "sbatch --wrap" if self.command == "wrap" else self.command
        )
        return " ".join([*variables, command, self.asks]).strip()

    @property
    def wants_gpus(self) -> bool:
        """Whether its job should see GPUs."""
        return "gpu" in self.asks or any("GPU" in name or "GRES" in name for name in self.environment)


FORMS = (
    Form(name="cpus", asks="-c 8", cut={"cpu": 2, "mem": 2000}),
    Form(name="cpus-mem", asks="-c 8 --mem=8000", cut={"cpu": 2, "mem": 256}),
    Form(name="mem", asks="--mem=8000", cut={"mem": 256}),
    Form(name="mem-unit", asks="--mem=8G", cut={"mem": 256}),
    Form(name="mem-per-cpu", asks="--mem-per-cpu=4000", cut={"mem": 256}),
    Form(name="cpus-mem-per-cpu", asks="-c 8 --mem-per-cpu=1000", cut={"cpu": 2, "mem": 256}),
    Form(name="tasks-cpus", asks="-n 2 -c 8 --mem=8000", tasks=2, cut={"cpu": 4, "mem": 256}),
    Form(name="tasks-mem-per-cpu", asks="-n 2 -c 4 --mem-per-cpu=1000", tasks=2, cut={"cpu": 4, "mem": 512}),
    Form(name="gres", asks="--mem=4000 --gres=gpu:4", cut={"mem": 256, "gres/gpu": 1}),
    Form(
        name="gres-cpus",
        asks="-c 4 --mem=4000 --gres=gpu:2",
        cut={"cpu": 2, "mem": 256, "gres/gpu": 1},
    ),
    Form(name="directives", asks="-c 8 --mem=8000", directives=True, cut={"cpu": 2, "mem": 256}),
    Form(
        name="environment",
        asks="-c 8",
        environment={"SBATCH_MEM_PER_NODE": "8000"},
        cut={"cpu": 2, "mem": 256},
    ),
    Form(name="wrap", asks="-c 8 --mem=8000", command="wrap", cut={"cpu": 2, "mem": 256}),
)
