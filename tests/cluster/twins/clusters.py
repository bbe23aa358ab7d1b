"""The clusters on which requests are drawn: several shapes of nodes, and what a site adds to them."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass, replace

from slurm_plugin.sandbox.shape import NodeShape, Shape


@dataclass(frozen=True)
class Cluster:
    """A cluster, the commands that complete it, and options of which each request on it has one.

    These options say where a request may run, or under whose limits; "" is none.
    """

    shape: Shape
    commands: tuple[tuple[str, ...], ...] = ()
    places: tuple[str, ...] = ()


_NODE = NodeShape(gpu_types=("a", "a", "b", "b"), features=("fast",))
_THREADED = replace(_NODE, cores=8, threads_per_core=2)
_SOCKETS = replace(_NODE, sockets=2, threads_per_core=2)
_EVEN, _EVEN_THREADED, _EVEN_SOCKETS = (
    replace(node, features=("fast", "even")) for node in (_NODE, _THREADED, _SOCKETS)
)
# GPUs that are cut up, beside whole ones.
_PARTS = replace(_NODE, gpu_types=("a", "a", "b", "b", *["1g.5gb"] * 4), sockets=2)
_USER = pwd.getpwuid(os.geteuid()).pw_name
_ADD = ("sacctmgr", "--immediate", "add")
_RESERVE = ("scontrol", "create", "reservation", "StartTime=now", "Duration=UNLIMITED", f"Users={_USER}")

_PARTITIONS = Cluster(
    Shape(
        nodes=(_NODE, _EVEN) * 2,
        lines=(
            "EnforcePartLimits=ANY",
            "PartitionName=small Nodes=ALL MaxMemPerCPU=1000 DefMemPerCPU=300",
            "PartitionName=large Nodes=ALL MaxMemPerCPU=4000 DefMemPerNode=6000",
            "PartitionName=narrow Nodes=ALL MaxMemPerNode=8000 MaxCPUsPerNode=6",
            "PartitionName=pairs Nodes=ALL MinNodes=2 MaxNodes=3",
            "PartitionName=crowd Nodes=ALL OverSubscribe=FORCE:2 LLN=YES",
            "PartitionName=loose Nodes=ALL OverSubscribe=YES:4 LLN=YES",
            "PartitionName=bygpu Nodes=ALL DefCpuPerGPU=2 DefMemPerGPU=3000",
            "PartitionName=whole Nodes=ALL OverSubscribe=EXCLUSIVE",
            "PartitionName=alone Nodes=ALL MaxNodes=1 DefMemPerCPU=700",
        ),
    ),
    commands=(
        (*_RESERVE, "ReservationName=node", "PartitionName=small", "NodeCnt=1"),
        (*_RESERVE, "ReservationName=cores", "CoreCnt=4"),
    ),
    places=(
        *("", "-p small", "-p large", "-p narrow", "-p pairs", "-p crowd"),
        *("-p loose", "-p bygpu", "-p bygpu", "-p whole", "-p alone", "-p alone,bygpu"),
        *("-p small,large", "-p large,small", "-p main,large", "-p narrow,main", "-p main,pairs"),
        *("--reservation=node", "--reservation=cores", "--reservation=node -p small"),
    ),
)
# Under `own`, and with the QOS `least`, less than four CPUs wait for ever.
_LIMITS = Cluster(
    Shape(
        nodes=(_THREADED, _EVEN_THREADED) * 2,
        lines=(
            "EnforcePartLimits=ALL",
            "MaxMemPerCPU=2000",
            "AccountingStorageEnforce=associations,limits,qos,safe",
            "PartitionName=own Nodes=ALL DefMemPerCPU=250",
        ),
    ),
    commands=(
        (*_ADD, "qos", "least", "MinTRESPerJob=cpu=4,mem=1000"),
        (*_ADD, "qos", "most", "MaxTRESPerJob=cpu=32,mem=40000", "GrpTRES=cpu=48", "Flags=DenyOnLimit"),
        (*_ADD, "qos", "over", "MinTRESPerJob=cpu=2,gres/gpu=1", "Flags=DenyOnLimit,OverPartQOS"),
        (*_ADD, "account", "all"),
        (*_ADD, "account", "capped", "GrpTRES=cpu=32,mem=40000", "MaxTRESPerJob=cpu=24"),
        (*_ADD, "user", _USER, "account=all", "qos=normal,least,most,over", "defaultqos=normal"),
        (*_ADD, "user", _USER, "account=capped", "qos=normal"),
        ("scontrol", "update", "PartitionName=own", "QOS=least"),
        (*_RESERVE, "ReservationName=cores", "CoreCnt=4", "PartitionName=own"),
    ),
    places=(
        *("-A all", "-A capped", "-A all -q normal", "-A capped -q normal"),
        *("-A all -q least", "-A all -q most", "-A all -q over", "-A all -p own", "-A all -q normal -p own"),
        *(
            "-A all -q over -p own",
            "-A all -q normal -p main,own",
            "-A all -q normal --reservation=cores -p own",
        ),
    ),
)
CLUSTERS = {
    "cores": Cluster(Shape(nodes=(_NODE, _EVEN) * 2)),
    "threads": Cluster(Shape(nodes=(_THREADED, _EVEN_THREADED) * 2)),
    "sockets": Cluster(
        Shape(nodes=(_SOCKETS, _EVEN_SOCKETS) * 2, lines=("SelectTypeParameters=CR_Socket_Memory",))
    ),
    "cpus": Cluster(
        Shape(nodes=(_THREADED, _EVEN_THREADED) * 2, lines=("SelectTypeParameters=CR_CPU_Memory",))
    ),
    "one-task": Cluster(
        Shape(
            nodes=(_SOCKETS, _EVEN_SOCKETS) * 2,
            lines=("SelectTypeParameters=CR_Core_Memory,CR_ONE_TASK_PER_CORE,CR_LLN",),
        )
    ),
    "parts": Cluster(Shape(nodes=(_PARTS, replace(_PARTS, features=_EVEN.features)) * 2)),
    "two-sockets": Cluster(Shape(nodes=(_SOCKETS, _EVEN_SOCKETS) * 2)),
    "bounded": Cluster(Shape(nodes=(_NODE, _EVEN) * 2, lines=("MaxMemPerCPU=2000", "DefMemPerCPU=500"))),
    "uneven": Cluster(
        Shape(nodes=(_NODE, NodeShape(cores=4, memory_mib=8000), _THREADED, NodeShape(cores=6)))
    ),
    "partitions": _PARTITIONS,
    "limits": _LIMITS,
}
