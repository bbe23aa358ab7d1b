"""What a line of `scontrol --oneliner show node` says of a node's cores, sockets and GPUs. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from accounting.tres import parse_tres
from accounting.units import whole

# `gpu:4(S:0),gpu:a100:2,gpu:1g.10gb:7,shard:16`.
_GPUS = re.compile(r"(?:^|,)gpu(?::(?!\d+(?:[(,]|$))([\w.\-]+))?:(\d+)", re.ASCII)


def words_of(line: str) -> dict[str, str]:
    """Return the words of a line of scontrol's, the first of each name: what an admin gave as a reason comes last."""
    pairs = [word.split("=", 1) for word in line.split() if "=" in word]
    return dict(reversed(pairs))


def core_cpus(words: Mapping[str, str]) -> int:
    """Return how many CPUs a core has: its threads, or 1 if CPUs= in slurm.conf counts cores. 1 if not known."""
    sockets, cores = (whole(words.get(name)) or 0 for name in ("Sockets", "CoresPerSocket"))
    return max(1, _cpus(words) // (sockets * cores)) if sockets * cores else 1


def socket_cpus(words: Mapping[str, str]) -> int:
    """Return how many CPUs a socket has; 1 if not known."""
    sockets = whole(words.get("Sockets")) or 0
    return max(1, _cpus(words) // sockets) if sockets else 1


def gpus_of(words: Mapping[str, str]) -> Counter[str]:
    """Return how many GPUs of each type a node has, '' for those without a type, in the order of its Gres."""
    found = Counter[str]()
    for name, count in _GPUS.findall(words.get("Gres", "")):
        found[name] += int(count)
    return found


def has_of(words: Mapping[str, str]) -> tuple[int, int, int]:
    """Return the CPUs, MiB and GPUs that a node has for jobs.

    If AccountingStorageTRES does not name its GPUs, or some of their types, only Gres has them.
    """
    tres = parse_tres(words.get("CfgTRES", ""))
    cpus = tres.cpus or _cpus(words)
    mem_mib = whole(words.get("RealMemory")) or tres.mem_mib or 0
    return (
        min(cpus, whole(words.get("CPUEfctv")) or cpus),
        max(0, mem_mib - (whole(words.get("MemSpecLimit")) or 0)),
        max(tres.gpus or 0, sum(gpus_of(words).values())),
    )


def _cpus(words: Mapping[str, str]) -> int:
    return whole(words.get("CPUTot")) or 0
