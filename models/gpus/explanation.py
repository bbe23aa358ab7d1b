"""Why a job goes on one node and not on another, by what the jobs that usually come would lose. Pure."""

from __future__ import annotations

import msgspec
import numpy

from models.gpus.fragmentation import Usual, fitting, lost
from models.gpus.placing import NONE, Choice, part_on
from models.scheduling.room import MILLI, PLAIN, Amounts, Room


class Weighed(msgspec.Struct, frozen=True, kw_only=True):
    """A node that holds a job, and what the job would cost there: less is better. Amounts are of GPUs.

    The job takes `taken` itself. Of what stays idle on the node, more than before is lost to a job that usually
    comes, on average: `for_cpus`, `for_memory`, or because too few GPUs, or too little of one, are free together
    (`for_gpus`); a negative amount if the job takes what was lost already. The cost is the sum of these and of
    `empty`, what it is worth to keep a node empty. `fits_no_more` is the share of the usual jobs that fitted there
    before, and do not after.
    """

    node: int
    gpu: int | None
    cost: float
    taken: float
    for_cpus: float
    for_memory: float
    for_gpus: float
    empty: float
    fits_no_more: float


def weighed(room: Room, demand: Amounts, choice: Choice, usual: Usual) -> Weighed:
    """Return what it would cost the jobs that usually come to put a job on a node that holds it."""
    part = part_on(room, choice.node, demand, choice.device)
    before = room.free[:, [choice.node]]
    after = before - numpy.array(part)[:, None]
    cpus, memory, gpus = (
        float(then[0] - now[0]) / MILLI
        for now, then in zip(lost(before, usual)[1:], lost(after, usual)[1:], strict=True)
    )
    return Weighed(
        node=choice.node,
        gpu=None if choice.device == NONE else choice.device,
        cost=(choice.loss_milli + choice.empty_milli) / MILLI,
        taken=sum(part[PLAIN:]) / MILLI,
        for_cpus=cpus,
        for_memory=memory,
        for_gpus=gpus,
        empty=choice.empty_milli / MILLI,
        fits_no_more=float((fitting(before, usual) - fitting(after, usual))[0]),
    )
