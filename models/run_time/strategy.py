"""Adaptive scaling as a way to size requests: Algorithm 1, called with each job's type. Pure.

The models are of what jobs used, so a request beyond all that was ever used is read as the most that was: what nobody
used changes no run time. What the models cannot tell stays as asked: jobs of a type that was not learned, and
resources that were not measured or never varied. Three bounds are not the paper's:

- A model that predicted the run times of later jobs badly is not asked: one that errs by half cannot say that a run
  time changes by less than a tenth.
- Nothing is cut below the least that any job of the type used: the model knows nothing of less.
- Memory is not cut below the most that any job used: a job without the memory it needs is not slower, it is dead, and
  no such job is among those that the model learned from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import msgspec
import numpy

from accounting.records import Attempt
from accounting.request import JobRequest
from models.run_time.adaptive_scaling import Asked, Scaled, Scaling, scale
from models.run_time.importance import Floats, Predict, important
from models.run_time.regression import (
    XGBOOST,
    Jobs,
    Judged,
    Model,
    NotLearned,
    asked_columns,
    importances_of,
    judge,
    learn,
)
from models.run_time.resources import CORES, GPU_PCT, MEM_MIB, PCT_A_GPU, TypeOf, jobs_by_type

# The units in which a resource is granted; 0 is any amount.
WHOLE = {CORES: 1.0, GPU_PCT: PCT_A_GPU}

# The largest error, as WMAPE on later jobs, at which a model is asked: the largest that the paper shows.
MOST_ERROR = 0.15

RequestType = Callable[[JobRequest], str | None]


class TypeModel(msgspec.Struct, frozen=True, kw_only=True):
    """What Algorithm 1 needs to know of a type.

    `predict` takes amounts in the order of `resources`; `lowest`, `typical` and `highest` are what the type's jobs
    used.
    """

    resources: tuple[str, ...]
    predict: Predict
    important: frozenset[str]
    lowest: Floats
    typical: Floats
    highest: Floats

    def floors(self) -> dict[str, float]:
        """Return what no request is cut below: of memory the most, of all else the least, that any job used."""
        least = dict(zip(self.resources, self.lowest.tolist(), strict=True))
        if MEM_MIB in least:
            least[MEM_MIB] = float(self.highest[self.resources.index(MEM_MIB)])
        return least


def learn_types(
    attempts: Iterable[Attempt],
    type_of: TypeOf,
    most_error: float = MOST_ERROR,
    told: Callable[[float], None] = lambda _: None,
) -> dict[str, TypeModel | NotLearned]:
    """Return a model for each type of job, or why there is none: such jobs stay as asked.

    A type has a model if its resources predict its run time. `most_error` is the largest WMAPE on later jobs that
    will do; `told` is called with the share (0..1) that is done.
    """
    types = jobs_by_type(attempts, type_of)
    found: dict[str, TypeModel | NotLearned] = {}
    for name, jobs in types.items():
        found[name] = type_model(jobs, most_error)
        told(len(found) / len(types))
    return found


def type_model(jobs: Jobs, most_error: float = MOST_ERROR) -> TypeModel | NotLearned:
    """Learn from all jobs of a type; find the important resources on the later jobs, with the earlier ones' model.

    Resources that this model did not know, such as those metered only lately, count as important: nobody has judged
    them.
    """
    judged = judge(jobs, (XGBOOST,), weigh=False)
    if not isinstance(judged, Judged):
        return judged
    doubt = doubt_of(judged, most_error)
    if doubt:
        return NotLearned(doubt)
    model = learn(jobs)
    if isinstance(model, NotLearned):
        return model
    split, end = judged.learned_from, len(jobs.run_s)
    importances = importances_of(judged.model, jobs.part(0, split), jobs.part(split, end))
    unjudged = frozenset(model.resources) - frozenset(judged.model.resources)
    return _asking(model, jobs, important(importances) | unjudged)


def doubt_of(judged: Judged, most_error: float) -> str:
    """Return why requests are not scaled by what was learned of a type; '' if they are."""
    if not judged.tells:
        return "the resources tell no more than the median run time, but for chance"
    wmape = judged.errors[XGBOOST].wmape
    if wmape > most_error:
        return f"a WMAPE of {wmape:.2f}, above the {most_error:g} of models.scaling.most_error"
    return ""


def _asking(model: Model, jobs: Jobs, important: frozenset[str]) -> TypeModel:
    """Return a model, together with what the jobs that it was learned from used."""
    amounts = asked_columns(jobs, model)
    return TypeModel(
        resources=model.resources,
        predict=model.predict,
        important=important,
        lowest=numpy.nanmin(amounts, axis=0),
        typical=numpy.nanmedian(amounts, axis=0),
        highest=numpy.nanmax(amounts, axis=0),
    )


def scale_amounts(
    model: TypeModel, amounts: Mapping[str, float], settings: Scaling, least: Mapping[str, float]
) -> Scaled:
    """Run Algorithm 1 on asked amounts; resources that the model knows and nobody asked for stay typical.

    The answer is in the order of `model.resources`. `least` are bounds that no amount is cut below.
    """
    request = [
        Asked(
            resource=name,
            amount=amounts.get(name, float(typical)),
            whole=WHOLE.get(name, 0.0),
            least=least.get(name, 0.0),
            fixed=name not in amounts,
        )
        for name, typical in zip(model.resources, model.typical, strict=True)
    ]
    return scale(
        request,
        lambda rows: model.predict(numpy.clip(rows, model.lowest, model.highest)),
        model.important,
        settings,
    )


def adaptive_sizing(
    models_by_type: Mapping[str, TypeModel], type_of: RequestType, settings: Scaling
) -> Callable[[JobRequest], JobRequest]:
    """Return a function that sizes any request by Algorithm 1, in the form that its user chose."""

    def size(request: JobRequest) -> JobRequest:
        model = models_by_type.get(type_of(request) or "")
        return request if model is None else sized(request, model, settings)

    return size


def sized(request: JobRequest, model: TypeModel, settings: Scaling) -> JobRequest:
    """Return a request scaled by its type's model; never above what was asked, never below one of anything."""
    amounts = asked_amounts(request, model)
    if not amounts:
        return request
    scaled = scale_amounts(model, amounts, settings, least_amounts(request, model))
    values = dict(zip(model.resources, scaled.values, strict=True))
    return with_amounts(request, {name: values[name] for name in amounts})


