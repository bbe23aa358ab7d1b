"""What a job's workers wrote about themselves (worker.py), and what it adds up to. Knows nothing of Slurm."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """One process: `holds` is its memory in MiB, from when to when (unix seconds); `ended`, whether it got so far."""

    job: int
    attempt: int
    step: str
    task: int
    node: str
    began_s: float
    cpu_s: float
    holds: tuple[tuple[float, float, float], ...]
    ended: bool


def read_facts(folder: Path, job: int, attempt: int | None = None) -> list[Fact]:
    """Return the facts of a job's workers, or of one of its attempts (the first is 0)."""
    files = sorted(folder.glob(f"{job}-{'*' if attempt is None else attempt}-*.json"))
    return [msgspec.json.decode(file.read_bytes(), type=Fact) for file in files]


def held_mib(facts: Iterable[Fact]) -> float:
    """Return the most memory that these processes held at once, in MiB; 0 without any."""
    holds = [hold for fact in facts for hold in fact.holds]
    return max((_held_at(holds, from_s) for _, from_s, _ in holds), default=0.0)


def _held_at(holds: Sequence[tuple[float, float, float]], moment_s: float) -> float:
    return sum(mib for mib, from_s, until_s in holds if from_s <= moment_s <= until_s)


def largest_task_mib(facts: Iterable[Fact]) -> float:
    """Return the most memory that one process held, in MiB; 0 without any."""
    return max((mib for fact in facts for mib, _, _ in fact.holds), default=0.0)


def by_node(facts: Iterable[Fact]) -> Iterator[list[Fact]]:
    """Yield the facts of each node."""
    ordered = sorted(facts, key=lambda fact: fact.node)
    for _, several in itertools.groupby(ordered, key=lambda fact: fact.node):
        yield list(several)
