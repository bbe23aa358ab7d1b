"""Requests of steps that a family's jobs ran inside themselves are left to its next job."""

from typing import Any

import msgspec
import pytest

from models.demand.explanation import explain
from models.demand.prediction import ChainSettings, Predictor
from models.past.attempts import past_job, request_of
from models.past.history import History
from tests.builders import T0, attempt

RECENT_JOBS = 20


def predictor_of(*held: dict[str, Any], bears: float = 0.0) -> tuple[Predictor, Any]:
    """A predictor from jobs that requested 8 CPUs and 8000 MiB and hardly used any; `held` is what their steps held."""
    history = History(RECENT_JOBS)
    for number, changes in enumerate(held):
        one = attempt(job_id=number + 1, start_s=T0 + 1000 * number, elapsed_s=600, cores=0.2, mem_mib=100.0)
        use = msgspec.structs.replace(
            one.use, **{name: value for name, value in changes.items() if name.startswith("step_")}
        )
        row = msgspec.structs.replace(one.row, alloc_cpus=changes.get("alloc_cpus", 8))
        one = msgspec.structs.replace(one, use=use, row=row, num_tasks=changes.get("num_tasks", 1))
        history.add(request_of(one), past_job(one))
    settings = ChainSettings(most_slowdown=bears)
    wanted = request_of(attempt(job_id=99, start_s=T0, elapsed_s=600, mem_mib=1.0))
    return Predictor("m", history, {}, settings), wanted


@pytest.mark.parametrize(
    ("held", "cpus"),
    [
        ([{"step_cpus": 4}], 4),
        ([{"step_cpus": 4}, {"step_cpus": 6}, {}], 6),
        ([{}], 1),
        ([{"step_cpus": 1}], 1),
        # The recent jobs have no more than one of their steps requests: the first job decides.
        ([{"step_cpus": 4}, *[{"alloc_cpus": 4}] * RECENT_JOBS], 4),
    ],
    ids=["one", "the_most", "none", "less_than_needed", "long_ago"],
)
def test_as_many_cpus_are_left_as_steps_held_at_one_time(held: list[dict[str, Any]], cpus: int) -> None:
    predictor, wanted = predictor_of(*[{}] * 30, *held)
    cores = predictor.predict(wanted).cores
    assert cores is not None
    assert max(1, cores.upper) == cpus


def test_the_tasks_of_a_job_share_the_cpus_of_its_steps() -> None:
    predictor, wanted = predictor_of(*[{"step_cpus": 6, "num_tasks": 2}] * 30)
    cores = predictor.predict(msgspec.structs.replace(wanted, num_tasks=2, cpus_per_task=4)).cores
    assert cores is not None
    assert cores.upper == 3


def test_as_much_memory_is_left_as_steps_held_at_one_time() -> None:
    predictor, wanted = predictor_of(*[{}] * 30, {"step_mem_mib": 3000})
    memory = predictor.predict(wanted).memory
    assert memory is not None
    assert memory.upper == 3000


def test_a_site_that_tolerates_longer_runs_refuses_no_step_either() -> None:
    predictor, wanted = predictor_of(*[{"step_cpus": 4}] * 30, bears=0.5)
    assert predictor.predict(wanted).fewest_cpus == 4


def test_the_step_that_raised_a_prediction_is_explained() -> None:
    predictor, wanted = predictor_of(*[{"step_cpus": 4, "step_mem_mib": 3000}] * 30)
    told = {one.dimension: one.steps[-1] for one in explain(predictor, wanted, {})}
    assert [(told[name].name, told[name].upper) for name in ("memory", "cores")] == [
        ("shared", 3000),
        ("shared", 4),
    ]
