"""Algorithm 1 over its settings, on what the judged jobs of traced types requested. Pure.

Requests are scaled with what the earlier jobs taught, by the code that also sizes requests (run_time/strategy.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy

from bench.run_time_traces import TracedType
from models.run_time.adaptive_scaling import Scaled, Scaling
from models.run_time.regression import Judged, NotLearned
from models.run_time.resources import CORES, MEM_MIB
from models.run_time.strategy import TypeModel, scale_amounts

ALPHAS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
STEPS = (0.01, 0.05, 0.1, 0.25)
THETAS = (0.02, 0.05, 0.1, 0.2, 0.4)
USUAL = Scaling()
WANTED_WMAPE = 0.15


class Learned(msgspec.Struct, frozen=True, kw_only=True):
    """A traced type, how well its run times are predicted, and its earlier jobs' model, or why it would not do."""

    traced: TracedType
    judged: Judged
    model: TypeModel | NotLearned


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of Algorithm 1; `floor` keeps to what earlier jobs used (TypeModel.floors), the paper does not."""

    scaling: Scaling
    floor: bool


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of one setting, as shares of the hours requested; `changed_share` is the predicted change in run time.

    `short_*` are the shares of jobs left with less than they really used.
    """

    setting: Setting
    saved_cores: float
    saved_memory: float
    scaled_jobs: float
    changed_share: float
    short_of_memory: float
    short_of_cores: float

    def row(self) -> dict[str, object]:
        """Return it as a row of a table."""
        scaling = self.setting.scaling
        return {
            "α": round(scaling.alpha, 2),
            "Δα": scaling.step,
            "θ": scaling.theta,
            "kept above use": "yes" if self.setting.floor else "no (paper)",
            "jobs scaled %": round(100 * self.scaled_jobs, 1),
            "core·h saved %": round(100 * self.saved_cores, 1),
            "GiB·h saved %": round(100 * self.saved_memory, 1),
            "predicted change of run time %": round(100 * self.changed_share, 2),
            "below their memory %": round(100 * self.short_of_memory, 1),
            "below their busy cores %": round(100 * self.short_of_cores, 1),
        }


def settings_of() -> Iterator[Setting]:
    """Yield the settings to try: α against θ at the usual step, then the steps at the usual α and θ."""
    for floor in (False, True):
        for theta in THETAS:
            for alpha in ALPHAS:
                yield Setting(scaling=Scaling(alpha=alpha, step=USUAL.step, theta=theta), floor=floor)
        for step in STEPS:
            if step != USUAL.step:
                yield Setting(scaling=Scaling(alpha=USUAL.alpha, step=step, theta=USUAL.theta), floor=floor)


def swept(learned: list[Learned], setting: Setting) -> Point:
    """Return the effect of one setting on all judged jobs of all types."""
    jobs = numpy.vstack([_type_jobs(one, setting) for one in learned])
    hours, cores, memory, new_cores, new_memory, change, busy, peak = jobs.T
    return Point(
        setting=setting,
        saved_cores=1 - float(hours @ new_cores / (hours @ cores)),
        saved_memory=1 - float(hours @ new_memory / (hours @ memory)),
        scaled_jobs=float(((new_cores < cores) | (new_memory < memory)).mean()),
        changed_share=float(hours @ change / hours.sum()),
        # Use measured above the request is not a failure of scaling.
        short_of_memory=float((numpy.minimum(peak, memory) > new_memory).mean()),
        short_of_cores=float((numpy.minimum(busy, cores) > new_cores).mean()),
    )


def _type_jobs(one: Learned, setting: Setting) -> numpy.ndarray[tuple[int, int], numpy.dtype[numpy.float64]]:
    first, jobs = one.judged.learned_from, one.traced.jobs
    asked = numpy.column_stack([one.traced.asked_cores[first:], one.traced.asked_mem_mib[first:]])
    used = jobs.amounts[first:, [jobs.resources.index(CORES), jobs.resources.index(MEM_MIB)]]
    distinct, places = numpy.unique(asked, axis=0, return_inverse=True)
    scaled = numpy.array([_scaled(one, float(cores), float(mem), setting) for cores, mem in distinct])
    return numpy.column_stack([jobs.run_s[first:] / 3600, asked, scaled[places.reshape(-1)], used])


def _scaled(one: Learned, cores: float, mem_mib: float, setting: Setting) -> tuple[float, float, float]:
    """Return the cores and MiB left of a request, and the predicted change of its run time as a share."""
    model = one.model
    if isinstance(model, NotLearned):
        return cores, mem_mib, 0.0
    asked = {name: amount for name, amount in ((CORES, cores), (MEM_MIB, mem_mib)) if name in model.resources}
    if not asked:
        return cores, mem_mib, 0.0
    floor = model.floors() if setting.floor else {}
    scaled: Scaled = scale_amounts(model, asked, setting.scaling, floor)
    left = dict(zip(model.resources, scaled.values, strict=True))
    change = scaled.predicted_s / scaled.original_s - 1
    return left.get(CORES, cores), left.get(MEM_MIB, mem_mib), change
