"""The most that Slurm lets one job ask for: by limits of QOS and accounts, and by what nodes have. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest

import msgspec

from accounting.request import JobRequest


class Maximum(msgspec.Struct, frozen=True, kw_only=True):
    """The most that a job may ask for before Slurm refuses it; memory is MiB, 0 = any amount."""

    cpus: int = 0
    gpus: int = 0
    mem_mib: int = 0

    def is_below(self, request: JobRequest) -> bool:
        """Whether a job asks in all for more than this of anything."""
        return self._is_below(request.cpus, request.gpus or 0, request.mem_mib or 0)

    def is_below_on_node(self, request: JobRequest) -> bool:
        """Whether a job asks on one of its nodes for more than this of anything."""
        cpus, gpus = cpus_of_node(request), request.gpus_per_node or request.gpus_per_task or 0
        return self._is_below(cpus, gpus, mem_of_node_mib(request))

    def _is_below(self, cpus: int, gpus: int, mem_mib: int) -> bool:
        asked = ((cpus, self.cpus), (gpus, self.gpus), (mem_mib, self.mem_mib))
        return any(is_beyond(amount, most) for amount, most in asked)


NO_MAXIMUM = Maximum()


class Maximums(msgspec.Struct, frozen=True, kw_only=True):
    """The most that a QOS or an association lets one job ask for: in all, on a node, and in all times its minutes.

    Each holds one maximum for each kind of limit, in one order; an association lacks the last kinds.
    """

    of_job: tuple[Maximum, ...] = ()
    of_node: tuple[Maximum, ...] = ()
    minutes: tuple[Maximum, ...] = ()


NO_MAXIMUMS = Maximums()


class QosMaximums(msgspec.Struct, frozen=True, kw_only=True):
    """A QOS's maximums, whether it `refuses` jobs that ask for more (DenyOnLimit), and whether it has OverPartQOS.

    `account_factor` is what multiplies an association's maximums of a job (LimitFactor); None: it says nothing of that.
    """

    most: Maximums = NO_MAXIMUMS
    refuses: bool = False
    over_partition: bool = False
    account_factor: float | None = None


NO_QOS_MAXIMUMS = QosMaximums()


def asks_for_more(request: JobRequest, levels: Sequence[Maximums]) -> bool:
    """Whether a job asks for more of anything than allowed by the first level that says how much.

    A job that names no time limit is not judged by its minutes.
    """
    in_all = (request.cpus, request.gpus or 0, request.mem_mib or 0)
    # Slurm divides by the nodes that a job asks for, one if it does not say, however many it needs (22.05 to 26.05).
    on_node = tuple(amount // (request.nodes or 1) for amount in in_all)
    in_minutes = tuple(amount * ((request.wall_s or 0) // 60) for amount in in_all)
    return (
        _exceed(in_all, [one.of_job for one in levels])
        or _exceed(on_node, [one.of_node for one in levels])
        or _exceed(in_minutes, [one.minutes for one in levels])
    )


def _exceed(asked: tuple[int, ...], levels: Sequence[tuple[Maximum, ...]]) -> bool:
    return any(
        is_beyond(amount, next(filter(None, (getattr(one, resource) for one in of_kind)), 0))
        for of_kind in zip_longest(*levels, fillvalue=NO_MAXIMUM)
        for amount, resource in zip(asked, ("cpus", "gpus", "mem_mib"), strict=True)
    )


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """What `nodes` nodes of a partition have for jobs: the most of anything that one of them has, and all together."""

    nodes: int
    of_node: Maximum
    together: Maximum

    def is_below(self, request: JobRequest) -> bool:
        """Whether a job could not even run there if all nodes were free."""
        return self.of_node.is_below_on_node(request) or self.together.is_below(request)


def strictest_maximums(several: Sequence[Maximums]) -> Maximums:
    """Return the lowest amount of each kind among maximums that all count."""
    return Maximums(
        of_job=_lowest([one.of_job for one in several]),
        of_node=_lowest([one.of_node for one in several]),
        minutes=_lowest([one.minutes for one in several]),
    )


def multiplied(most: Maximums, factor: float) -> Maximums:
    """Return what an association lets a job ask for with a QOS of that LimitFactor; minutes stay as they are.

    None of anything is the least, as 0 is any amount: so a share below one counts as one.
    """

    def of(amount: int) -> int:
        return max(1, int(amount * factor)) if amount else 0

    return msgspec.structs.replace(
        most,
        of_job=tuple(
            Maximum(cpus=of(one.cpus), gpus=of(one.gpus), mem_mib=of(one.mem_mib)) for one in most.of_job
        ),
    )


def _lowest(several: Sequence[tuple[Maximum, ...]]) -> tuple[Maximum, ...]:
    return tuple(
        Maximum(
            cpus=min((one.cpus for one in of_kind if one.cpus), default=0),
            gpus=min((one.gpus for one in of_kind if one.gpus), default=0),
            mem_mib=min((one.mem_mib for one in of_kind if one.mem_mib), default=0),
        )
        for of_kind in zip_longest(*several, fillvalue=NO_MAXIMUM)
    )


def cpus_of_node(request: JobRequest) -> int:
    """Return how many CPUs of one node a job asks for at least: each of its tasks may be on another node."""
    tasks = math.ceil(request.num_tasks / request.nodes) if request.nodes else 1
    return (request.cpus_per_task or 1) * tasks


def mem_of_node_mib(request: JobRequest) -> int:
    """Return how much memory of one node a job asks for at least, 0 if it does not say or memory comes with GPUs."""
    return max(request.mem_per_node_mib or 0, (request.mem_per_cpu_mib or 0) * cpus_of_node(request))


def is_beyond(asked: int, most: int) -> bool:
    """Whether more is asked than the maximum allows; 0 means no maximum."""
    return 0 < most < asked