def asked_amounts(request: JobRequest, model: TypeModel) -> dict[str, float]:
    """Return what a request asks in all of the resources that the model knows.

    CPUs or GPUs that memory comes with are scaled only if memory may be.
    """
    asked = {
        CORES: request.cpus if request.cpus_per_task else None,
        GPU_PCT: None if request.gpus is None else request.gpus * PCT_A_GPU,
        MEM_MIB: request.mem_mib,
    }
    carrier = _carrier(request)
    if carrier and (MEM_MIB not in model.resources or MEM_MIB in model.important):
        asked[carrier] = None
    return {
        name: float(value) for name, value in asked.items() if value is not None and name in model.resources
    }


def least_amounts(request: JobRequest, model: TypeModel) -> dict[str, float]:
    """Return what must be left: the floors of the type, and enough CPUs or GPUs to carry its memory."""
    least = model.floors()
    need_mib = least.get(MEM_MIB, 0.0)
    if request.mem_per_cpu_mib:
        least[CORES] = max(least.get(CORES, 0.0), math.ceil(need_mib / request.mem_per_cpu_mib))
    if request.mem_per_gpu_mib:
        carrying = PCT_A_GPU * math.ceil(need_mib / request.mem_per_gpu_mib)
        least[GPU_PCT] = max(least.get(GPU_PCT, 0.0), carrying)
    return least


def with_amounts(request: JobRequest, amounts: Mapping[str, float]) -> JobRequest:
    """Return a request for these amounts in all, each rounded up to what its form can say."""
    changed: dict[str, int] = {}
    if CORES in amounts and request.cpus_per_task:
        changed["cpus_per_task"] = _share(amounts[CORES], request.num_tasks, request.cpus_per_task)
    if GPU_PCT in amounts:
        kind, times, asked = next(
            (name, times, value)
            for name, times, value in (
                ("gpus_per_job", 1, request.gpus_per_job),
                ("gpus_per_task", request.num_tasks, request.gpus_per_task),
                ("gpus_per_node", request.nodes or 1, request.gpus_per_node),
            )
            if value is not None
        )
        changed[kind] = _share(amounts[GPU_PCT] / PCT_A_GPU, times, asked)
    fewer = msgspec.structs.replace(request, **changed)
    if MEM_MIB not in amounts:
        return fewer
    kind, carriers, asked = next(
        (name, times, value)
        for name, times, value in (
            ("mem_per_node_mib", request.nodes or 1, request.mem_per_node_mib),
            ("mem_per_cpu_mib", fewer.cpus, request.mem_per_cpu_mib),
            ("mem_per_gpu_mib", fewer.gpus or 1, request.mem_per_gpu_mib),
        )
        if value is not None
    )
    return msgspec.structs.replace(fewer, **{kind: _share(amounts[MEM_MIB], carriers, asked)})


def _carrier(request: JobRequest) -> str | None:
    if request.mem_per_cpu_mib is not None:
        return CORES
    return GPU_PCT if request.mem_per_gpu_mib is not None else None


def _share(amount: float, times: int, asked: int) -> int:
    return min(asked, max(1, math.ceil(amount / times - 1e-6)))
