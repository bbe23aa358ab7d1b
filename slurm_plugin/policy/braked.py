"""Which jobs a pulled brake exempts from cuts. Pure: slurm_plugin/brakes pulls the brakes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from accounting.request import JobRequest
from models.past.job_names import normal_name

Level = Literal["family", "partition", "all"]


class Brake(msgspec.Struct, frozen=True, omit_defaults=True):
    """A brake on a family (one user's jobs of one name, its numbers ignored), on a partition, or on everything."""

    level: Level
    user: str = ""
    name: str = ""


ALL = Brake("all")


def family_brake(user: str, job_name: str) -> Brake:
    """Return the brake of a job's family, as a gradual rollout defines it."""
    return Brake("family", user, normal_name(job_name))


def renamed(brake: Brake) -> Brake:
    """Return a brake under its current name: an older release may have named the same family differently."""
    return family_brake(brake.user, brake.name) if brake.level == "family" else brake


def partition_brake(name: str) -> Brake:
    """Return the brake of a partition."""
    return Brake("partition", name=name)


def brake_on(request: JobRequest, partitions: Iterable[str], pulled: frozenset[Brake]) -> Brake | None:
    """Return the widest brake that applies to a job that may run in these partitions; None for most jobs."""
    if not pulled:
        return None
    found = (ALL, *map(partition_brake, partitions), family_brake(request.user, request.job_name))
    return next((brake for brake in found if brake in pulled), None)
