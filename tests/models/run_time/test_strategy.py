"""Algorithm 1 as a way to size requests: every kind of request, and all that must stay as requested."""

import math
from typing import Any

import msgspec
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.records import Attempt
from accounting.request import JobRequest
from models.run_time import strategy
from models.run_time.adaptive_scaling import Scaling
from models.run_time.importance import Floats, Importance
from models.run_time.regression import XGBOOST, Error, Jobs, Judged, Model, NotLearned, learn
from models.run_time.resources import RESOURCES, jobs_by_type, used
from models.run_time.strategy import TypeModel, adaptive_sizing, learn_types, sized, type_model
from tests.builders import T0, attempt, request

HALF = Scaling(alpha=0.5, step=0.1, theta=0.1)


def flat(rows: Floats) -> Floats:
    return numpy.full(len(rows), 60.0)


def model(**changes: Any) -> TypeModel:
    """Jobs of this type used 1 to 4 cores, 100 to 300 % GPU and up to 900 MiB; run time depends on none of it."""
    plain = TypeModel(
        resources=("cores", "gpu_pct", "mem_mib", "read_mib"),
        predict=flat,
        important=frozenset(),
        lowest=numpy.array([1.0, 100.0, 200.0, 5.0]),
        typical=numpy.array([2.0, 100.0, 500.0, 50.0]),
        highest=numpy.array([4.0, 300.0, 900.0, 500.0]),
    )
    return msgspec.structs.replace(plain, **changes)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"cpus_per_task": 7, "mem_per_node_mib": 4000}, {"cpus_per_task": 4, "mem_per_node_mib": 2000}),
        ({"cpus_per_task": 8, "num_tasks": 3}, {"cpus_per_task": 4}),
        ({"cpus_per_task": 3, "num_tasks": 3}, {"cpus_per_task": 2}),
        ({"cpus_per_task": 1, "mem_per_node_mib": 1500}, {"mem_per_node_mib": 900}),  # the most that was used
        ({"mem_per_node_mib": 800, "cpus_per_task": None}, {}),
        ({"mem_per_node_mib": 3000, "nodes": 2}, {"mem_per_node_mib": 1500, "cpus_per_task": 4}),
        ({"gpus_per_node": 4}, {"gpus_per_node": 2, "cpus_per_task": 4}),
        ({"gpus_per_job": 3}, {"gpus_per_job": 2, "cpus_per_task": 4}),
        ({"gpus_per_task": 1, "num_tasks": 4}, {"cpus_per_task": 4}),  # two GPUs cannot be split among four tasks
        # Memory that comes with CPUs: half of the CPUs carry half of it, and no fewer stay than 900 MiB need.
        ({"mem_per_cpu_mib": 1000}, {"cpus_per_task": 4}),
        ({"mem_per_cpu_mib": 150}, {"cpus_per_task": 6}),
        (
            {"mem_per_gpu_mib": 400, "gpus_per_node": 4},
            {"mem_per_gpu_mib": 300, "gpus_per_node": 3, "cpus_per_task": 4},
        ),
    ],
)  # fmt: skip
def test_a_request_is_scaled_in_its_own_kind(asked: dict[str, Any], expected: dict[str, int]) -> None:
    before = request(**asked)
    assert sized(before, model(), HALF) == msgspec.structs.replace(before, **expected)


def test_important_resources_and_those_unknown_to_the_model_stay() -> None:
    before = request(mem_per_node_mib=4000, gpus_per_node=4)
    after = sized(before, model(important=frozenset({"cores", "gpu_pct"})), HALF)
    assert (after.cpus_per_task, after.mem_per_node_mib, after.gpus_per_node) == (8, 2000, 4)
    only_reading = model(
        resources=("read_mib",), lowest=numpy.ones(1), typical=numpy.ones(1), highest=numpy.ones(1)
    )
    assert sized(before, only_reading, HALF) == before


