"""The simulated hardware of a sandbox's nodes, and extra lines of its slurm.conf. Pure.

A node is a plain `NodeShape()` unless a test asks for another, such as one with hyper-threads or types of GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

GPUS = 4
SHARDS = 16


@dataclass(frozen=True, kw_only=True)
class NodeShape:
    """One node: `cores` of `threads_per_core` CPUs each, shared out among its sockets, memory in MiB, and GPUs.

    `gpu_types` has an entry for each GPU, "" for one without a type; GPUs of one type must be adjacent. With several
    sockets, each type is near one of them, in turn. `gres` lists further resources that are only counted, such as
    `nic:4`.
    """

    cores: int = 16
    sockets: int = 1
    threads_per_core: int = 1
    memory_mib: int = 64000
    gpu_types: tuple[str, ...] = ("",) * GPUS
    gres: tuple[str, ...] = ()
    features: tuple[str, ...] = ()

    @property
    def cpus(self) -> int:
        """CPUs as Slurm counts them: hyper-threads."""
        return self.cores * self.threads_per_core

    @property
    def cores_per_socket(self) -> int:
        """How many cores each socket has."""
        return self.cores // self.sockets

    @property
    def words(self) -> str:
        """The node's shape in the words of slurm.conf."""
        gpus = [f"gpu:{name}:{count}" if name else f"gpu:{count}" for name, _, count in self.gpus()]
        gres = ",".join((*gpus, f"shard:{SHARDS}", *self.gres))
        features = f" Feature={','.join(self.features)}" if self.features else ""
        return (
            f"CPUs={self.cpus} Sockets={self.sockets} CoresPerSocket={self.cores_per_socket} "
            f"ThreadsPerCore={self.threads_per_core} RealMemory={self.memory_mib} Gres={gres}{features}"
        )

    def gpus(self) -> list[tuple[str, int, int]]:
        """List each type of GPU, the index of its first GPU, and how many there are."""
        found = []
        first = 0
        for name, several in groupby(self.gpu_types):
            count = len(list(several))
            found.append((name, first, count))
            first += count
        return found

    def gres_lines(self, node: str, devices: Path) -> list[str]:
        """Return the node's lines of gres.conf."""
        lines = []
        for index, (name, first, count) in enumerate(self.gpus()):
            kind = f"Type={name} " if name else ""
            files = f"File={devices}/gpu[{first}-{first + count - 1}]"
            lines.append(f"NodeName={node} Name=gpu {kind}{files}{self._cores_near(index)}")
        counted = [one.rpartition(":") for one in (f"shard:{SHARDS}", *self.gres)]
        return [*lines, *(f"NodeName={node} Name={name} Count={count}" for name, _, count in counted)]

    def _cores_near(self, kind: int) -> str:
        """Say which cores are near the GPUs of a type, by its number among them; nothing on a single socket."""
        if self.sockets == 1:
            return ""
        first = kind % self.sockets * self.cores_per_socket
        return f" Cores={first}-{first + self.cores_per_socket - 1}"


@dataclass(frozen=True)
class Shape:
    """A whole cluster: its first nodes (the rest are plain), and lines for the end of slurm.conf.

    In the lines, `{node[0]}` is the name of the first node. The partition `main` has all nodes except the last
    `outside_main`.
    """

    nodes: tuple[NodeShape, ...] = ()
    lines: tuple[str, ...] = ()
    outside_main: int = 0

    @property
    def devices(self) -> int:
        """How many files the simulated GPUs of a node need."""
        return max((len(node.gpu_types) for node in self.nodes), default=GPUS)

    @property
    def gres_types(self) -> tuple[str, ...]:
        """The kinds of generic resources of all nodes."""
        more = (one.partition(":")[0] for node in self.nodes for one in node.gres)
        return tuple(dict.fromkeys(("gpu", "shard", *more)))

    def node(self, index: int) -> NodeShape:
        """Return the shape of a node; the first has index 0."""
        return self.nodes[index] if index < len(self.nodes) else NodeShape()


PLAIN = Shape()
