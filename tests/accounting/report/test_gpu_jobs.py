"""What jobs with GPUs were allocated, with counts, and what jobs with one GPU did with it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine

from accounting.records import Attempt, GpuUse
from accounting.report.gpu_jobs import Given, OnOneGpu, read_given, read_on_one_gpu
from accounting.report.selection import Selection
from accounting.store.records import write_gpu_use
from models.past.families import family_name
from tests.accounting.report.report_store import fill, measured
from tests.builders import T0, gpu_use

ON_ONE: dict[str, Any] = {"alloc_cpus": 4, "alloc_mem_mib": 8000, "alloc_gpus": 1, "nodes": 1}


def test_equal_allocations_are_counted_without_those_of_no_gpu_or_that_never_ran(store: Engine) -> None:
    fill(
        store,
        [
            measured(1, **ON_ONE),
            measured(2, **ON_ONE),
            measured(3, **{**ON_ONE, "alloc_gpus": 8, "nodes": 2}),
            measured(4, **{**ON_ONE, "alloc_gpus": 0}),
            measured(5, **{**ON_ONE, "alloc_gpus": None}),
            measured(6, start_s=-1, **ON_ONE),
            measured(7, **{**ON_ONE, "alloc_mem_mib": None}),
            measured(8, **ON_ONE, user="bob"),
        ],
    )
    assert read_given(store, Selection()) == [Given(4, 8000, 1, 1, 3), Given(4, 8000, 8, 2, 1)]
    assert read_given(store, Selection(user="bob")) == [Given(4, 8000, 1, 1, 1)]


ONE: dict[str, Any] = {
    **ON_ONE,
    "user": "ann",
    "job_name": "fit",
    "gpus": 1,
    "gpu_mem_mib": 5000.0,
    "gpu_quality": "sampled",
    "gpu_source": "nvml",
}


def test_attempts_on_one_gpu_are_read_with_how_busy_it_was(store: Engine) -> None:
    first, again = measured(1, **ONE), measured(1, start_s=T0 + 90_000, **ONE)
    others = [
        measured(2, **{**ONE, "alloc_gpus": 2}),
        measured(3, start_s=-1, **ONE),
        measured(4, **{**ONE, "gpu_source": "slurm"}),
        measured(5, **ONE, outcome="cut_short"),
        measured(6, **{**ONE, "gpu_quality": "short"}),
        measured(7, **{**ONE, "gpus": None, "gpu_mem_mib": None, "gpu_source": "", "gpu_quality": "absent"}),
        measured(8, **ONE),
    ]
    fill(store, [first, again, *others], with_steps=False)

    def during(one: Attempt, **changes: Any) -> GpuUse:
        times = {"first_s": one.row.start_s, "last_s": one.row.start_s + 600}
        return gpu_use(**{"job_id": one.row.job_id, "cluster": one.row.cluster, **times, **changes})

    uses = [
        during(first, samples=30, util_mean_pct=10.0),
        during(
            first, first_s=first.row.start_s + 700, last_s=first.row.end_s, samples=10, util_mean_pct=50.0
        ),
        during(first, first_s=first.row.start_s + 1, cluster="elsewhere", util_mean_pct=99.0),
        during(again, cluster="", util_mean_pct=3.0),
        *(during(one, util_mean_pct=40.0) for one in others[:-1]),
        during(others[-1], util_mean_pct=40.0),
        during(others[-1], gpu=1, util_mean_pct=None, util_max_pct=None),
    ]
    with store.begin() as connection:
        write_gpu_use(connection, uses)
    found = {run.start_s: run for run in read_on_one_gpu(store, Selection(), family_name)}
    assert len(found) == 7, "who had two GPUs, or never ran, is none of them"
    assert found[first.row.start_s] == OnOneGpu(
        user="ann", family="fit", start_s=first.row.start_s, end_s=first.row.end_s, mem_mib=5000.0,
        busy=0.2, is_measured=True,
    )  # fmt: skip
    assert found[again.row.start_s].busy == 0.03
    by_slurm, cut_short, short, unseen, unclear = (found[one.row.start_s] for one in others[2:])
    assert (by_slurm.busy, by_slurm.is_measured, by_slurm.mem_mib) == (None, False, 5000.0)
    assert (cut_short.busy, cut_short.is_measured) == (0.4, False)
    assert (short.is_measured, unseen.busy, unseen.mem_mib) == (False, None, None)
    assert unclear.busy is None, "what some samples do not tell is not known"


def test_a_job_that_a_meter_saw_on_two_gpus_is_as_busy_as_the_busier_one(store: Engine) -> None:
    """Where Slurm does not constrain devices, a job may compute on another GPU than its own, which is then idle."""
    one, unclear = measured(1, **ONE), measured(2, start_s=T0 + 90_000, **ONE)
    fill(store, [one, unclear], with_steps=False)
    times = {"first_s": one.row.start_s, "last_s": one.row.end_s}
    later = {"first_s": unclear.row.start_s, "last_s": unclear.row.end_s}
    idle = {"util_mean_pct": 0.0, "util_max_pct": 0.0}
    with store.begin() as connection:
        write_gpu_use(
            connection,
            [
                gpu_use(job_id=1, gpu=0, util_mean_pct=90.0, **times),
                gpu_use(job_id=1, gpu=2, **times, **idle),
                gpu_use(job_id=2, gpu=0, util_mean_pct=None, util_max_pct=None, **later),
                gpu_use(job_id=2, gpu=1, util_mean_pct=20.0, **later),
            ],
        )
    found = {run.start_s: run.busy for run in read_on_one_gpu(store, Selection(), family_name)}
    assert found == {one.row.start_s: 0.9, unclear.row.start_s: None}
