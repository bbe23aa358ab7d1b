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
_USER = pwd.getpwuid(os.geteuid()).pw_name
_ADD = ("sacctmgr", "--immediate", "add")
_RESERVE = ("scontrol", "create", "reservation", "StartTime=now", "Duration=UNLIMITED", f"Users={_USER}")

_PARTITIONS = Cluster(
    Shape(
        nodes=(_NODE,) * 4,
        lines=(
            "EnforcePartLimits=ANY",
            "PartitionName=small Nodes=ALL MaxMemPerCPU=1000 DefMemPerCPU=300",
            "PartitionName=large Nodes=ALL MaxMemPerCPU=4000 DefMemPerNode=6000",
            "PartitionName=narrow Nodes=ALL MaxMemPerNode=8000 MaxCPUsPerNode=6",
            "PartitionName=pairs Nodes=ALL MinNodes=2 MaxNodes=3",
            "PartitionName=crowd Nodes=ALL OverSubscribe=FORCE:2 LLN=YES",
        ),
    ),
    commands=(
        (*_RESERVE, "ReservationName=node", "PartitionName=small", "NodeCnt=1"),
        (*_RESERVE, "ReservationName=cores", "CoreCnt=4"),
    ),
    places=(
        *("", "-p small", "-p large", "-p narrow", "-p pairs", "-p crowd"),
        *("-p small,large", "-p large,small", "-p main,large", "-p narrow,main", "-p main,pairs"),
        *("--reservation=node", "--reservation=cores"),
    ),
)
# Under `own`, and with the QOS `least`, less than four CPUs wait for ever.
_LIMITS = Cluster(
    Shape(
        nodes=(_THREADED,) * 4,
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
        *("-A all", "-A capped", "-A all -q least", "-A all -q most", "-A all -q over"),
        *("-A all -p own", "-A all -q over -p own", "-A all -p main,own", "-A all --reservation=cores"),
    ),
)
CLUSTERS = {
    "cores": Cluster(Shape(nodes=(_NODE,) * 4)),
    "threads": Cluster(Shape(nodes=(_THREADED,) * 4)),
    "sockets": Cluster(Shape(nodes=(_NODE,) * 4, lines=("SelectTypeParameters=CR_Socket_Memory",))),
    "bounded": Cluster(Shape(nodes=(_NODE,) * 4, lines=("MaxMemPerCPU=2000", "DefMemPerCPU=500"))),
    "uneven": Cluster(
        Shape(nodes=(_NODE, NodeShape(cores=4, memory_mib=8000), _THREADED, NodeShape(cores=6)))
    ),
    "partitions": _PARTITIONS,
    "limits": _LIMITS,
}
