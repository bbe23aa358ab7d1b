"""Algorithm 1 of the resource-demand paper, which decides a simulation's grants for each type of job. Pure.

With ordering, the `greedy` rule and `spread` placement, this is the paper's Algorithm 2: order, scale, servers
ascending by what they have left, place or wait (Yang, Hong, Tang: AI computing power cluster scheduling based on task
resource demand prediction).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy

from models.run_time.adaptive_scaling import Asked, Scaling, scale
from models.run_time.resources import CORES, GPU_PCT, MEM_MIB
from models.run_time.strategy import TypeModel
from models.scheduling.room import Amounts, amounts_of
from models.simulation.workload import Workload

# The model's name of each resource, and how many of a room's units make one of the model's; in a room's order.
UNITS = ((CORES, 1000.0), (MEM_MIB, 1.0), (GPU_PCT, 10.0))


class AdaptiveScaling:
    """Scales requests by the models of the jobs' kinds; kinds, and resources, without a model stay as asked.

    `bounded` keeps grants above past use, as run_time/strategy.py does; without it this is Algorithm 1 as printed.
    """

    def __init__(
        self, jobs: Workload, kinds: Mapping[int, TypeModel], settings: Scaling, *, bounded: bool
    ) -> None:
        self._asked = [amounts_of(row) for row in jobs.asked]
        self._kind = jobs.kind.tolist()
        self._kinds = kinds
        self._settings = settings
        self._bounded = bounded
        # Users ask the same again and again, and the answer is the same.
        self._known: dict[tuple[int, Amounts], Amounts] = {}

    def grant(self, number: int, now_s: float) -> Amounts:  # noqa: ARG002
        """Return the scaled request in whole cores and MiB, and tenths of a per cent of a GPU."""
        key = (self._kind[number], self._asked[number])
        if key not in self._known:
            self._known[key] = self._scale(*key)
        return self._known[key]

    def _scale(self, kind: int, asked: Amounts) -> Amounts:
        model = self._kinds.get(kind)
        if model is None:
            return asked
        amounts = {name: part / unit for part, (name, unit) in zip(asked, UNITS, strict=True)}
        least = model.floors() if self._bounded else {}
        request = [
            Asked(
                resource=name,
                amount=amounts[name],
                whole=0.0 if name == GPU_PCT else 1.0,
                least=least.get(name, 0.0),
                fixed=amounts[name] == 0,
            )
            for name in model.resources
        ]
        found = scale(
            request,
            lambda rows: model.predict(numpy.clip(rows, model.lowest, model.highest)),
            model.important,
            self._settings,
        )
        left = amounts | dict(zip(model.resources, found.values, strict=True))
        cpu_milli, mem_mib, gpu_milli = (
            min(part, math.ceil(left[name] * unit)) for part, (name, unit) in zip(asked, UNITS, strict=True)
        )
        return cpu_milli, mem_mib, gpu_milli

    def ended(self, number: int, now_s: float, start_s: float, granted: Amounts, *, enough: bool) -> None:
        """Learn nothing: the paper's models are of the past."""