def test_cpus_that_carry_memory_stay_where_memory_matters_or_is_unknown() -> None:
    before = request(mem_per_cpu_mib=1000)
    assert sized(before, model(important=frozenset({"mem_mib"})), HALF) == before
    no_memory = model(
        resources=("cores",), lowest=numpy.ones(1), typical=numpy.ones(1), highest=numpy.full(1, 4.0)
    )
    assert sized(before, no_memory, HALF) == before
    assert sized(request(), no_memory, HALF).cpus_per_task == 4


def test_a_request_beyond_all_use_counts_as_the_most_that_was_used() -> None:
    def by_cores(rows: Floats) -> Floats:
        return 100 / rows[:, 0]

    # 64 cores are as good as 4, and so are 32, 16 and 6.4; only below 4 does the run time change.
    assert sized(request(cpus_per_task=64), model(predict=by_cores), HALF).cpus_per_task == 32
    tenth = Scaling(alpha=0.05, step=0.01, theta=0.01)
    assert sized(request(cpus_per_task=64), model(predict=by_cores), tenth).cpus_per_task == 4


def test_nothing_is_cut_below_the_least_that_any_job_used() -> None:
    busy = model(lowest=numpy.array([3.5, 200.0, 200.0, 5.0]))
    before = request(cpus_per_task=8, gpus_per_node=8, mem_per_node_mib=4000)
    after = sized(before, busy, Scaling(alpha=0.05))
    assert (after.cpus_per_task, after.gpus_per_node, after.mem_per_node_mib) == (4, 2, 900)
    assert busy.floors() == {"cores": 3.5, "gpu_pct": 200, "mem_mib": 900, "read_mib": 5}


def test_a_request_of_an_unknown_type_stays_as_it_is() -> None:
    size = adaptive_sizing({"fit": model()}, lambda request: request.job_name or None, HALF)
    assert size(request(job_name="fit")).cpus_per_task == 4
    for name in ("sim", ""):
        assert size(request(job_name=name)) == request(job_name=name)


COUNTS = st.none() | st.integers(1, 200)


@given(
    st.integers(1, 5),
    COUNTS,
    st.none() | st.integers(1, 4),
    st.sampled_from(["mem_per_node_mib", "mem_per_cpu_mib", "mem_per_gpu_mib"]),
    st.none() | st.integers(1, 20_000),
    st.sampled_from(["gpus_per_node", "gpus_per_job", "gpus_per_task"]),
    st.none() | st.integers(1, 8),
    st.sets(st.sampled_from(["cores", "gpu_pct", "mem_mib"])),
    st.floats(0.05, 0.95),
)
def test_amounts_stay_between_one_and_the_request_and_memory_covers_the_largest_use(
    num_tasks: int, cpus: int | None, nodes: int | None, mem_kind: str, mem: int | None,
    gpu_kind: str, gpus: int | None, important: set[str], alpha: float,
) -> None:  # fmt: skip
    before = request(num_tasks=num_tasks, cpus_per_task=cpus, nodes=nodes, **{mem_kind: mem, gpu_kind: gpus})
    after = sized(before, model(important=frozenset(important)), Scaling(alpha=alpha))
    for name, asked in msgspec.structs.asdict(before).items():
        left = getattr(after, name)
        if isinstance(asked, int):
            assert 1 <= left <= asked
        else:
            assert left == asked
    if before.mem_mib is not None and after.mem_mib is not None:
        assert after.mem_mib >= min(before.mem_mib, 900)


def metered(number: int, **changes: Any) -> Attempt:
    """A job whose run time comes from what it read, at 20 MiB a second."""
    run_s = 60 + (number * 37) % 240
    plain = attempt(
        job_id=number, submit_s=T0 + 1000 * number, elapsed_s=run_s, mem_mib=100.0 + number % 7, **changes
    )
    use = msgspec.structs.replace(plain.use, read_mib=20.0 * run_s, written_mib=3.0, io_quality="exact")
    return msgspec.structs.replace(plain, use=use)


