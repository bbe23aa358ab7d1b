"""The demo's tables: what was asked, granted and used, from Slurm's own AllocTRES and MaxRSS."""

from __future__ import annotations

from collections.abc import Sequence

from accounting.records import Attempt
from accounting.units import format_mib

NOTHING = "-"


def family_rows(attempts: Sequence[Attempt]) -> list[dict[str, object]]:
    """Return a row for each job name: what was asked, granted and used, each time the largest of its jobs."""
    names = dict.fromkeys(attempt.row.job_name for attempt in attempts)
    return [_row(name, [attempt for attempt in attempts if attempt.row.job_name == name]) for name in names]


def _row(name: str, attempts: Sequence[Attempt]) -> dict[str, object]:
    def most(values: Sequence[float | None]) -> float | None:
        return max((value for value in values if value is not None), default=None)

    ended: dict[str, int] = {}
    for attempt in attempts:
        ended[attempt.row.state] = ended.get(attempt.row.state, 0) + 1
    cpus = (
        most([a.asked_cpus for a in attempts]),
        most([a.row.alloc_cpus for a in attempts]),
        most([a.use.cores for a in attempts]),
    )
    memory = (
        most([a.asked_mem_mib for a in attempts]),
        most([a.row.alloc_mem_mib for a in attempts]),
        most([a.use.peak_mem_mib for a in attempts]),
    )
    gpus = (most([a.asked_gpus for a in attempts]), most([a.row.alloc_gpus for a in attempts]))
    return {
        "family": name,
        "jobs": len(attempts),
        "CPUs asked": count(cpus[0]),
        "granted": count(cpus[1]),
        "used": cores(cpus[2]),
        "memory asked": size(memory[0]),
        "granted ": size(memory[1]),
        "used ": size(memory[2]),
        "GPUs asked": count(gpus[0]),
        "granted  ": count(gpus[1]),
        "ended": ", ".join(f"{number} {state}" for state, number in ended.items()),
    }


def count(value: float | None) -> str:
    """Format a count for a table."""
    return NOTHING if value is None else f"{value:.0f}"


def cores(value: float | None) -> str:
    """Format a mean number of busy cores for a table."""
    return NOTHING if value is None else f"{value:.2f}"


def size(mib: float | None) -> str:
    """Format an amount of memory for a table."""
    return NOTHING if mib is None else format_mib(mib)
