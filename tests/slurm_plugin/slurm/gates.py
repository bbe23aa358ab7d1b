"""Gateways on a queue in memory, and the changes for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from slurm_plugin.slurm import factor_log, factor_state
from slurm_plugin.slurm.gateway import Gateway, WriteTerms
from slurm_plugin.slurm.queue import FactorChange
from tests.slurm_plugin.slurm.memory_queue import MemoryQueue

TERMS = WriteTerms(most_factor=1000, most_changes=5, writes_per_s=20.0, lease_s=60.0)


def changes_of(wanted: Mapping[int, int], before: Mapping[int, int]) -> list[FactorChange]:
    """Return the changes from the current factors or, where they are unknown, from 0."""
    return [
        FactorChange(job_id=job, before=before.get(job, 0), after=after, reason="test")
        for job, after in wanted.items()
    ]


def gate(queue: MemoryQueue, folder: Path, *, apply: bool = True) -> Gateway:
    return Gateway(queue, folder, TERMS, apply=apply, cluster="alpha", sleep=lambda _: None)


def problems(gateway: Gateway, changes: Sequence[FactorChange]) -> list[str]:
    return [written.problem for written in gateway.reorder(changes)]


def in_force(folder: Path) -> dict[int, int]:
    return factor_state.in_force(factor_log.FactorLog(folder, "alpha").read())
