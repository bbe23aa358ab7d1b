"""Trackable resources (TRES) as Slurm writes them: `billing=8,cpu=8,gres/gpu=4,mem=8000M,node=1`."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from accounting.units import MIB_IN_BYTES, parse_duration_s, parse_memory_mib, whole

# More than any cluster has, and still an exact whole number everywhere: a store could not hold 9000000E.
MOST_MIB = 2.0**53


class Tres(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a TRES list that this project reads; None for parts that the list does not name."""

    cpus: int | None = None
    mem_mib: int | None = None
    gpus: int | None = None
    nodes: int | None = None
    energy_j: int | None = None


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a TRESUsage list that this project reads; None for parts that the list does not name.

    `moved_mib` is file system traffic: data read in TRESUsageIn*, data written in TRESUsageOut*.
    """

    cpu_s: float | None = None
    mem_mib: float | None = None
    gpu_util_pct: float | None = None
    gpu_mem_mib: float | None = None
    moved_mib: float | None = None
    energy_j: float | None = None


def split_tres(text: str) -> dict[str, str]:
    """Return the `name=value` pairs of a TRES list; other parts are left out."""
    pairs = (part.partition("=") for part in text.split(",") if part)
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


def name_tres(text: str, names: Mapping[int, str]) -> str:
    """Return slurmdbd's `1=20,2=170000` with names for numbers; the larger value counts if two share a name."""
    named: dict[str, str] = {}
    for number, value in split_tres(text).items():
        name = names.get(whole(number) or 0, number)
        named[name] = max(named.get(name, value), value, key=lambda one: whole(one) or 0)
    return ",".join(f"{name}={value}" for name, value in named.items())


def parse_tres(text: str) -> Tres:
    """Read a requested or allocated TRES list; memory without a suffix is MiB."""
    parts = split_tres(text)
    mem_mib = parse_memory_mib(parts.get("mem", ""))
    return Tres(
        cpus=whole(parts.get("cpu")),
        mem_mib=None if mem_mib is None else round(min(mem_mib, MOST_MIB)),
        gpus=_gpus(parts),
        nodes=whole(parts.get("node")),
        energy_j=whole(parts.get("energy")),
    )


def _gpus(parts: Mapping[str, str]) -> int | None:
    """Return the number of GPUs of any type; if AccountingStorageTRES names only types, the sum over the types."""
    if "gres/gpu" in parts:
        return whole(parts["gres/gpu"])
    typed = [whole(value) for name, value in parts.items() if _is_typed(name)]
    known = [number for number in typed if number is not None]
    # More than `whole` accepts would not fit a store either.
    return whole(str(sum(known))) if known and len(known) == len(typed) else None


def gpu_types(text: str) -> dict[str, int]:
    """Return the number of GPUs of each type in a TRES list, for the types that AccountingStorageTRES names."""
    found = {
        name.partition(":")[2]: whole(value) for name, value in split_tres(text).items() if _is_typed(name)
    }
    return {name: number for name, number in found.items() if number}


def _is_typed(name: str) -> bool:
    return name.startswith("gres/gpu:")


def parse_usage(text: str) -> Usage:
    """Parse a TRESUsage list, with bytes (`--noconvert`) or with suffixes, which Slurm also gives to joules."""
    parts = split_tres(text)
    util_pct = whole(parts.get("gres/gpuutil"))
    energy_mib = parse_memory_mib(parts.get("energy", ""), bare_unit="B")
    return Usage(
        cpu_s=parse_duration_s(parts.get("cpu", "")),
        mem_mib=parse_memory_mib(parts.get("mem", ""), bare_unit="B"),
        gpu_util_pct=None if util_pct is None else float(util_pct),
        gpu_mem_mib=parse_memory_mib(parts.get("gres/gpumem", ""), bare_unit="B"),
        moved_mib=parse_memory_mib(parts.get("fs/disk", ""), bare_unit="B"),
        energy_j=None if energy_mib is None else energy_mib * MIB_IN_BYTES,
    )