def test_only_measured_jobs_that_ran_to_their_end_are_learned_from() -> None:
    fit, bound = metered(1), metered(2)
    bound = msgspec.structs.replace(
        bound, use=msgspec.structs.replace(bound.use, memory_quality="contaminated")
    )
    killed, unnamed = metered(3, state="OUT_OF_MEMORY"), metered(4, job_name="wrap")
    jobs = jobs_by_type(
        [bound, killed, unnamed, fit], lambda a: None if a.row.job_name == "wrap" else a.row.job_name
    )
    assert list(jobs) == ["fit"]
    assert jobs["fit"].run_s.tolist() == [97.0, 134.0], "in the order of time"
    memory = jobs["fit"].amounts[:, RESOURCES.index("mem_mib")]
    assert memory[0] == 101
    assert math.isnan(memory[1])
    assert math.isnan(used(fit)[RESOURCES.index("gpu_pct")])


def test_attempts_teach_a_type_that_makes_requests_smaller() -> None:
    attempts = [metered(number, cores=0.5 + number % 3 * 0.1) for number in range(60)]
    few = [metered(100 + number, job_name="rare") for number in range(5)]
    learned = learn_types(attempts + few, lambda a: a.row.job_name)
    assert learned.keys() == {"fit", "rare"}
    fit, rare = learned["fit"], learned["rare"]
    assert rare == NotLearned("5 jobs, 50 are needed")
    assert isinstance(fit, TypeModel)
    assert "read_mib" in fit.important
    assert fit.floors()["mem_mib"] == 106
    size = adaptive_sizing({"fit": fit}, lambda request: request.job_name, HALF)
    after = size(JobRequest(user="ann", job_name="fit", cpus_per_task=8, mem_per_node_mib=4000))
    assert after.mem_per_node_mib == 2000


@pytest.mark.parametrize(
    ("wmape", "median_wmape", "by_chance", "reason"),
    [
        (0.02, 0.02, 0.01, "the resources tell no more than the median run time, but for chance"),
        (0.02, 0.03, 0.2, "the resources tell no more than the median run time, but for chance"),
        (0.2, 0.5, 0.01, "a WMAPE of 0.20, above the 0.15 of models.scaling.most_error"),
        (0.15, 0.5, 0.01, ""),
    ],
)
def test_a_type_is_learned_only_where_later_jobs_were_predicted_well_and_not_by_chance(
    wmape: float, median_wmape: float, by_chance: float, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    [jobs] = jobs_by_type([metered(number) for number in range(60)], lambda a: a.row.job_name).values()
    learned = learn(jobs)
    assert isinstance(learned, Model)
    judged = Judged(
        learned_from=42,
        judged=18,
        model=learned,
        predicted_s={},
        errors={XGBOOST: Error(9.0, wmape)},
        median=Error(9.0, median_wmape),
        median_by_chance=by_chance,
        importances=(),
    )
    weighed: list[Model] = []
    monkeypatch.setattr(strategy, "judge", lambda *_, **__: judged)

    def weigh(model: Model, *_: Any) -> tuple[Importance, ...]:
        weighed.append(model)
        return ()

    monkeypatch.setattr(strategy, "importances_of", weigh)
    found = type_model(jobs)
    # If no request is scaled by a type, its importances are not computed, which takes as long as learning it.
    assert weighed == ([] if reason else [learned])
    assert found == NotLearned(reason) if reason else isinstance(found, TypeModel)
    assert isinstance(type_model(jobs, most_error=0.3), TypeModel) == (
        by_chance < 0.1 and wmape < median_wmape
    )


def test_a_resource_metered_only_recently_is_not_scaled() -> None:
    draw = numpy.random.default_rng(3)
    jobs, since = 200, 190
    read_mib, busy = draw.uniform(10, 1000, jobs), draw.uniform(2, 8, jobs)
    known = Jobs(
        resources=("cores", "read_mib"),
        amounts=numpy.column_stack([numpy.where(numpy.arange(jobs) < since, math.nan, busy), read_mib]),
        run_s=(200 + 3 * read_mib) * (8 / busy) ** 0.25,
    )
    found = type_model(known)
    assert isinstance(found, TypeModel)
    assert "cores" in found.important
    assert sized(request(cpus_per_task=8), found, HALF).cpus_per_task == 8
